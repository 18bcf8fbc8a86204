//! Waiting until a peer that the tests have started is up.

use crate::{Client, LIMIT, Request, wait};
use std::net::{SocketAddr, TcpStream};
use std::process::Child;

/// Waits until the child answers `request` with `ours`. `None` if the child has ended, because
/// another process took the port first, or if another process answers there; the child is then
/// ended.
pub(crate) fn up(
    mut child: Child,
    addr: SocketAddr,
    request: &Request,
    ours: &str,
) -> Option<Child> {
    let mut up = false;
    wait::until(LIMIT, || {
        up = TcpStream::connect(addr).is_ok()
            && Client::connect(addr).try_ask(request).is_ok_and(|response| response.text() == ours);
        up || child.try_wait().unwrap().is_some()
    });
    if !up {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    Some(child)
}
