//! Responses in which an application names files for the front to send: `X-Sendfile`, `X-Accel-Redirect`, `X-ZeroCopy`.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, StatusCode};
use sendoff_config::Accel;

mod opened;
pub(super) mod ranges;

use super::error;
use crate::connection::{Asked, Client, Outcome, Request};
use crate::front::Loop;
use crate::request::decode_path;
use crate::response::CgiHead;
use crate::router::is_source;
use crate::segment::Segment;
use crate::static_files::{self, Entry, Refusal, Root, refuses};

/// The longest file name in a body (Linux: `PATH_MAX`).
const MAX_NAME: u64 = 4096;

const SENDFILE: &str = "X-Sendfile";
const ACCEL: &str = "X-Accel-Redirect";

/// Fields of the application that the file's own replace.
const OF_THE_FILE: [&str; 4] = ["last-modified", "etag", "accept-ranges", "content-range"];

/// The files that applications may name.
#[derive(Debug)]
pub(crate) struct Sendable {
    root: Folder,
    /// `--sendfile-from`.
    folders: Vec<Folder>,
    /// `--accel`: beginnings of URIs, longest first.
    prefixes: Vec<(Vec<u8>, Folder)>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    root: Root,
}

impl Folder {
    fn open(path: &Path, follow: &[PathBuf]) -> io::Result<Self> {
        let path = path.canonicalize()?;
        Ok(Self { root: Root::open(&path, follow)?, path })
    }

    /// What of `path` is beneath the folder.
    fn beneath<'a>(&self, path: &'a Path) -> Option<&'a [u8]> {
        path.strip_prefix(&self.path).ok().map(|rest| rest.as_os_str().as_bytes())
    }
}

/// Why a file is not sent.
#[derive(Debug)]
pub(super) struct Denied {
    pub(super) status: StatusCode,
    pub(super) why: String,
}

impl Denied {
    fn forbidden(why: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, why }
    }

    fn refused(name: &dyn fmt::Display, refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => {
                Self { status: StatusCode::NOT_FOUND, why: format!("{name} is not there") }
            }
            Refusal::Forbidden => Self::forbidden(format!(
                "{name} leads out of its folder, cannot be read or is no plain file"
            )),
            Refusal::Failed(error) => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                why: format!("{name} cannot be opened: {error}"),
            },
        }
    }
}

impl Sendable {
    /// Files beneath the site's root and what the options add.
    ///
    /// # Errors
    /// One of the folders cannot be opened.
    pub(crate) fn open(
        root: &Path,
        follow: &[PathBuf],
        folders: &[PathBuf],
        accel: &[Accel],
    ) -> io::Result<Self> {
        let in_folder = |folder: &Path| {
            Folder::open(folder, follow).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
            })
        };
        let mut prefixes = Vec::new();
        for Accel { prefix, folder } in accel {
            prefixes.push((prefix.as_bytes().to_vec(), in_folder(folder)?));
        }
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let folders = folders.iter().map(|folder| in_folder(folder)).collect::<Result<_, _>>()?;
        Ok(Self { root: in_folder(root)?, folders, prefixes })
    }

    /// Whether somebody has said from where files may be sent. Only then are frameworks asked to name files: what is
    /// outside would be refused, where the framework would have sent it by itself.
    pub(super) fn is_set_up(&self) -> bool {
        !self.folders.is_empty()
    }

    /// Opens the file with this absolute path.
    pub(super) fn by_path(&self, path: &[u8]) -> Result<Entry, Denied> {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let name = path.display();
        if !path.is_absolute() {
            return Err(Denied::forbidden(format!("{name} is no absolute path")));
        }
        // The application may know the folder by another name. Whatever comes out is looked up beneath the folder again.
        let real = path.canonicalize();
        for path in [Some(path), real.as_deref().ok()].into_iter().flatten() {
            for folder in &self.folders {
                if let Some(rest) = folder.beneath(path) {
                    return open(&folder.root, rest, &name);
                }
            }
            if let Some(rest) = self.root.beneath(path) {
                return self.in_root(rest, &name);
            }
        }
        let folder = path.parent().unwrap_or(path).display();
        Err(Denied::forbidden(format!(
            "{name} is outside of what may be sent; --sendfile-from {folder} would allow it"
        )))
    }

    /// Opens the file that a URI stands for.
    fn by_uri(&self, uri: &[u8]) -> Result<Entry, Denied> {
        let name = String::from_utf8_lossy(uri);
        let path = uri.split(|&b| b == b'?').next().unwrap_or_default();
        let path =
            decode_path(path).map_err(|bad| Denied::forbidden(format!("{name}: {}", bad.0)))?;
        for (prefix, folder) in &self.prefixes {
            if let Some(rest) = path.strip_prefix(&prefix[..])
                && (prefix.ends_with(b"/") || rest.starts_with(b"/"))
            {
                return open(&folder.root, rest.strip_prefix(b"/").unwrap_or(rest), &name);
            }
        }
        self.in_root(&path[1..], &name).map_err(|mut denied| {
            denied.why += "; --accel /PREFIX=DIR sends URIs from elsewhere";
            denied
        })
    }

    /// What is never sent by itself is not sent in this way either, unless its folder was named.
    fn in_root(&self, path: &[u8], name: &dyn fmt::Display) -> Result<Entry, Denied> {
        if refuses(path) || is_source(path) {
            return Err(Denied::forbidden(format!(
                "{name} is a hidden file or a script; --sendfile-from with its folder would allow it"
            )));
        }
        open(&self.root.root, path, name)
    }
}

