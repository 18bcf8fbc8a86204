//! The listening socket of a pool with a program. It has no name that another process could connect to: its file is removed as soon as
//! there is a descriptor of the inode, by which the front connects.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::runtime_folder;

/// Connections that may wait for a process. The front makes few that wait: it tries them one at a time.
const BACKLOG: i32 = 511;

/// Any process that reaches the inode may connect: none does but those that get a descriptor of it.
const ALL_MAY_CONNECT: u32 = 0o666;

/// The socket of a pool's program.
#[derive(Debug)]
pub(crate) struct PoolListener {
    /// Where processes accept connections.
    pub(crate) socket: OwnedFd,
    /// Its inode (`O_PATH`), where the front connects to.
    pub(crate) inode: OwnedFd,
}

impl PoolListener {
    /// Listens.
    ///
    /// # Errors
    /// The runtime folder cannot be used, or there is no descriptor.
    pub(crate) fn open() -> io::Result<Self> {
        let folder = runtime_folder::candidates().into_iter().next();
        let folder = folder.ok_or_else(|| io::Error::other("there is no folder for sockets"))?;
        let in_folder = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
        };
        runtime_folder::make(&folder).map_err(in_folder)?;
        Self::open_in(&folder).map_err(in_folder)
    }

    fn open_in(folder: &std::path::Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        // The name of the folder may be longer than that of a socket can be.
        let path = format!("/proc/self/fd/{}/{}.pool", folder.as_raw_fd(), std::process::id());
        // A process of this number may have died before it removed its own.
        let _missing = fs::remove_file(&path);
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        let inode = fs::set_permissions(&path, fs::Permissions::from_mode(ALL_MAY_CONNECT))
            .and_then(|()| {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Ok(rustix::fs::open(&path, flags, Mode::empty())?)
            });
        fs::remove_file(&path)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { socket, inode: inode? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn only_the_inode_leads_there() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("a".repeat(200));
        fs::create_dir(&long).unwrap();
        let PoolListener { socket, inode } = PoolListener::open_in(&long).unwrap();
        assert_eq!(long.read_dir().unwrap().count(), 0);
        let connected = UnixStream::connect(format!("/proc/self/fd/{}", inode.as_raw_fd()));
        let ours = connected.unwrap();
        let (theirs, _) = UnixListener::from(socket).accept().unwrap();
        drop(theirs);
        assert_eq!(io::Read::read(&mut &ours, &mut [0]).unwrap(), 0);
    }
}
