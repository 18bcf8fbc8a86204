//! Files that scripts name. A script may name every file that the front's user may read, as in lighttpd.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use sendoff_config::Symlinks;
use sendoff_lua::Piece;

use crate::segment::Segment;
use crate::static_files::{CacheShare, Entry, FileCache, Found, Root};

/// The files of the machine, kept open as those of sites are.
#[derive(Debug)]
pub(crate) struct Files(RefCell<FileCache>);

impl Files {
    pub(super) fn open_root(share: &Rc<CacheShare>) -> io::Result<Rc<Self>> {
        let root = Root::open(Path::new("/"), Symlinks::Any, &[])?;
        let cache = FileCache::new(root, Rc::default(), Rc::clone(share));
        Ok(Rc::new(Self(RefCell::new(cache))))
    }

    /// The regular file with this absolute path.
    pub(super) fn open(&self, path: &[u8]) -> Result<Rc<Entry>, String> {
        let shown = || path.escape_ascii().to_string();
        let Some(beneath) = path.strip_prefix(b"/") else {
            return Err(format!("{} is no absolute path", shown()));
        };
        match self.0.borrow_mut().lookup(beneath) {
            Ok(Found::File(entry)) => Ok(entry),
            Ok(Found::Directory) => Err(format!("{} is a folder", shown())),
            Err(refusal) => Err(format!("{} cannot be opened: {refusal:?}", shown())),
        }
    }

    /// The segments of a body, up to the first file that cannot be opened, and why it cannot.
    pub(super) fn segments(&self, pieces: Vec<Piece>) -> (Vec<Segment>, Option<String>) {
        let mut segments = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match piece {
                Piece::Text(text) if text.is_empty() => {}
                Piece::Text(text) => segments.push(Segment::Bytes(text)),
                Piece::File { path, offset, len } => match self.open(&path) {
                    Ok(entry) => {
                        let offset = match u64::try_from(offset) {
                            Ok(offset) => offset.min(entry.size),
                            Err(_) => entry.size.saturating_sub(offset.unsigned_abs()),
                        };
                        let rest = entry.size - offset;
                        let len = len.map_or(rest, |len| len.min(rest));
                        if len > 0 {
                            segments.push(entry.part(offset, len));
                        }
                    }
                    Err(why) => return (segments, Some(why)),
                },
            }
        }
        (segments, None)
    }
}