fn open(root: &Root, path: &[u8], name: &dyn fmt::Display) -> Result<Entry, Denied> {
    Entry::open(root, path).map_err(|refusal| Denied::refused(name, refusal))
}

/// The field in which a response head names a file instead of a body, and its value.
pub(super) fn named(head: &CgiHead) -> Option<(&'static str, &Bytes)> {
    [SENDFILE, ACCEL].into_iter().find_map(|name| {
        let mut fields = head.fields.iter();
        let (_, value) = fields.find(|(field, value)| {
            field.eq_ignore_ascii_case(name.as_bytes()) && !value.is_empty()
        })?;
        Some((name, value))
    })
}

/// The file that a response head names instead of a body: as the worker has opened it, or else opened now.
pub(super) fn named_file(
    sendable: &Sendable,
    head: &CgiHead,
    opened: Option<OwnedFd>,
) -> Option<Result<Entry, Denied>> {
    let (field, value) = named(head)?;
    let by_name = |value: &[u8]| {
        if field == SENDFILE { sendable.by_path(value) } else { sendable.by_uri(value) }
    };
    Some(match opened {
        Some(opened) => sendable.opened(field == SENDFILE, value, opened, by_name(value)),
        None => by_name(value),
    })
}

/// Whether a field is for the front and not for the client.
pub(super) fn is_for_us(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"x-sendfile")
        || name.eq_ignore_ascii_case(b"x-sendfile2")
        || name.eq_ignore_ascii_case(sendoff_fastcgi::channel::CHANNEL_FIELD)
        || name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
}

