//! System calls that may wait for a lock held by another process, without any time limit, although
//! they were asked not to wait.

use std::cell::OnceCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::LazyLock;
use std::time::Duration;

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
        let timer = timer.get_or_init(Timer::new).as_ref();
        // The timer repeats, because the first signal may come before the system call.
        timer.into_iter().for_each(|timer| timer.set(limit));
        let result = call();
        timer.into_iter().for_each(|timer| timer.set(Duration::ZERO));
        result
    })
}

/// Does nothing: the existence of a handler makes the signal interrupt a sleeping system call.
extern "C" fn interrupt(_: c_int) {}

/// A timer that sends the signal to its thread.
struct Timer(libc::timer_t);

impl Timer {
    /// A stopped timer; `None` if the system has no timer left or refuses the signal.
    fn new() -> Option<Self> {
        static IS_HANDLED: LazyLock<bool> = LazyLock::new(|| {
            // SAFETY: zeroes are a valid `sigaction`, and `interrupt` is a handler for as long as
            // the program runs.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = interrupt as extern "C" fn(c_int) as libc::sighandler_t;
                // Without SA_RESTART, so that interrupted calls fail.
                action.sa_flags = libc::SA_ONSTACK;
                libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) == 0
            }
        });
        if !*IS_HANDLED {
            return None;
        }
        let mut timer = MaybeUninit::uninit();
        // SAFETY: zeroes are a valid `sigevent`, and a set of signals is filled in before its use;
        // `timer_create` fills in `timer` if it returns 0.
        unsafe {
            let mut signals = MaybeUninit::uninit();
            libc::sigemptyset(signals.as_mut_ptr());
            libc::sigaddset(signals.as_mut_ptr(), SIGNAL);
            if libc::pthread_sigmask(libc::SIG_UNBLOCK, signals.as_ptr(), ptr::null_mut()) != 0 {
                return None;
            }
            let mut event: libc::sigevent = MaybeUninit::zeroed().assume_init();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            let made =
                libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr());
            (made == 0).then(|| Self(timer.assume_init()))
        }
    }

    /// Makes the signal come at each interval `every`; zero: never.
    fn set(&self, every: Duration) {
        let nanoseconds = every.subsec_nanos().into();
        let seconds = libc::time_t::try_from(every.as_secs()).unwrap_or(libc::time_t::MAX);
        let time = libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer is this thread's, and the kernel copies the structure. It cannot fail
        // with a valid time.
        let _cannot_fail =
            unsafe { libc::timer_settime(self.0, 0, &raw const times, ptr::null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is this thread's, which ends.
        unsafe { libc::timer_delete(self.0) };
    }
}

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
