//! The process that obtains certificates (`sendoff acme`). It alone reads the answers of
//! authorities on the Internet; the certificates reach the front through the supervisor.
//!
//! If root has started the server, the process becomes the owner of the folder `acme` in the
//! server's state folder. That is root, unless the operator has given the folder to another user.
//! The process gives up every capability, and cannot gain privileges by starting other programs.

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
use tokio::runtime::{Builder, LocalOptions};

use crate::failure::Failure;
use crate::front::{die_with, take};
use crate::options::OfAcme;
use crate::orders::{Reply, Socket};
use crate::rights;

/// Time limit for the front to apply a message and to answer.
const FRONT_TIMEOUT: Duration = Duration::from_secs(20);

/// Messages of the process to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromAcme {
    /// The front is to answer these challenges and no others. A pipe for its answer, a `Result<(),
    /// String>`, comes along.
    Challenges(Vec<Challenge>),
    /// The front is to use other certificates. A pipe for its answer comes along, and the
    /// certificates.
    Certificates,
    /// The state of the certificates. A file with a list of [`CertificateReport`] in JSON comes
    /// along.
    Report,
}

/// Obtains certificates until the supervisor ends.
///
/// # Errors
/// The descriptors or the configuration left by the supervisor are unusable, or the system refuses
/// a call.
pub(crate) fn run(inherited: &OfAcme) -> Result<(), Failure> {
    let supervisor = rustix::process::getppid();
    rights::hide()?;
    let config = Config::read(take(inherited.config_fd)?)
        .map_err(|error| Failure::Internal(format!("the configuration cannot be read: {error}")))?;
    crate::log::start(&config.log);
    let socket = take(inherited.supervisor_fd)?;
    let Vault { fleet: secrets, .. } = Vault::read(take(inherited.keys_fd)?)
        .map_err(|error| Failure::Internal(format!("the secrets cannot be read: {error}")))?;
    sendoff_sandbox::forgo_new_privileges()
        .map_err(Failure::system("cannot give up privileges"))?;
    if getuid().is_root() {
        // If the folder cannot be made, the agent reports that.
        let (uid, gid) = owner(&config.state.join("acme")).unwrap_or((getuid(), getgid()));
        become_user(uid, gid, CapabilitySet::empty(), || Ok(()))
            .map_err(Failure::system(format!("cannot become user {}", uid.as_raw())))?;
        rights::hide()?;
    }
    die_with(supervisor)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(Failure::system("cannot start an event loop"))?;
    runtime.block_on(async {
        let socket = Socket::new(socket).map_err(Failure::system("the supervisor's socket"))?;
        match Agent::new(config, &secrets, Supervisor(socket)) {
            Some(agent) => match agent.run().await {},
            None => Err(Failure::Internal("no site asks for a certificate".to_owned())),
        }
    })
}

/// The owner of a folder, which is created if it is missing.
fn owner(folder: &Path) -> io::Result<(Uid, Gid)> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let facts = folder.metadata()?;
    Ok((Uid::from_raw(facts.uid()), Gid::from_raw(facts.gid())))
}

/// The supervisor, which passes messages on to the front.
struct Supervisor(Socket);

impl Supervisor {
    /// Asks the front to do something, and waits for its answer.
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