/// Answers with a file that an application has named.
pub(super) async fn respond(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    request: &Request,
    head: &CgiHead,
    mut entry: Entry,
) -> io::Result<Outcome> {
    if let Some((_, media_type)) =
        head.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"content-type"))
    {
        entry.content_type = media_type.clone();
    }
    // Ranges and conditions are about what GET would give; other answers hold the file as it is.
    let reads = [Method::GET, Method::HEAD].contains(asked.method) && head.status == StatusCode::OK;
    let nothing = HeaderMap::new();
    let mut response = if reads {
        static_files::respond_with(&entry, asked.method, &request.head.headers)
    } else {
        static_files::respond_with(&entry, &Method::GET, &nothing)
    };
    if response.status.is_client_error() {
        let status = response.status;
        return error::respond_with(event_loop, client, asked, status, &response.headers).await;
    }
    let mut reason = None;
    if response.status == StatusCode::OK {
        (response.status, reason) = (head.status, head.reason.as_deref());
    }
    let replaced = |name: &[u8]| {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        OF_THE_FILE.contains(&&*name) || name == "content-type" || is_for_us(name.as_bytes())
    };
    let status = response.status;
    let keep_alive = client.begin(asked, status, reason, response.content_length, |out| {
        event_loop.common_fields_unless(out, |name| head.has(name));
        for (name, value) in head.fields.iter().filter(|(name, _)| !replaced(name)) {
            out.field(name, value);
        }
        for (name, value) in &response.headers {
            out.field(name.as_bytes(), value);
        }
    })?;
    client.finish(response.body).await?;
    Ok(Outcome { status, keep_alive })
}

/// A body with file names in it, whose places the field `X-ZeroCopy: offset/length:offset/length` gives.
#[derive(Debug)]
pub(super) struct ZeroCopy {
    /// Offset and length in the body, in order.
    names: VecDeque<(u64, u64)>,
    /// Bytes of the body seen.
    at: u64,
    /// What is there of the name that is being read.
    name: Vec<u8>,
}

impl ZeroCopy {
    /// The places that a head announces, if it announces any.
    pub(super) fn announced(head: &CgiHead) -> Option<Result<Self, &'static str>> {
        let fields = head.fields.iter();
        let (_, value) =
            fields.clone().find(|(name, _)| name.eq_ignore_ascii_case(b"x-zerocopy"))?;
        Some(Self::parse(value))
    }

    fn parse(value: &[u8]) -> Result<Self, &'static str> {
        const BAD: &str = "an invalid X-ZeroCopy";
        let text = std::str::from_utf8(value).map_err(|_| BAD)?;
        let (mut names, mut end) = (VecDeque::new(), 0);
        for place in text.split(':') {
            let (offset, length) = place.trim().split_once('/').ok_or(BAD)?;
            let number = |digits: &str| digits.parse::<u64>().map_err(|_| BAD);
            let (offset, length) = (number(offset)?, number(length)?);
            if offset < end || length == 0 || length > MAX_NAME {
                return Err(BAD);
            }
            end = offset.checked_add(length).ok_or(BAD)?;
            names.push_back((offset, length));
        }
        Ok(Self { names, at: 0, name: Vec::new() })
    }

    /// Takes bytes of the body and gives what stands for them, until there is nothing left that stands for anything yet.
    pub(super) fn next(
        &mut self,
        data: &mut Bytes,
        sendable: &Sendable,
    ) -> Result<Option<Segment>, Denied> {
        while !data.is_empty() {
            let (offset, length) = self.names.front().copied().unwrap_or((u64::MAX, 0));
            let plain = take(data, offset.saturating_sub(self.at));
            self.at += plain.len() as u64;
            if !plain.is_empty() {
                return Ok(Some(Segment::Bytes(plain)));
            }
            let piece = take(data, length - self.name.len() as u64);
            self.at += piece.len() as u64;
            self.name.extend_from_slice(&piece);
            if self.name.len() as u64 == length {
                self.names.pop_front();
                let entry = sendable.by_path(&std::mem::take(&mut self.name))?;
                if entry.size > 0 {
                    return Ok(Some(entry.segment(0, entry.size)));
                }
            }
        }
        Ok(None)
    }

    /// Whether every name has come.
    pub(super) fn is_complete(&self) -> bool {
        self.names.is_empty()
    }
}

