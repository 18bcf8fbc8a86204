//! The server's end of the control socket. Each client has a task of its own, so a stalled client
//! delays no other. At most [`MOST_CLIENTS`] are connected at a time, each for a limited time, and
//! at most [`MOST_WAITING`] wait for the end of a reload.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::runtime_folder;
use crate::{Command, ControlAnswer, MAX_COMMAND, PATIENCE};

/// Clients served at a time; further ones wait in the backlog.
const MOST_CLIENTS: usize = 16;

/// Clients that may wait for the end of a reload. They do not count as [`MOST_CLIENTS`], so other
/// clients can still query and stop the server.
const MOST_WAITING: usize = 100;

/// A client's command, and the channel for its answer.
type CommandRequest = (Command, oneshot::Sender<ControlAnswer>);

/// The commands that clients send to the control socket. Dropping this removes the socket's file.
#[derive(Debug)]
pub struct Commands {
    asked: mpsc::Receiver<CommandRequest>,
    path: Option<PathBuf>,
    /// Tells when to open the socket.
    opens: Option<oneshot::Receiver<()>>,
}

impl Commands {
    /// Opens the socket, named after this process, as soon as `told` says so. If that fails, a
    /// warning is logged, and no command arrives.
    #[must_use]
    pub fn open_when(told: oneshot::Receiver<()>) -> Self {
        let mut unopened = Self::closed();
        unopened.opens = Some(told);
        unopened
    }

    /// A source without commands.
    #[must_use]
    pub fn closed() -> Self {
        let (_, asked) = mpsc::channel(1);
        Self { asked, path: None, opens: None }
    }

    /// The next command. Waits forever if there is no socket. Cancel safe: no command is lost.
    pub async fn next(&mut self) -> CommandRequest {
        if let Some(told) = &mut self.opens {
            let told = told.await;
            self.opens = None;
            if told.is_ok() {
                *self = open();
            }
        }
        match self.asked.recv().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A left-over file does no harm: it opens nothing.
            let _ = fs::remove_file(path);
        }
    }
}

fn open() -> Commands {
    let (sender, asked) = mpsc::channel(MOST_CLIENTS);
    let Some(folder) = runtime_folder::candidates().into_iter().next() else {
        return Commands::closed();
    };
    let path = folder.join(format!("{}.sock", std::process::id()));
    let listener = runtime_folder::make(&folder).and_then(|()| {
        // A file of a killed server that had the same process id.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(listener)
    });
    match listener {
        Ok(listener) => {
            tokio::spawn(accept(listener, sender));
            Commands { asked, path: Some(path), opens: None }
        }
        Err(error) => {
            tracing::warn!(
                "{}: {error}: sendoff status, purge, reload, reopen, upgrade and stop will not work",
                path.display()
            );
            Commands::closed()
        }
    }
}

async fn accept(listener: UnixListener, commands: mpsc::Sender<CommandRequest>) {
    let room = Arc::new(Semaphore::new(MOST_CLIENTS));
    let waiting = Arc::new(Semaphore::new(MOST_WAITING));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let (commands, waiting) = (commands.clone(), Arc::clone(&waiting));
                tokio::spawn(async move { serve(client, &commands, place, &waiting).await });
            }
            Err(error) => {
                tracing::warn!(%error, "the control socket accepts no connection");
                sleep(PATIENCE).await;
            }
        }
    }
}

/// Serves a client. `place` is one of the [`MOST_CLIENTS`] places; a client that waits for a reload
/// gives it up.
async fn serve(
    mut client: UnixStream,
    commands: &mpsc::Sender<CommandRequest>,
    place: OwnedSemaphorePermit,
    waiting: &Arc<Semaphore>,
) {
    if !is_allowed(&client) {
        return;
    }
    // A client that disconnects or takes too long gets no answer.
    let Ok(Ok(line)) = timeout(PATIENCE, read_line(&mut client)).await else { return };
    let answer = match Command::parse(&line) {
        None => ControlAnswer::Failed("that is no command".to_owned()),
        Some(command) => match place_for(&command, place, waiting) {
            None => {
                ControlAnswer::Failed(format!("{MOST_WAITING} clients wait for a reload already"))
            }
            Some(_place) => {
                let (reply, replied) = oneshot::channel();
                if commands.send((command, reply)).await.is_err() {
                    return;
                }
                // The server ends and drops its end of the channel.
                let Ok(answer) = replied.await else { return };
                answer
            }
        },
    };
    let Ok(mut text) = serde_json::to_vec(&answer) else { return };
    text.push(b'\n');
    let _ = timeout(PATIENCE, client.write_all(&text)).await;
}

/// The place that a client keeps while its command runs: its present place, or one of the
/// [`MOST_WAITING`] if the command may wait for a reload; `None` if all of those are taken.
fn place_for(
    command: &Command,
    place: OwnedSemaphorePermit,
    waiting: &Arc<Semaphore>,
) -> Option<OwnedSemaphorePermit> {
    match command {
        Command::Reload | Command::Upgrade => Arc::clone(waiting).try_acquire_owned().ok(),
        Command::Status
        | Command::Purge(_)
        | Command::Warm
        | Command::Reopen
        | Command::Stop
        | Command::StopNow => Some(place),
    }
}

/// True if the client runs as our user or as root. The permissions of the folder and of the file
/// require the same.
fn is_allowed(client: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    client.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

async fn read_line(client: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::with_capacity(MAX_COMMAND);
    while !line.ends_with(b"\n") {
        if line.len() >= MAX_COMMAND || client.read_buf(&mut line).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
