//! The master inside a stock PHP program, such as php-fpm, which has loaded this code as a module:
//! the functions that `host.c` calls.
#![allow(unsafe_code, reason = "functions for the C that takes over the program")]

use std::sync::Mutex;

use clap::Parser;
use sendoff_sys::process::exit_now;

use crate::engine::{CStartup, StartArguments};
use crate::failure::Failure;
use crate::inherited::Inherited;
use crate::log::log;
use crate::prepared::Prepared;

/// The options of the master, separated by spaces. The program's arguments are its own.
/// (`php_host::OPTIONS` in the supervisor.)
const OPTIONS: &str = "SENDOFF_HOST";

/// The master, from the moment when the program loads the module until PHP has started.
static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

fn prepare() -> Result<StartArguments, Failure> {
    let options = std::env::var(OPTIONS);
    let options = options.map_err(|error| Failure::Internal(format!("{OPTIONS}: {error}")))?;
    let inherited =
        Inherited::try_parse_from(["sendoff-php"].into_iter().chain(options.split(' ')))
            .map_err(|error| Failure::Internal(format!("{OPTIONS}: {error}")))?;
    let prepared = Prepared::new(&inherited)?;
    let arguments = prepared.arguments()?.ok_or(Failure::Php)?;
    if let Ok(mut place) = PREPARED.lock() {
        *place = Some(prepared);
    }
    Ok(arguments)
}

fn end(result: Result<(), Failure>) -> ! {
    match result {
        Ok(()) => exit_now(0),
        Err(failure) => {
            log(&failure);
            exit_now(failure.exit_code().into())
        }
    }
}

/// Does what comes before the start of PHP's extensions. Returns the arguments of PHP's start, which
/// are valid until the process ends. Ends the process after an error.
#[unsafe(no_mangle)]
extern "C" fn sendoff_host_prepare() -> *const CStartup {
    match prepare() {
        Ok(arguments) => Box::leak(Box::new(arguments)).as_ptr(),
        Err(failure) => end(Err(failure)),
    }
}

/// Keeps workers, and ends the process. `has_started`: PHP has not refused its settings.
#[unsafe(no_mangle)]
extern "C" fn sendoff_host_run(has_started: bool) -> ! {
    let prepared = PREPARED.lock().ok().and_then(|mut place| place.take());
    let not_prepared = || Failure::Internal("PHP has started before its master".to_owned());
    end(prepared.ok_or_else(not_prepared).and_then(|prepared| {
        prepared.show_title();
        if has_started { prepared.keep_workers() } else { Err(Failure::Php) }
    }))
}
