//! A check that runs every N Lua instructions and can end the running code.
//!
//! Counting doubles the cost of each instruction of Lua's virtual machine, and most scripts end
//! after few instructions. So the main coroutine of a state starts uncounted: when the thread has
//! used [`UNCOUNTED`] of processor time, a signal starts the counting. Other coroutines are counted
//! from the beginning, since a signal handler cannot know which of them is running.
//!
//! `mlua` has hooks, too. If such a hook fails, `mlua` resets the stack of the running function,
//! which calls the `__close` metamethods of its variables while hooks are off: a metamethod with an
//! endless loop would never end. An error that Lua itself raises leaves the function first.

use std::cell::{OnceCell, RefCell};
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence};
use std::time::Duration;

use mlua::{Function, Lua, ffi};
use sendoff_sys::thread_timer::Timer;

/// Returns true if the running code may continue. The arguments are the file and the line being
/// executed.
pub type Check = Rc<dyn Fn(&CStr, i32) -> bool>;

/// Number of instructions between two checks.
pub const CHECK_EVERY: u16 = 100;

/// Processor time after which instructions are counted. The kernel checks such clocks at its timer
/// ticks, so it may be 10 ms more.
const UNCOUNTED: Duration = Duration::from_millis(5);

/// The alarm for virtual time. No library uses it, because its clock is for the whole process.
const SIGNAL: c_int = libc::SIGVTALRM;

thread_local! {
    /// The check for the state that runs on this thread.
    static CHECK: RefCell<Option<Check>> = const { RefCell::new(None) };
    static TIMER: OnceCell<Option<Timer>> = const { OnceCell::new() };
    // The signal handler reads the following variables. It runs on the same thread, so program
    // order suffices; none of the three needs a destructor, so they exist at any time.
    /// The running state; null if there is none.
    static RUNNING: AtomicPtr<ffi::lua_State> = const { AtomicPtr::new(ptr::null_mut()) };
    /// True if its instructions are counted.
    static IS_COUNTED: AtomicBool = const { AtomicBool::new(false) };
    /// True if the timer sends signals.
    static IS_ARMED: AtomicBool = const { AtomicBool::new(false) };
}

/// A state whose runs are checked.
#[derive(Debug)]
pub struct Watched {
    /// The main coroutine, which lives as long as `_lua`.
    state: NonNull<ffi::lua_State>,
    _lua: Lua,
}

/// A checked run; the check ends when this is dropped.
#[derive(Debug)]
pub struct Run<'w>(&'w Watched);

impl Watched {
    /// Watches a state.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn new(lua: &Lua) -> mlua::Result<Self> {
        let mut main = ptr::null_mut();
        // SAFETY: the closure pops what it pushes, so the stack stays unchanged.
        unsafe {
            lua.exec_raw::<()>((), |state| {
                ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, ffi::LUA_RIDX_MAINTHREAD);
                main = ffi::lua_tothread(state, -1);
                ffi::lua_settop(state, -2);
            })?;
        }
        let Some(state) = NonNull::new(main) else { unreachable!("each state has one") };
        Ok(Self { state, _lua: lua.clone() })
    }

    /// Starts checking the state's running code. Only one state of a thread runs at a time.
    #[must_use]
    pub fn run(&self, check: &Check) -> Run<'_> {
        CHECK.with_borrow_mut(|current| *current = Some(Rc::clone(check)));
        RUNNING.with(|running| running.store(self.state.as_ptr(), Ordering::Relaxed));
        compiler_fence(Ordering::SeqCst);
        // From here on an alarm starts the counting.
        if !IS_ARMED.with(|armed| armed.load(Ordering::Relaxed)) {
            self.arm();
        }
        Run(self)
    }

    fn arm(&self) {
        IS_ARMED.with(|armed| armed.store(true, Ordering::Relaxed));
        compiler_fence(Ordering::SeqCst);
        let clock = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: the handler makes only async-signal-safe calls.
        let new = || unsafe { Timer::new(clock, SIGNAL, alarmed, libc::SA_RESTART) };
        let is_armed = TIMER.with(|timer| {
            timer.get_or_init(new).as_ref().is_some_and(|timer| timer.set(UNCOUNTED))
        });
        if !is_armed {
            IS_ARMED.with(|armed| armed.store(false, Ordering::Relaxed));
            count(self.state.as_ptr());
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        RUNNING.with(|running| running.store(ptr::null_mut(), Ordering::Relaxed));
        compiler_fence(Ordering::SeqCst);
        if IS_COUNTED.with(|counted| counted.swap(false, Ordering::Relaxed)) {
            // SAFETY: the state is alive. The handler no longer uses it, since it is not running
            // any more.
            unsafe { ffi::lua_sethook(self.0.state.as_ptr(), None, 0, 0) };
        }
    }
}

