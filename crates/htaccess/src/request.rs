//! What the evaluation sees of a request, of the site and of its files.

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
    /// What follows the first `?` of the target.
    pub query: Option<&'a [u8]>,
    /// `HTTP/1.1`
    pub protocol: &'a [u8],
    /// Whether the client came over TLS, or a trusted proxy says so.
    pub https: bool,
    /// The host that the client asked for, without a port.
    pub host: &'a [u8],
    /// The port that the client asked for, if it named one.
    pub port: Option<u16>,
    /// Where the connection was accepted.
    pub server: SocketAddr,
    /// The client.
    pub client: SocketAddr,
    /// The request's header fields.
    pub fields: &'a dyn Fields,
    /// The time of the request.
    pub now: SystemTime,
    /// Who the client is, once the server has verified what [`Answer::Authenticate`](crate::Answer) asked for.
    pub user: Option<Identity<'a>>,
    /// The response that an error document is made for.
    pub error: Option<Failed<'a>>,
}

/// A name whose password the server has verified.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The file that the name stands in.
    pub users: &'a [u8],
    /// The name.
    pub name: &'a [u8],
}

/// A response that gets an error document.
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
    /// The environment of the outcome that failed.
    pub environment: &'a [(Vec<u8>, Vec<u8>)],
}

/// The header fields of a request.
pub trait Fields {
    /// The value of a field, without regard to the name's case; several fields of a name are joined by `, `.
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
    /// Names of the files that stand for their folder.
    pub index: &'a [Vec<u8>],
    /// Whether a file of this name is a PHP script.
    pub is_script: &'a dyn Fn(&[u8]) -> bool,
    /// The media type of an ending, which is given without its dot and in small letters.
    pub media_type: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// Whether folders without an index file are listed unless a file says otherwise.
    pub listing: bool,
    /// `SERVER_SOFTWARE`
    pub software: &'a [u8],
    /// `SERVER_ADMIN`
    pub admin: &'a [u8],
}

impl fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("root", &String::from_utf8_lossy(self.root))
            .finish_non_exhaustive()
    }
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A pipe, a socket, a device.
    Other,
}

/// A file, a folder or something else, symbolic links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file.
    pub size: u64,
    /// Whether the server may execute it.
    pub executable: bool,
}

/// The file system. Paths are absolute. What the server may not look at does not exist.
pub trait Look {
    /// What is at a path, which may end with a slash.
    fn look(&self, path: &[u8]) -> Option<Found>;
    /// Whether a path is itself a symbolic link.
    fn is_link(&self, path: &[u8]) -> bool;
    /// The contents of a file that names the members of groups; `None`: it cannot be read.
    fn groups(&self, path: &[u8]) -> Option<Vec<u8>>;
    /// The processor time that the calling thread has used so far. Rules that use too much of it end.
    fn processor_time(&self) -> Duration;
}
