//! Files named by scripts. A script may name every file that the front's user may read, as in
//! lighttpd.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use sendoff_config::Symlinks;
use sendoff_delivery::segment::Segment;
use sendoff_lua::BodyPiece;
use sendoff_static_files::{CacheShare, Entry, FileCache, Found, Root};

/// The files of the machine, kept open in the same way as files of sites.
#[derive(Debug)]
pub(crate) struct Files(RefCell<FileCache>);

impl Files {
    pub(super) fn open_root(share: &Rc<CacheShare>) -> io::Result<Rc<Self>> {
        let root = Root::open(Path::new("/"), Symlinks::Any, &[])?;
        let cache = FileCache::new(root, Rc::default(), Rc::clone(share));
        Ok(Rc::new(Self(RefCell::new(cache))))
    }

    /// Opens the regular file with this absolute path.
    pub(super) fn open(&self, path: &[u8]) -> Result<Rc<Entry>, String> {
        let path = without_dots(path);
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

    /// The segments of a body up to the first file that cannot be opened, and the error.
    pub(super) fn segments(&self, pieces: Vec<BodyPiece>) -> (Vec<Segment>, Option<String>) {
        let mut segments = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match piece {
                BodyPiece::Text(text) if text.is_empty() => {}
                BodyPiece::Text(text) => segments.push(Segment::Bytes(text)),
                BodyPiece::File { path, offset, len } => match self.open(&path) {
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

/// Removes `.` and `..` from a file system path, looking only at its text: rules about a path then
/// apply to the file that is opened.
pub fn without_dots(path: &[u8]) -> Cow<'_, [u8]> {
    let is_dots = |part: &[u8]| matches!(part, b"." | b"..");
    let parts = || path.split(|&byte| byte == b'/');
    if !path.starts_with(b"/") || !parts().any(is_dots) {
        return Cow::Borrowed(path);
    }
    let mut names = Vec::new();
    for part in parts() {
        match part {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let is_folder = parts().next_back().is_some_and(|part| part.is_empty() || is_dots(part));
    let mut plain = names.into_iter().flat_map(|name| [b"/", name].concat()).collect::<Vec<_>>();
    if is_folder || plain.is_empty() {
        plain.push(b'/');
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_lead_where_their_text_says() {
        for (path, plain) in [
            ("/a/b", "/a/b"),
            ("/a//b/", "/a//b/"),
            ("/a/../b", "/b"),
            ("/a/./b", "/a/b"),
            ("/../../a", "/a"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/..", "/"),
            ("/a/../b/", "/b/"),
            ("/a/...", "/a/..."),
            ("a/../b", "a/../b"),
        ] {
            assert_eq!(without_dots(path.as_bytes()), plain.as_bytes(), "{path}");
        }
    }
}
