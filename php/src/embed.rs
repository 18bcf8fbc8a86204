//! The start of libphp in this process.
#![allow(unsafe_code, reason = "the call into the C that starts libphp")]

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;

use sendoff_config::php_ini;
use sendoff_php::{CStartup, StartArguments};

unsafe extern "C" {
    fn sendoff_php_startup(start: *const CStartup, ini_dir: *const c_char) -> c_int;
}

/// Starts PHP. False: PHP has refused, and written the reason to standard error.
pub(crate) fn start(arguments: &StartArguments) -> bool {
    let Ok(folder) = CString::new(php_ini::folder().into_os_string().into_vec()) else {
        return false;
    };
    // SAFETY: the arguments and the path live through the call, which copies what it keeps. It is
    // called once, before this process has a second thread.
    unsafe { sendoff_php_startup(arguments.as_ptr(), folder.as_ptr()) == 0 }
}
