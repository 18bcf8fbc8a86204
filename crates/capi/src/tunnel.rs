//! Connections on which applications answer themselves, such as WebSockets.

use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use crate::{Handle, look, set_errno, with};

/// 1 if the client asks for another protocol, such as WebSocket, and the application may answer on
/// a connection of its own, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_has_tunnel(worker: *const Handle) -> c_int {
    // SAFETY: passed on.
    unsafe { look(worker, 0, |handle| c_int::from(handle.worker.has_tunnel())) }
}

/// Ends the request for this worker, as sendoff_finish() does, and returns the descriptor of a
/// connection to the client, which the caller owns: a UNIX stream socket that blocks. On it the
/// application sends a response in HTTP/1.1, of which the web server makes one in the client's
/// version of HTTP. If its status is 101, both sides then use the protocol that the client has
/// asked for. Returns -1 with errno ENOTSUP where sendoff_has_tunnel() returns 0, and with errno
/// EPIPE if the client has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_tunnel(worker: *mut Handle) -> c_int {
    // SAFETY: passed on.
    let result = unsafe {
        with(worker, Err(libc::EPIPE), |handle| {
            if !handle.worker.has_tunnel() {
                return Err(libc::ENOTSUP);
            }
            handle.worker.tunnel().ok_or(libc::EPIPE)
        })
    };
    match result {
        Ok(tunnel) => tunnel.into_raw_fd(),
        Err(errno) => {
            set_errno(&std::io::Error::from_raw_os_error(errno));
            -1
        }
    }
}
