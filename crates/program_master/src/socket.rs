//! The listening socket of a pool with a program. No other process can connect to it by name: the
//! server removes its file as soon as it has a descriptor of the inode, through which the front
//! connects.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Maximum number of connections in the backlog. Few are ever there: the front tries one connection
/// at a time.
const BACKLOG: i32 = 511;

/// The mode lets any process connect that reaches the inode; only processes with a descriptor of it
/// can.
const ALL_MAY_CONNECT: u32 = 0o666;

/// The socket of a pool's program.
#[derive(Debug)]
pub struct PoolListener {
    /// The socket on which processes accept connections.
    pub socket: OwnedFd,
    /// The inode of the socket (`O_PATH`), to which the front connects.
    pub inode: OwnedFd,
}

impl PoolListener {
    /// Opens the socket. Its file exists in `folder` for a moment.
    ///
    /// # Errors
    /// The folder is unusable, or the system has no descriptor left.
    pub fn open_in(folder: &std::path::Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        // Short path: the folder's real name may be longer than a socket address permits.
        let path = format!("/proc/self/fd/{}/{}.pool", folder.as_raw_fd(), std::process::id());
        // A killed process with the same id may have left its file.
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
