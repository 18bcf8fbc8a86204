//! Processes that scenarios start: their end, and their output.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::{LIMIT, php_extensions, wait};

/// A command whose process gets a signal when the thread that starts it ends. PHP in it loads the
/// extensions that the scenarios use.
pub fn dies_with_us(program: &Path, signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal, "--"]).arg(program);
    if let Some(folder) = php_extensions::folder() {
        command.env(php_extensions::SCANNED, folder);
    }
    command
}

/// Appends the contents of `source` to `log`, until its end.
pub(crate) fn collect_into(
    log: &Arc<Mutex<String>>,
    mut source: impl Read + Send + 'static,
) -> JoinHandle<()> {
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            log.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    })
}

/// Waits for the end of a process.
///
/// # Panics
/// If it does not end within two times [`LIMIT`]; it is killed then.
pub(crate) fn exit_status(child: &mut Child, who: &str) -> ExitStatus {
    let mut status = None;
    wait::until(2 * LIMIT, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap_or_else(|| {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{who} did not end")
    })
}
