//! A timer that sends a signal to its thread.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

/// A timer of the thread that has made it.
#[derive(Debug)]
pub struct Timer(libc::timer_t);

impl Timer {
    /// A stopped timer of `clock`; `None` if the system has no timer left or refuses the signal.
    /// `handler` handles the signal in the whole process; `flags`: for `sigaction(2)`.
    ///
    /// # Safety
    /// `handler` makes only async-signal-safe calls.
    pub unsafe fn new(
        clock: libc::clockid_t,
        signal: c_int,
        handler: extern "C" fn(c_int),
        flags: c_int,
    ) -> Option<Self> {
        let mut timer = MaybeUninit::uninit();
        // SAFETY: zeroes are a valid `sigaction` and a valid `sigevent`; `handler` is a handler for
        // as long as the program runs; a set of signals is filled in before its use; `timer_create`
        // fills in `timer` if it returns 0.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_ONSTACK | flags;
            // The parent process may have blocked the signal.
            let mut signals = MaybeUninit::uninit();
            libc::sigemptyset(signals.as_mut_ptr());
            libc::sigaddset(signals.as_mut_ptr(), signal);
            if libc::sigaction(signal, &raw const action, ptr::null_mut()) != 0
                || libc::pthread_sigmask(libc::SIG_UNBLOCK, signals.as_ptr(), ptr::null_mut()) != 0
            {
                return None;
            }
            let mut event: libc::sigevent = MaybeUninit::zeroed().assume_init();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let made = libc::timer_create(clock, &raw mut event, timer.as_mut_ptr());
            (made == 0).then(|| Self(timer.assume_init()))
        }
    }

    /// Makes the signal come at each interval `every`; zero: never. Returns true on success.
    pub fn set(&self, every: Duration) -> bool {
        let nanoseconds = every.subsec_nanos().into();
        let seconds = libc::time_t::try_from(every.as_secs()).unwrap_or(libc::time_t::MAX);
        let time = libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer is this thread's, and the kernel copies the structure.
        unsafe { libc::timer_settime(self.0, 0, &raw const times, ptr::null_mut()) == 0 }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is this thread's, which ends.
        unsafe { libc::timer_delete(self.0) };
    }
}
