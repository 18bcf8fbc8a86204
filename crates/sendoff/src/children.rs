//! The processes that the supervisor starts.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};
use sendoff_config::{Config, LogTarget};
use tokio::process::{Child, Command};

use crate::failure::Failure;

/// The program that keeps the PHP workers; it lies beside this one.
const PHP_PROGRAM: &str = "sendoff-php";

/// What it takes to start a child process, any number of times. The child learns everything else from the configuration,
/// whose descriptor it inherits.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Name of the child in messages.
    pub(crate) name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Open in the child under the same numbers. The supervisor keeps them for the next child.
    descriptors: Vec<OwnedFd>,
    /// Whether the child's standard output is the server's. It is for the ready line and for an access log that was sent
    /// there; what another child prints goes to standard error.
    keeps_stdout: bool,
}

impl Recipe {
    /// The front: this program, as `sendoff front`.
    ///
    /// # Errors
    /// The path of this program is not known.
    pub(crate) fn front(
        config: &Config,
        sealed: OwnedFd,
        listeners: Vec<Vec<OwnedFd>>,
        pools: Vec<OwnedFd>,
        ready: OwnedFd,
        explain: Option<OwnedFd>,
    ) -> Result<Self, Failure> {
        let numbers = |fds: &[OwnedFd]| {
            fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect::<Vec<_>>().join(",")
        };
        let listener_numbers =
            listeners.iter().map(|fds| numbers(fds)).collect::<Vec<_>>().join(";");
        let mut arguments: Vec<OsString> = vec!["front".into()];
        arguments.push(option("--config-fd", sealed.as_raw_fd()));
        arguments.push(option("--listeners", listener_numbers));
        arguments.push(option("--pool-fds", numbers(&pools)));
        arguments.push(option("--ready-fd", ready.as_raw_fd()));
        arguments.extend(explain.iter().map(|fd| option("--explain-fd", fd.as_raw_fd())));
        let listeners = listeners.into_iter().flatten();
        let descriptors = listeners.chain(pools).chain([sealed, ready]).chain(explain).collect();
        let log = config.front.access_log.as_ref();
        let keeps_stdout = log.is_some_and(|log| log.to == LogTarget::Stdout);
        let (name, program) = ("front".to_owned(), this_program()?);
        Ok(Self { name, program, arguments, descriptors, keeps_stdout })
    }

    /// The PHP master of the pool with this number.
    ///
    /// # Errors
    /// Its program is missing.
    pub(crate) fn php_master(
        config: &Config,
        number: usize,
        sealed: OwnedFd,
        pool: OwnedFd,
    ) -> Result<Self, Failure> {
        let program = this_program()?.with_file_name(PHP_PROGRAM);
        if !program.is_file() {
            let program = program.display();
            return Err(Failure::System(format!(
                "{program} is missing: it belongs beside sendoff"
            )));
        }
        let arguments = vec![
            option("--config-fd", sealed.as_raw_fd()),
            option("--pool", number),
            option("--pool-fd", pool.as_raw_fd()),
        ];
        let name = match &*config.pools {
            [_] => "PHP master".to_owned(),
            pools => format!("PHP master of pool {}", pools[number].name),
        };
        let descriptors = vec![sealed, pool];
        Ok(Self { name, program, arguments, descriptors, keeps_stdout: false })
    }

    /// There will be no next child: closes what was kept for it.
    pub(crate) fn close(&mut self) {
        self.descriptors.clear();
    }

    /// Starts the child, in a process group of its own: a Ctrl-C at the terminal is for the supervisor to pass on.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn start(&self) -> Result<Child, Failure> {
        let failed = || format!("cannot start the {} ({})", self.name, self.program.display());
        let inherit = |flags| -> io::Result<()> {
            self.descriptors.iter().try_for_each(|fd| Ok(rustix::io::fcntl_setfd(fd, flags)?))
        };
        let stdout = if self.keeps_stdout {
            Stdio::inherit()
        } else {
            let stderr = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)
                .map_err(io::Error::from);
            stderr.map_err(Failure::system(failed()))?.into()
        };
        inherit(FdFlags::empty()).map_err(Failure::system(failed()))?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(stdout)
            .process_group(0)
            .spawn()
            .map_err(Failure::system(failed()));
        inherit(FdFlags::CLOEXEC).map_err(Failure::system(failed()))?;
        child
    }
}

fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::system("the path of this program is not known"))
}

fn option(name: &str, value: impl std::fmt::Display) -> OsString {
    format!("{name}={value}").into()
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
        // It may have died already, which will be noticed.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