/// Starts counting the instructions of the running state. The signal handler also calls it,
/// repeatedly while the state runs: Lua may miss a hook that is set while it reads the hook, and a
/// few instructions may take long.
fn count(state: *mut ffi::lua_State) {
    IS_COUNTED.with(|counted| counted.store(true, Ordering::Relaxed));
    // SAFETY: the state is the one running on this thread, so it is alive. Lua documents that a
    // signal handler may call this function at any moment, as Lua's own interpreter does. The first
    // check comes at the next instruction of Lua's virtual machine, and then every `CHECK_EVERY`.
    unsafe { ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, 1) };
}

/// The signal handler: makes only async-signal-safe calls.
extern "C" fn alarmed(_: c_int) {
    let state = RUNNING.with(|running| running.load(Ordering::Relaxed));
    if !state.is_null() {
        count(state);
    }
}

/// The function `coroutine.create`, whose coroutines are counted from the beginning.
///
/// # Errors
/// Memory is exhausted.
pub fn coroutine_create(lua: &Lua) -> mlua::Result<Function> {
    // SAFETY: `create` keeps to Lua's rules for C functions.
    unsafe { lua.create_c_function(create) }
}

/// # Safety
/// Only Lua may call it, with its state.
unsafe extern "C-unwind" fn create(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua leaves room for 20 values on the stack. No value with a destructor is alive here,
    // so Lua may jump over this frame when a call fails.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        // A coroutine's count starts anew, so a script could evade the check with many short
        // coroutines. Check here, too.
        check_caller(state);
        let new = ffi::lua_newthread(state);
        ffi::lua_sethook(new, Some(hook), ffi::LUA_MASKCOUNT, c_int::from(CHECK_EVERY));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_xmove(state, new, 1);
    }
    1
}

/// Checks the running code within a C function. Does not return if the code must end.
///
/// # Safety
/// A C function called by Lua calls it with its state. No value with a destructor is alive there.
pub(crate) unsafe fn check_caller(state: *mut ffi::lua_State) {
    // SAFETY: zeroes are a valid record, which `lua_getstack` fills in if it returns 1; by the
    // caller's promise Lua may jump over the frames.
    unsafe {
        let mut active: ffi::lua_Debug = MaybeUninit::zeroed().assume_init();
        if ffi::lua_getstack(state, 1, &raw mut active) != 0 {
            hook(state, &raw mut active);
        }
    }
}

/// # Safety
/// Only Lua may call it, with its state and its record of the active function.
unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, active: *mut ffi::lua_Debug) {
    // SAFETY: both come from Lua, and `Sl` fills in the source and the line.
    let may_go_on = unsafe {
        ffi::lua_getinfo(state, c"Sl".as_ptr(), active);
        let file = CStr::from_ptr((&raw const (*active).short_src).cast());
        let check = CHECK.with_borrow(Clone::clone);
        check.is_none_or(|check| check(file, (*active).currentline))
    };
    // SAFETY: the state is alive. No value with a destructor is alive here, so Lua may jump over
    // this frame.
    unsafe {
        if !may_go_on {
            // Code that still runs, such as a `__close` method, ends at its first instruction.
            IS_COUNTED.with(|counted| counted.store(true, Ordering::Relaxed));
            ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, 1);
            ffi::luaL_error(state, c"the script has used up what it may use".as_ptr());
        }
        if ffi::lua_gethookcount(state) == 1 {
            ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, c_int::from(CHECK_EVERY));
        }
    }
}
