//! System calls that may wait for a lock held by another process, without any time limit, although
//! they were asked not to wait.

use std::cell::OnceCell;
use std::ffi::c_int;
use std::time::Duration;

use crate::thread_timer::Timer;

/// The signal is ignored by default, so a late one does no harm.
const SIGNAL: c_int = libc::SIGURG;

thread_local! {
    static TIMER: OnceCell<Option<Timer>> = const { OnceCell::new() };
}

/// Runs `call`, which makes system calls. A system call that still sleeps after `limit` fails with
/// `EINTR`, if the kernel permits signals to interrupt it. Running code is not interrupted, however
/// long it takes. Costs two additional system calls.
pub fn within<T>(limit: Duration, call: impl FnOnce() -> T) -> T {
    TIMER.with(|timer| {
        // SAFETY: the handler makes no calls. Without SA_RESTART interrupted calls fail.
        let new = || unsafe { Timer::new(libc::CLOCK_MONOTONIC, SIGNAL, interrupt, 0) };
        let timer = timer.get_or_init(new).as_ref();
        // Setting a timer cannot fail. It repeats, because the first signal may come before the
        // system call.
        let set = |every| timer.is_some_and(|timer| timer.set(every));
        let _is_set = set(limit);
        let result = call();
        let _is_set = set(Duration::ZERO);
        result
    })
}

/// Does nothing: the existence of a handler makes the signal interrupt a sleeping system call.
extern "C" fn interrupt(_: c_int) {}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_call_that_sleeps_is_interrupted() {
        let (mut socket, _other) = UnixStream::pair().unwrap();
        for _ in 0..3 {
            let read = within(Duration::from_millis(1), || socket.read(&mut [0; 8]));
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Interrupted);
        }
    }

    #[test]
    fn other_calls_are_not() {
        let (mut socket, other) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let read = within(Duration::from_millis(1), || socket.read(&mut [0; 8]));
        assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(other);
        assert_eq!(within(Duration::ZERO, || socket.read(&mut [0; 8])).unwrap(), 0);
    }
}
