//! The processes that the supervisor starts.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};
use sendoff_sys::process::Account;
use tokio::process::{Child, Command};

use crate::Failure;
use crate::options::{Serve, Snapshot};

/// Makes a child process again and again from the same ingredients.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// What it is called in messages.
    pub(crate) name: &'static str,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Left open in the child, under the same numbers. The supervisor keeps them for the next child.
    descriptors: Vec<OwnedFd>,
    /// Our standard output is for the ready line and for an access log that was sent there; what else a child prints is
    /// for the log.
    keeps_stdout: bool,
}

impl Recipe {
    /// The front: this program again, with the same options.
    pub(crate) fn front(
        serve: &Serve,
        listeners: Vec<Vec<OwnedFd>>,
        pool: OwnedFd,
        ready: OwnedFd,
        account: Option<Account>,
    ) -> Result<Self, Failure> {
        let numbers = |fds: &Vec<OwnedFd>| {
            fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect::<Vec<_>>().join(",")
        };
        let listener_numbers = listeners.iter().map(numbers).collect::<Vec<_>>().join(";");
        let mut arguments: Vec<OsString> = vec!["front".into()];
        // Everything after `serve`.
        arguments.extend(std::env::args_os().skip(2));
        arguments.extend(option("--listeners", listener_numbers));
        arguments.extend(option("--pool-fd", pool.as_raw_fd()));
        arguments.extend(option("--ready-fd", ready.as_raw_fd()));
        arguments.extend(account_options(account));
        let program = std::env::current_exe().map_err(Failure::context("cannot find myself"))?;
        let descriptors = listeners.into_iter().flatten().chain([pool, ready]).collect();
        let keeps_stdout = serve.access_log.as_deref() == Some(Path::new("-"));
        Ok(Self { name: "front", program, arguments, descriptors, keeps_stdout })
    }

    /// The PHP master, which lies beside this program.
    pub(crate) fn php_master(
        serve: &Serve,
        pool: OwnedFd,
        account: Option<Account>,
    ) -> Result<Self, Failure> {
        let me = std::env::current_exe().map_err(Failure::context("cannot find myself"))?;
        let program = me.parent().unwrap_or(Path::new("/")).join("sendoff-php");
        if !program.is_file() {
            return Err(Failure(format!(
                "{} is missing: it belongs beside sendoff",
                program.display()
            )));
        }
        let mut arguments: Vec<OsString> = Vec::new();
        arguments.extend(option("--pool-fd", pool.as_raw_fd()));
        arguments.extend(option("--workers", serve.needed_workers()));
        arguments.extend(option("--links", serve.threads()));
        arguments.extend(option("--max-requests", serve.max_requests));
        arguments.extend(option(
            "--snapshot",
            match serve.snapshot {
                Snapshot::Lease => "lease",
                Snapshot::Copy => "copy",
            },
        ));
        arguments.extend(serve.php_ini.iter().flat_map(|setting| option("--php-ini", setting)));
        arguments.extend(account_options(account));
        let descriptors = vec![pool];
        Ok(Self { name: "PHP master", program, arguments, descriptors, keeps_stdout: false })
    }

    /// There will be no next child: closes what was kept for it.
    pub(crate) fn close(&mut self) {
        self.descriptors.clear();
    }

    /// Starts the child, in a process group of its own: a Ctrl-C at the terminal is for the supervisor to pass on.
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
            stderr.map_err(Failure::context(failed()))?.into()
        };
        inherit(FdFlags::empty()).map_err(Failure::context(failed()))?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(stdout)
            .process_group(0)
            .spawn()
            .map_err(Failure::context(failed()));
        inherit(FdFlags::CLOEXEC).map_err(Failure::context(failed()))?;
        child
    }
}

fn option(name: &str, value: impl std::fmt::Display) -> [OsString; 1] {
    [format!("{name}={value}").into()]
}

fn account_options(account: Option<Account>) -> Vec<OsString> {
    let options = |Account { uid, gid }| [option("--uid", uid), option("--gid", gid)].concat();
    account.map(options).unwrap_or_default()
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
        // It may have died already, which will be noticed.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
