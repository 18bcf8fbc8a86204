//! The listeners of a running event loop: it accepts connections there, and opens and closes listeners.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use sendoff_config::{ListenAddress, Listener};
use sendoff_http3_server as http3;
use sendoff_message::request::{Endpoint, Scheme};
use tokio::sync::watch;
use tokio::task::spawn_local;

use super::accept::{Admission, accept};
use super::generation::Tasks;
use super::listener::Listening;
use super::running_loop::RunningLoop;

/// Changes in the listeners of an event loop, by place.
#[derive(Debug, Clone, Default)]
pub(super) struct ListenerChanges {
    /// The remaining listeners, with their new settings.
    pub(super) kept: Vec<(usize, Listener)>,
    pub(super) new: Vec<(usize, Listener, Arc<OwnedFd>)>,
}

/// A listener, and the task that accepts its connections until this value is dropped.
pub(super) enum Accepting {
    Connections {
        listener: Rc<Listening>,
        _task: Tasks,
    },
    /// HTTP/3: the task also carries the packets of open connections, and ends with the last one.
    /// Dropping this value makes it refuse further connections.
    Quic {
        _open: watch::Sender<()>,
    },
}

impl RunningLoop {
    /// The scheme and the address of the listener in this place; `None`: it is closed, or one for
    /// HTTP/3.
    pub(super) fn address(&self, place: usize) -> Option<(Scheme, Endpoint)> {
        match self.listeners.borrow().get(&place)? {
            Accepting::Connections { listener, .. } => listener.address(),
            Accepting::Quic { .. } => None,
        }
    }

    /// Accepts connections on a socket from now on.
    ///
    /// # Errors
    /// The event loop cannot watch the socket.
    pub(super) fn listen(
        &self,
        place: usize,
        config: &Listener,
        socket: OwnedFd,
    ) -> io::Result<()> {
        let (services, lifecycle) = (Rc::clone(&self.services), Rc::clone(&self.lifecycle));
        let accepting = if let ListenAddress::Quic(address) = config.address {
            let listener = http3::Listener::new(place, socket.into())?;
            let (open, is_open) = watch::channel(());
            let admission = Admission::new(&services, &lifecycle, self.most);
            let serves = http3::serve(listener, services, lifecycle, admission, is_open);
            spawn_local(async move {
                if let Err(error) = serves.await {
                    tracing::error!(%error, "no HTTP/3 at {address}");
                }
            });
            Accepting::Quic { _open: open }
        } else {
            let listener = Rc::new(Listening::new(place, config, socket)?);
            let accepts = accept(Rc::clone(&listener), services, lifecycle, self.most);
            Accepting::Connections { listener, _task: Tasks(vec![spawn_local(accepts)]) }
        };
        self.listeners.borrow_mut().insert(place, accepting);
        Ok(())
    }

    /// Closes all listeners.
    pub(super) fn close_listeners(&self) {
        self.listeners.borrow_mut().clear();
    }

    /// Opens and closes listeners.
    pub(super) fn change_listeners(&self, ListenerChanges { kept, new }: ListenerChanges) {
        let kept: HashMap<_, _> = kept.into_iter().collect();
        let mut listeners = self.listeners.borrow_mut();
        let before = listeners.len();
        listeners.retain(|place, accepting| match kept.get(place) {
            Some(config) => {
                if let Accepting::Connections { listener, .. } = accepting {
                    listener.change(config);
                }
                true
            }
            None => false,
        });
        if listeners.len() < before {
            // No site uses the closed listeners any more: their idle connections would get no
            // answer.
            self.lifecycle.evict_all();
        }
        drop(listeners);
        for (place, config, socket) in new {
            let opened = socket.try_clone().and_then(|socket| self.listen(place, &config, socket));
            if let Err(error) = opened {
                tracing::error!(%error, address = %config.address, "an event loop cannot listen");
            }
        }
    }
}
