//! Replacement of a running supervisor by another program.

use std::future::pending;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use sendoff_control::ControlAnswer;
use tokio::sync::oneshot;

use super::state::{Supervisor, answer};
use crate::listen::Given;
use crate::systemd;
use crate::upgrade::Successor;

/// The process id of the server that has taken over, or the reason why none has.
type Taken = Result<u32, String>;

/// The channel to the client that waits for the result of its command.
type Client = oneshot::Sender<ControlAnswer>;

/// The running upgrade.
#[derive(Default)]
pub(super) struct Upgrades {
    running: Option<Pin<Box<dyn Future<Output = Taken>>>>,
    clients: Vec<Client>,
}

impl Upgrades {
    /// Starts a successor, unless one is already starting. `reloads`: a reload is running.
    pub(super) fn ask(
        &mut self,
        client: Option<Client>,
        supervisor: &mut Supervisor,
        reloads: bool,
    ) {
        self.clients.extend(client);
        if self.running.is_some() {
            return;
        }
        match supervisor.start_successor(reloads) {
            Ok(running) => self.running = Some(running),
            Err(why) => drop(self.finish(Err(why), supervisor)),
        }
    }

    /// Waits until a successor serves or has failed; forever if none is starting. Cancel safe.
    pub(super) async fn decided(&mut self) -> Taken {
        match &mut self.running {
            Some(running) => running.await,
            None => pending().await,
        }
    }

    /// Ends the upgrade. Returns true if this server must drain.
    pub(super) fn finish(&mut self, taken: Taken, supervisor: &mut Supervisor) -> bool {
        self.running = None;
        let clients = std::mem::take(&mut self.clients);
        match taken {
            Ok(pid) => {
                systemd::main_process(pid);
                // The successor removes the files.
                supervisor.files.iter_mut().for_each(|file| file.give_away());
                let says =
                    format!("upgraded: process {pid} serves now, this one finishes its responses");
                answer(clients, Ok(says));
                true
            }
            Err(why) => {
                // The successor may have replaced the file of the secret.
                if let Some(door) = &mut supervisor.door {
                    door.renew();
                }
                answer(clients, Err(format!("not upgraded, nothing has changed: {why}")));
                false
            }
        }
    }
}

impl Supervisor {
    fn start_successor(
        &mut self,
        reloads: bool,
    ) -> Result<Pin<Box<dyn Future<Output = Taken>>>, String> {
        if self.not_ready.is_some() {
            return Err("the server is not ready yet".to_owned());
        }
        if reloads {
            return Err("a reload runs; ask again when it has ended".to_owned());
        }
        let given = self.listeners_to_give()?;
        let purges = self.purges.copies().map_err(|e| format!("cannot copy a descriptor: {e}"))?;
        let successor = Successor::start()?;
        Ok(Box::pin(successor.take_over(given, purges)))
    }

    /// Duplicates of the descriptors of all listeners.
    fn listeners_to_give(&self) -> Result<Given, String> {
        let of_loops = self.front.recipe.listeners();
        let mut given = Given::default();
        let listeners = self.config.listen.iter().zip(&self.addresses).enumerate();
        for (number, (listener, address)) in listeners {
            let sockets = of_loops.iter().filter_map(|of_loop| of_loop.get(number));
            let sockets: Result<Vec<_>, _> = sockets.map(OwnedFd::try_clone).collect();
            let sockets = sockets.map_err(|error| format!("cannot copy a listener: {error}"))?;
            let owns_file = self.files.iter().any(|file| file.is_of(address));
            given.add([listener.address.clone(), address.clone()], sockets, owns_file);
        }
        Ok(given)
    }
}
