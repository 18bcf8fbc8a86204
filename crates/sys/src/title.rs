//! The title of this process in `ps`. Linux has no call to set it: the title overwrites the
//! arguments that the process was started with, so its length is limited to theirs.

use std::fs;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The fields of `/proc/self/stat` with the bounds of the arguments, counted after the program's
/// name (proc_pid_stat(5): 48, 49).
const BOUNDS: [usize; 2] = [45, 46];

/// The state of a worker, at the end of its title.
const IDLE: &str = "idle";
const BUSY: &str = "busy";

/// The place of the state in the title; null if the title has none.
static STATE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// The memory of this process's arguments.
struct Arguments {
    start: *mut u8,
    len: usize,
}

impl Arguments {
    /// The arguments; `None` if the kernel does not report their place.
    fn find() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let [start, end] = BOUNDS.map(|at| fields.get(at)?.parse::<usize>().ok());
        let (start, end) = (start?, end?);
        let len = end.checked_sub(start).filter(|len| *len > 0 && start != 0)?;
        Some(Self { start: std::ptr::with_exposed_provenance_mut(start), len })
    }

    /// Writes `title`, truncated to the space, and fills the rest with zeros.
    fn write(&self, title: &str) {
        for at in 0..self.len {
            let byte = title.as_bytes().get(at).filter(|_| at + 1 < self.len).copied();
            // SAFETY: the kernel has put the arguments there, on the stack of the first thread,
            // which lives as long as the process. They are read by `std::env::args` only, which the
            // callers of this module have called before. The last byte stays zero, so the C
            // library's pointers still lead to strings.
            unsafe { self.start.add(at).write_volatile(byte.unwrap_or(0)) };
        }
    }
}

/// Makes `title` the title of this process. Call it after the arguments have been read, before
/// other threads may read them. If the kernel does not report their place, the title stays
/// unchanged.
pub fn set(title: &str) {
    if let Some(arguments) = Arguments::find() {
        arguments.write(title);
    }
}

/// Like [`set`], for a worker: `, idle` or `, busy` follows, and [`set_busy`] changes it.
pub fn set_for_worker(title: &str) {
    let Some(arguments) = Arguments::find() else { return };
    let title = format!("{title}, {IDLE}");
    arguments.write(&title);
    if title.len() < arguments.len {
        // SAFETY: it is inside of the arguments, as just compared.
        let state = unsafe { arguments.start.add(title.len() - IDLE.len()) };
        STATE.store(state, Ordering::Relaxed);
    }
}

/// Shows in the title that this worker has a request, or none. Does nothing in a process without
/// such a title.
pub fn set_busy(is_busy: bool) {
    let state = STATE.load(Ordering::Relaxed);
    if state.is_null() {
        return;
    }
    for (at, byte) in (if is_busy { BUSY } else { IDLE }).bytes().enumerate() {
        // SAFETY: `set_for_worker` has found room for either word there, in memory that is never
        // freed. Other processes may read it at the same time, for `ps`; this one writes it on the
        // thread that takes requests.
        unsafe { state.add(at).write_volatile(byte) };
    }
}
