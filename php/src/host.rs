//! The master inside a stock PHP program, such as php-fpm, which has loaded this code as a module:
//! the functions that `host.c` calls.
#![allow(unsafe_code, reason = "functions for the C that takes over the program")]

use std::io;
use std::sync::Mutex;

use clap::Parser;
use sendoff_sys::process::exit_now;

use crate::engine::{CStartup, StartArguments};
use crate::failure::Failure;
use crate::inherited::{Inherited, take};
use crate::log::log;
use crate::prepared::Prepared;

/// The version of the server, the path of the module, and the options of the master, each a line.
/// The program's arguments are its own. (`php_host::OPTIONS` in the supervisor.)
const OPTIONS: &str = "SENDOFF_HOST";

/// The version of this module.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The master, from the moment when the program loads the module until PHP has started.
static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

/// The options from the supervisor.
///
/// # Errors
/// The module does not belong to the server.
fn options() -> Result<Inherited, Failure> {
    let missing = || Failure::Internal(format!("{OPTIONS} is missing: only sendoff starts this"));
    let text = std::env::var_os(OPTIONS).ok_or_else(missing)?;
    // Only the path may be no UTF-8.
    let text = text.to_string_lossy();
    let mut lines = text.lines();
    let (version, module) = (lines.next().unwrap_or_default(), lines.next());
    let Some(module) = module.filter(|_| version == VERSION) else {
        let module = module.unwrap_or("the module that PHP has loaded");
        return Err(Failure::System(format!(
            "{module} is of Sendoff {VERSION}, and the server of another version ({version}): \
             install both in one version, then start the server again"
        )));
    };
    Inherited::try_parse_from(["sendoff-php"].into_iter().chain(lines)).map_err(|error| {
        let error = error.to_string();
        let why = error.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Failure::System(format!(
            "{module} is of another build of Sendoff than the server ({why}): install both from \
             one build, then start the server again"
        ))
    })
}

/// Returns to the folder that the server works in. php-cgi was started in a folder without php.ini.
fn return_to_folder(inherited: &Inherited) -> Result<(), Failure> {
    let Some(number) = inherited.folder_fd else { return Ok(()) };
    let folder = take("--folder-fd", number)?;
    let result = rustix::process::fchdir(folder).map_err(io::Error::from);
    result.map_err(Failure::system("cannot enter the folder that the server works in"))
}

fn prepare() -> Result<StartArguments, Failure> {
    let inherited = options()?;
    return_to_folder(&inherited)?;
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
