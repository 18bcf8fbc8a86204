//! Supervision of the process that obtains certificates. It runs while a site asks for a
//! certificate. Its certificates go to the running front and to the credentials that the next front
//! inherits.

use std::collections::VecDeque;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use sendoff_acme::{CertificateReport, is_same_work};
use sendoff_config::Config;
use sendoff_tls::{FleetSecrets, Sealed, Vault};

use crate::acme::FromAcme;
use crate::children::Recipe;
use crate::failure::Failure;
use crate::orders::{Socket, ToFront, sockets};
use crate::supervised::SupervisedChild;

/// Maximum length of the reports in bytes.
const MAX_REPORTS: u64 = 16 << 20;

/// The process that obtains certificates, and its reports.
#[derive(Default)]
pub(super) struct Certificates {
    /// `None`: no site asks for a certificate.
    process: Option<Process>,
    /// The state of the certificates.
    pub(super) reports: Vec<CertificateReport>,
}

struct Process {
    kept: SupervisedChild,
    socket: Socket,
    /// The configuration and the secrets that the process was started with.
    config: Config,
    secrets: FleetSecrets,
}

/// A message of the process, with its descriptors.
pub(super) type AcmeMessage = io::Result<(FromAcme, VecDeque<OwnedFd>)>;

impl Certificates {
    /// Starts the process if a site asks for a certificate.
    ///
    /// # Errors
    /// The system refuses to start it, or a secret of the fleet cannot be read.
    pub(super) fn start(config: &Config) -> Result<Self, Failure> {
        let process = config.acme.as_ref().map(|_| Process::start(config)).transpose()?;
        Ok(Self { process, reports: Vec::new() })
    }

    /// Changes to another configuration.
    pub(super) fn follow(&mut self, config: &Config) {
        let is_same = |process: &Process| {
            let is_known = |secrets| secrets == process.secrets;
            is_same_work(&process.config, config) && secrets(config).is_ok_and(is_known)
        };
        if self.process.as_ref().map_or(config.acme.is_none(), is_same) {
            return;
        }
        // This kills a running process. It writes its files atomically, so none is left incomplete.
        *self = Self::start(config).unwrap_or_else(|failure| {
            tracing::error!("no certificate is obtained: {failure}");
            Self::default()
        });
    }

    /// Keeps the process running until it sends a message; waits forever if there is no process.
    /// Cancel safe: no message is lost.
    pub(super) async fn said(&mut self) -> AcmeMessage {
        let Some(Process { kept, socket, .. }) = &mut self.process else { return pending().await };
        tokio::select! {
            never = kept.keep() => match never {},
            said = socket.receive() => Ok(said?.ok_or(io::ErrorKind::UnexpectedEof)?),
        }
    }

    /// Carries out the process's request.
    pub(super) fn hear(&mut self, said: AcmeMessage, front: &mut SupervisedChild) {
        let done = said.and_then(|(message, mut descriptors)| match message {
            FromAcme::Report => {
                let file = descriptors.pop_front().ok_or(io::ErrorKind::InvalidData)?;
                self.reports = read(file.into())?;
                Ok(())
            }
            FromAcme::Challenges(challenges) => {
                let reply = descriptors.pop_front().ok_or(io::ErrorKind::InvalidData)?;
                tell_if_any(front, &ToFront::Challenges(challenges), &[&reply])
            }
            FromAcme::Certificates => {
                let reply = descriptors.pop_front().ok_or(io::ErrorKind::InvalidData)?;
                let obtained = descriptors.pop_front().ok_or(io::ErrorKind::InvalidData)?;
                replace(front, &obtained)?;
                tell_if_any(front, &ToFront::Certificates, &[&reply, &obtained])
            }
        });
        if let Err(error) = done {
            tracing::error!(%error, "what the process for certificates says cannot be followed");
        }
    }
}

/// Reads the reports in a file.
fn read(file: File) -> io::Result<Vec<CertificateReport>> {
    let len = file.metadata()?.len().min(MAX_REPORTS);
    let mut text = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut text, 0)?;
    Ok(serde_json::from_slice(&text)?)
}

impl Process {
    fn start(config: &Config) -> Result<Self, Failure> {
        let failed = "cannot start the process for certificates";
        let secrets =
            secrets(config).map_err(|error| Failure::System(format!("{failed}: {error}")))?;
        let (socket, theirs) = sockets().map_err(Failure::system(failed))?;
        let sealed =
            config.seal().map_err(|error| Failure::System(format!("{failed}: {error}")))?;
        let vault = Vault { fleet: secrets.clone(), ..Vault::default() };
        let keys = vault.seal().map_err(Failure::system(failed))?;
        let kept = SupervisedChild::start(Recipe::acme(sealed, theirs, keys)?)?;
        Ok(Self { kept, socket, config: config.clone(), secrets })
    }
}

/// Passes a message on. If the front does not run, the process learns that from its end of the
/// pipe.
fn tell_if_any(
    front: &SupervisedChild,
    message: &ToFront,
    descriptors: &[&OwnedFd],
) -> io::Result<()> {
    let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    front.orders().map_or(Ok(()), |orders| orders.send(message, &descriptors))
}

/// The secrets by which the process belongs to a fleet.
fn secrets(config: &Config) -> Result<FleetSecrets, String> {
    FleetSecrets::read(config, Sealed::Certificates)
}

/// Sets the certificates for fronts that start from now on.
fn replace(front: &mut SupervisedChild, obtained: &OwnedFd) -> io::Result<()> {
    let mut vault = Vault::read(front.recipe.keys()?)?;
    vault.replace(Vault::read(obtained.try_clone()?)?);
    front.recipe.replace_keys(vault.seal()?);
    Ok(())
}