fn take(data: &mut Bytes, limit: u64) -> Bytes {
    let len = usize::try_from(limit).unwrap_or(usize::MAX).min(data.remaining());
    data.split_to(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(block: &str) -> CgiHead {
        CgiHead::parse(&Bytes::copy_from_slice(block.as_bytes())).unwrap()
    }

    fn site() -> (tempfile::TempDir, Sendable) {
        let dir = tempfile::tempdir().unwrap();
        for (name, contents) in [
            ("root/a", "A"),
            ("root/x.php", "<?php"),
            ("root/.env", "secret"),
            ("more/b", "BB"),
            ("more/.c", "CCC"),
            ("accel/d e", "DDDD"),
            ("out/f", "no"),
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, contents).unwrap();
        }
        std::os::unix::fs::symlink("../out/f", dir.path().join("more/link")).unwrap();
        std::os::unix::fs::symlink("more", dir.path().join("alias")).unwrap();
        let accel = [Accel { prefix: "/protected".to_owned(), folder: dir.path().join("accel") }];
        let sendable =
            Sendable::open(&dir.path().join("root"), &[], &[dir.path().join("more")], &accel);
        (dir, sendable.unwrap())
    }

    fn result(opened: Result<Entry, Denied>) -> u64 {
        opened.map_or_else(|denied| denied.status.as_u16().into(), |entry| entry.size)
    }

    #[test]
    fn only_files_of_the_named_folders_are_opened() {
        let (dir, sendable) = site();
        for (name, expected) in [
            ("root/a", 1),
            ("root/x.php", 403),
            ("root/.env", 403),
            ("root/none", 404),
            ("root", 403),
            ("more/b", 2),
            ("more/.c", 3),
            ("alias/b", 2),
            ("more/link", 403),
            ("out/f", 403),
            ("more/../out/f", 403),
            ("root/../more/b", 403),
            ("moreover", 403),
        ] {
            let path = dir.path().join(name);
            let got = result(sendable.by_path(path.as_os_str().as_bytes()));
            assert_eq!(got, expected, "{name}");
        }
        assert_eq!(result(sendable.by_path(b"root/a")), 403);
        assert_eq!(result(sendable.by_path(b"/etc/passwd")), 403);
        assert_eq!(result(sendable.by_path(b"/etc/\0passwd")), 403);
        for (uri, expected) in [
            ("/a", 1),
            ("/a?x=1", 1),
            ("/x.php", 403),
            ("/protected/d%20e", 4),
            ("/protected/../a", 1),
            ("/protected", 404),
            ("/protectedd%20e", 404),
            ("/../out/f", 403),
            ("a", 403),
            ("/%2e%2e/out/f", 403),
        ] {
            assert_eq!(result(sendable.by_uri(uri.as_bytes())), expected, "{uri}");
        }
    }

    #[test]
    fn names_in_a_body_become_files_however_it_is_cut() {
        let (dir, sendable) = site();
        let (a, b) = (dir.path().join("root/a"), dir.path().join("more/b"));
        let body = format!("hello{}world{}bye", a.display(), b.display());
        let (a, b) = (a.as_os_str().len(), b.as_os_str().len());
        let field = format!("X-ZeroCopy:5/{a}:{}/{b}\r\n\r\n", 10 + a);
        for piece in [1, 3, 1000] {
            let mut places = ZeroCopy::announced(&head(&field)).unwrap().unwrap();
            let mut out = Vec::new();
            for piece in body.as_bytes().chunks(piece) {
                let mut piece = Bytes::copy_from_slice(piece);
                while let Some(segment) = places.next(&mut piece, &sendable).unwrap() {
                    let Segment::Bytes(bytes) = segment else {
                        panic!("small files are in memory")
                    };
                    out.extend_from_slice(&bytes);
                }
            }
            assert_eq!(String::from_utf8(out).unwrap(), "helloAworldBBbye");
            assert!(places.is_complete());
        }
    }

    #[test]
    fn places_must_be_in_order_and_apart() {
        for bad in ["", "5", "5/", "/5", "5/0", "5/10:6/1", "5/10:14/1", "-1/2", "0/5000"] {
            assert!(ZeroCopy::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(ZeroCopy::parse(b"18446744073709551615/2").is_err());
        assert!(ZeroCopy::parse(b"5/10: 15/1").is_ok());
        assert!(ZeroCopy::announced(&head("A: b\r\n\r\n")).is_none());
    }
}
