//! The process that obtains certificates: kept while a site asks for one, and heard. What it says about certificates goes to the
//! front of now and into what the next one inherits.

use std::collections::VecDeque;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use sendoff_acme::{CertificateReport, is_same_work};
use sendoff_config::Config;
use sendoff_tls::Vault;

use crate::acme::FromAcme;
use crate::children::Recipe;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::orders::{Socket, ToFront, sockets};

/// The most that reports may be long, in bytes.
const MAX_REPORTS: u64 = 16 << 20;

/// What looks after certificates.
#[derive(Default)]
pub(super) struct Certificates {
    /// `None`: no site asks for a certificate.
    process: Option<Process>,
    /// How they are.
    pub(super) reports: Vec<CertificateReport>,
}

struct Process {
    kept: Kept,
    socket: Socket,
    /// What it was started with.
    config: Config,
}

/// Something that the process has said, with its descriptors.
pub(super) type Said = io::Result<(FromAcme, VecDeque<OwnedFd>)>;

impl Certificates {
    /// Starts the process if a site asks for a certificate.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn start(config: &Config) -> Result<Self, Failure> {
        let process = config.acme.as_ref().map(|_| Process::start(config)).transpose()?;
        Ok(Self { process, reports: Vec::new() })
    }

    /// Works by another configuration from now on.
    pub(super) fn follow(&mut self, config: &Config) {
        let before = self.process.as_ref().map(|process| &process.config);
        if before.map_or(config.acme.is_none(), |before| is_same_work(before, config)) {
            return;
        }
        // A running process is killed. It writes its files atomically, so none is left incomplete.
        *self = Self::start(config).unwrap_or_else(|failure| {
            tracing::error!("no certificate is obtained: {failure}");
            Self::default()
        });
    }

    /// Keeps the process running until it says something; for ever if there is none. A call that is dropped forgets nothing.
    pub(super) async fn said(&mut self) -> Said {
        let Some(Process { kept, socket, .. }) = &mut self.process else { return pending().await };
        tokio::select! {
            never = kept.keep() => match never {},
            said = socket.receive() => Ok(said?.ok_or(io::ErrorKind::UnexpectedEof)?),
        }
    }

    /// Does what the process asks for.
    pub(super) fn hear(&mut self, said: Said, front: &mut Kept) {
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

/// Reads reports from the beginning of a file.
fn read(file: File) -> io::Result<Vec<CertificateReport>> {
    let len = file.metadata()?.len().min(MAX_REPORTS);
    let mut text = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut text, 0)?;
    Ok(serde_json::from_slice(&text)?)
}

impl Process {
    fn start(config: &Config) -> Result<Self, Failure> {
        let failed = "cannot start the process for certificates";
        let (socket, theirs) = sockets().map_err(Failure::system(failed))?;
        let sealed =
            config.seal().map_err(|error| Failure::System(format!("{failed}: {error}")))?;
        let kept = Kept::start(Recipe::acme(sealed, theirs)?)?;
        Ok(Self { kept, socket, config: config.clone() })
    }
}

/// Passes something on. If the front does not run, the end of the pipe says so.
fn tell_if_any(front: &Kept, message: &ToFront, descriptors: &[&OwnedFd]) -> io::Result<()> {
    let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    front.orders().map_or(Ok(()), |orders| orders.send(message, &descriptors))
}

/// A front that is started from now on has these certificates.
fn replace(front: &mut Kept, obtained: &OwnedFd) -> io::Result<()> {
    let mut vault = Vault::read(front.recipe.keys()?)?;
    vault.replace(Vault::read(obtained.try_clone()?)?);
    front.recipe.replace_keys(vault.seal()?);
    Ok(())
}
