//! System calls on a client's socket.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};
use rustix::net::{SendAncillaryBuffer, SendFlags, getpeername, sendmsg};
use sendoff_fastcgi::direct::Sent;
use sendoff_link::worker::{FRONT_TAKES, Unsent, Wire, Writing};

/// Writes the queued bytes and `data` to the client's socket, and with `is_last` the end of the
/// body. `Ok(None)`: the socket has taken everything. `Err`: the client has gone. Calls
/// `before_send` before each system call that sends.
pub(crate) fn write<'d>(
    writing: &mut Writing<OwnedFd>,
    data: &'d [u8],
    is_last: bool,
    before_send: impl Fn(),
) -> Result<Option<Unsent<'d>>, Sent> {
    let mut wire = writing.frame(data, is_last);
    let mut patience = writing.patience;
    let is_encrypted = writing.is_encrypted();
    let result = send(writing.socket(), is_encrypted, &mut wire, &mut patience, before_send);
    writing.patience = patience;
    match result {
        Ok(()) => Ok(writing.wrote(wire)),
        Err(_) => Err(writing.sent_until_gone(&wire)),
    }
}

/// Writes until the socket is full. Waits only while more is left than the front takes over.
fn send(
    socket: &OwnedFd,
    is_encrypted: bool,
    wire: &mut Wire<'_>,
    patience: &mut Duration,
    before_send: impl Fn(),
) -> rustix::io::Result<()> {
    let more = if wire.more_follows() { SendFlags::MORE } else { SendFlags::empty() };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more;
    while wire.left() > 0 {
        before_send();
        let vectors = wire.rest().map(IoSlice::new);
        match sendmsg(socket, &vectors, &mut SendAncillaryBuffer::default(), flags) {
            Ok(n) => {
                wire.advance(n);
                // A read in the front may have reported the end of the connection already. A kernel
                // that encrypts then accepts bytes without an error, one record per call (Linux
                // 6.1).
                if is_encrypted {
                    getpeername(socket)?;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if wire.left() <= FRONT_TAKES || patience.is_zero() => break,
            Err(Errno::AGAIN) => wait(socket, patience)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the socket accepts more, and subtracts the time from `patience`.
fn wait(socket: &OwnedFd, patience: &mut Duration) -> rustix::io::Result<()> {
    let since = Instant::now();
    let nanos = patience.subsec_nanos();
    let timeout = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: nanos.into() };
    let polled = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout));
    *patience = patience.saturating_sub(since.elapsed());
    match polled {
        Ok(0) => *patience = Duration::ZERO,
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Makes the kernel send the bytes that it holds back (tcp(7): setting `TCP_NODELAY` flushes).
pub(crate) fn push(writing: &mut Writing<OwnedFd>) {
    if writing.take_held_back() {
        // On a closed connection it fails, as the next write will.
        let _gone = set_tcp_nodelay(writing.socket(), true);
    }
}

/// Marks the response as incomplete: if a regular end of the connection would end the body, the
/// connection is reset instead.
pub(crate) fn cut(writing: &Writing<OwnedFd>) {
    if writing.is_ended_by_close() {
        let _gone = set_socket_linger(writing.socket(), Some(Duration::ZERO));
    }
}
