//! The evaluation's view of a request, of the site and of its files.

use crate::cache_lines::CacheLines;
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`
    pub method: &'a [u8],
    /// The target as the client sent it: path and query.
    pub target: &'a [u8],
    /// The path, decoded and normalised.
    pub path: &'a [u8],
    /// The query: the text behind the first `?` of the target.
    pub query: Option<&'a [u8]>,
    /// `HTTP/1.1`
    pub protocol: &'a [u8],
    /// True if the client's connection uses TLS, or a trusted proxy says so.
    pub https: bool,
    /// The host that the client named, without a port.
    pub host: &'a [u8],
    /// The port that the client named, if any.
    pub port: Option<u16>,
    /// The server's address of the connection.
    pub server: SocketAddr,
    /// The client's address.
    pub client: SocketAddr,
    /// The request's header fields.
    pub fields: &'a dyn Fields,
    /// The time of the request.
    pub now: SystemTime,
    /// The user, once the server has verified the credentials for
    /// [`Answer::Authenticate`](crate::Answer).
    pub user: Option<VerifiedUser<'a>>,
    /// The failed response, if this request is for its error document.
    pub error: Option<Failed<'a>>,
}

/// A user name whose password the server has verified.
#[derive(Debug, Clone, Copy)]
pub struct VerifiedUser<'a> {
    /// The path of the file with the name.
    pub users: &'a [u8],
    /// The name.
    pub name: &'a [u8],
}

/// A failed response, which gets an error document.
#[derive(Debug, Clone, Copy)]
pub struct Failed<'a> {
    /// Its status.
    pub status: u16,
    /// The method of the request that failed.
    pub method: &'a [u8],
    /// The path that failed.
    pub path: &'a [u8],
    /// Its query.
    pub query: Option<&'a [u8]>,
    /// The environment of the failed request's outcome.
    pub environment: &'a [(Vec<u8>, Vec<u8>)],
}

/// The header fields of a request.
pub trait Fields {
    /// The value of a field, without regard to the name's case; several fields of a name are joined
    /// by `, `.
    fn get(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// Calls `each` with every name and value.
    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8]));
}

impl fmt::Debug for dyn Fields + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fields")
    }
}

/// The site that a request is for.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The site's folder: an absolute path without a slash at its end.
    pub root: &'a [u8],
    /// Names of index files, in order.
    pub index: &'a [Vec<u8>],
    /// True for the name of a PHP script.
    pub is_script: &'a dyn Fn(&[u8]) -> bool,
    /// The media type of an ending, which is passed without its dot and in lower case.
    pub media_type: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// Lists folders without an index file, unless a file decides otherwise.
    pub listing: bool,
    /// `SERVER_SOFTWARE`
    pub software: &'a [u8],
    /// `SERVER_ADMIN`
    pub admin: &'a [u8],
    /// The treatment of lines for LiteSpeed's page cache.
    pub cache_lines: CacheLines,
}

impl fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("root", &String::from_utf8_lossy(self.root))
            .finish_non_exhaustive()
    }
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A pipe, a socket, a device.
    Other,
}

/// A file, folder or other object, after symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileInfo {
    /// The kind.
    pub kind: Kind,
    /// The size of a file, in bytes.
    pub size: u64,
    /// True if the server may execute it.
    pub executable: bool,
}

/// The file system. Paths are absolute. Files that the server may not look at do not exist.
pub trait Look {
    /// The object at a path, which may end with a slash.
    fn look(&self, path: &[u8]) -> Option<FileInfo>;
    /// True if a path is itself a symbolic link.
    fn is_link(&self, path: &[u8]) -> bool;
    /// True if a path is itself a symbolic link that leads nowhere, or to a file or folder of
    /// another owner than the link's.
    fn is_foreign_link(&self, path: &[u8]) -> bool;
    /// The contents of a file with the members of groups; `None` if it is unreadable.
    fn groups(&self, path: &[u8]) -> Option<Vec<u8>>;
    /// The processor time of the calling thread so far. An evaluation that uses too much of it
    /// ends.
    fn processor_time(&self) -> Duration;
}
