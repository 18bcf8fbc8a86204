//! The process that obtains certificates (`sendoff acme`). It alone reads what authorities say on the Internet; what it has obtained
//! reaches the front through the supervisor.
//!
//! Started by root it becomes the owner of the folder `acme` in the server's state folder: root, unless the operator has given the folder
//! to another user. It gives up every capability, and may not gain privileges by starting other programs.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Gid, Uid, getgid, getuid};
use rustix::thread::CapabilitySet;
use sendoff_acme::{Agent, CertificateReport, Server};
use sendoff_config::Config;
use sendoff_sys::memfd;
use sendoff_sys::process::become_user;
use sendoff_tls::{Challenge, Vault};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::front::{die_with, take};
use crate::options::OfAcme;
use crate::orders::{Reply, Socket};
use crate::rights;

/// How long the front may take to follow.
const FRONT_TIMEOUT: Duration = Duration::from_secs(20);

/// What the process tells the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromAcme {
    /// The front is to answer these challenges and no others. A pipe for its answer comes along, a `Result<(), String>`.
    Challenges(Vec<Challenge>),
    /// The front is to use other certificates. A pipe for its answer comes along, and the certificates.
    Certificates,
    /// How the certificates are. A file comes along with a list of [`CertificateReport`] in JSON.
    Report,
}

/// Obtains certificates until the supervisor ends.
///
/// # Errors
/// What the supervisor left is not usable, or the system refuses something.
pub(crate) fn run(inherited: &OfAcme) -> Result<(), Failure> {
    let supervisor = rustix::process::getppid();
    rights::hide()?;
    let config = Config::read(take(inherited.config_fd)?)
        .map_err(|error| Failure::Internal(format!("the configuration cannot be read: {error}")))?;
    crate::log::start(&config.log);
    let socket = take(inherited.supervisor_fd)?;
    sendoff_sandbox::forgo_new_privileges()
        .map_err(Failure::system("cannot give up privileges"))?;
    if getuid().is_root() {
        // If it cannot be made, the agent says so.
        let (uid, gid) = owner(&config.state.join("acme")).unwrap_or((getuid(), getgid()));
        become_user(uid, gid, CapabilitySet::empty(), || Ok(()))
            .map_err(Failure::system(format!("cannot become user {}", uid.as_raw())))?;
        rights::hide()?;
    }
    die_with(supervisor)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::system("cannot start an event loop"))?;
    runtime.block_on(async {
        let socket = Socket::new(socket).map_err(Failure::system("the supervisor's socket"))?;
        match Agent::new(config, Supervisor(socket)) {
            Some(agent) => match agent.run().await {},
            None => Err(Failure::Internal("no site asks for a certificate".to_owned())),
        }
    })
}

/// The owner of a folder, which is made if it is not there.
fn owner(folder: &Path) -> io::Result<(Uid, Gid)> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let facts = folder.metadata()?;
    Ok((Uid::from_raw(facts.uid()), Gid::from_raw(facts.gid())))
}

/// The supervisor, which passes on to the front what it is told.
struct Supervisor(Socket);

impl Supervisor {
    /// Has the front do something, and waits until it has.
    async fn ask(&self, message: &FromAcme, sealed: Option<&OwnedFd>) -> io::Result<()> {
        let (reply, pipe) = Reply::new()?;
        let descriptors: Vec<BorrowedFd<'_>> =
            std::iter::once(pipe.as_fd()).chain(sealed.map(AsFd::as_fd)).collect();
        self.0.send_one(message, &descriptors)?;
        drop(descriptors);
        drop(pipe);
        match reply.receive::<Result<(), String>>(FRONT_TIMEOUT).await {
            Ok(done) => done.map_err(io::Error::other),
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(error),
            Err(_) => Err(io::Error::other("it is being started again")),
        }
    }
}

impl Server for Supervisor {
    async fn answer(&self, challenges: &[Challenge]) -> io::Result<()> {
        self.ask(&FromAcme::Challenges(challenges.to_vec()), None).await
    }

    async fn serve(&self, vault: Vault) -> io::Result<()> {
        let sealed = vault.seal()?;
        self.ask(&FromAcme::Certificates, Some(&sealed)).await
    }

    fn report(&self, certificates: &[CertificateReport]) -> io::Result<()> {
        let text = serde_json::to_vec(certificates)?;
        let sealed = memfd::sealed(c"sendoff-report", text.len() as u64, |file| {
            File::from(file.try_clone_to_owned()?).write_all(&text)
        })?;
        self.0.send_one(&FromAcme::Report, &[sealed.as_fd()])
    }
}
