//! The front's registration of processes that open links themselves.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use bytes::BytesMut;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, send,
    socket_with,
};
use sendoff_fastcgi::channel::{Announcement, REGISTERED, Registration, Secret};
use sendoff_worker::Worker;

use super::Link;

pub const TOKEN: Secret = Secret([3; 16]);

/// A front that waits for registrations.
pub struct Registry {
    pub socket: OwnedFd,
    name: String,
}

impl Registry {
    pub fn new(test: &str) -> Self {
        let name = format!("sendoff-test-{}-{test}", std::process::id());
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        Self { socket, name }
    }

    pub fn announcement(&self, link: u8, claim: u8) -> Announcement {
        let claim = Secret([claim; 16]);
        Announcement { name: self.name.clone(), token: TOKEN, links: 2, link, claim }
    }

    /// Registers a worker; returns it with the front's ends of its links and guard.
    pub fn register(&self) -> (Worker, Vec<Link>, OwnedFd) {
        let announcement = self.announcement(0, 0);
        let process = std::thread::spawn(move || Worker::register(&announcement).unwrap());
        let (links, guard) = self.take();
        (process.join().unwrap(), links, guard)
    }

    /// Accepts the next registration.
    pub fn take(&self) -> (Vec<Link>, OwnedFd) {
        let peer = accept(&self.socket).unwrap();
        let (mut message, mut fds) = (BytesMut::with_capacity(100), VecDeque::new());
        sendoff_sys::fdpass::receive(peer.as_fd(), &mut message, &mut fds).unwrap();
        let expected = Registration { token: TOKEN, pid: std::process::id(), links: 2 };
        assert_eq!(Registration::decode(&message), Some(expected));
        assert_eq!(fds.len(), 3);
        let guard = fds.pop_back().unwrap();
        send(&peer, &[REGISTERED], SendFlags::NOSIGNAL).unwrap();
        (fds.into_iter().map(|link| Link::new(link.into())).collect(), guard)
    }
}
