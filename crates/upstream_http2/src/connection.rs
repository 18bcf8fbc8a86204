//! One connection to a host, and the places on it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use sendoff_upstream::error::UpstreamError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use crate::{error, settings};

/// A connection. A task of its event loop moves its frames until it has ended, or until no request
/// is on it and this value is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    requests: SendRequest<Bytes>,
    usage: Mutex<Usage>,
    /// Streams that were reset before their end.
    resets: AtomicUsize,
    /// No further request can be on it.
    has_retired: Arc<AtomicBool>,
    /// The requests that wait for a place on any connection of the event loop.
    room: Arc<Notify>,
}

#[derive(Debug)]
struct Usage {
    /// Requests on the connection.
    open: usize,
    /// The time at which a request last left it.
    left: Instant,
}

impl Connection {
    /// Begins HTTP/2 on a byte stream, by prior knowledge (RFC 9113 §3.3) or after ALPN, and waits
    /// for the host's `SETTINGS`, its first frame: a stream beyond the number that it allows would
    /// wait in h2 for the end of another one. `permit` is dropped when the connection has ended.
    pub(crate) async fn new(
        io: impl AsyncRead + AsyncWrite + Unpin + 'static,
        room: Arc<Notify>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Arc<Self>, UpstreamError> {
        let begun = settings::builder().handshake(io).await;
        let (requests, mut connection) = begun.map_err(|error| error::of_handshake(&error))?;
        let has_retired = Arc::<AtomicBool>::default();
        let (retired, waiting) = (Arc::clone(&has_retired), Arc::clone(&room));
        let (tell, told) = oneshot::channel();
        let mut tell = Some(tell);
        let mut driver = move |cx: &mut Context<'_>| {
            let polled = Pin::new(&mut connection).poll(cx);
            let is_allowed = connection.max_concurrent_send_streams() > settings::STREAMS_AT_FIRST;
            match (&polled, is_allowed) {
                (Poll::Ready(Err(error)), _) => {
                    tracing::debug!(%error, "an HTTP/2 connection to an application ended");
                    tell.take().map(|tell| tell.send(Err(error::of_handshake(error))));
                }
                (_, true) => drop(tell.take().map(|tell| tell.send(Ok(())))),
                (_, false) => {}
            }
            polled.map(drop)
        };
        tokio::task::spawn_local(async move {
            poll_fn(&mut driver).await;
            drop(driver);
            retired.store(true, Ordering::Relaxed);
            waiting.notify_waiters();
            drop(permit);
        });
        match timeout(settings::SETTINGS_WAIT, told).await {
            Ok(Ok(allowed)) => allowed?,
            Ok(Err(_)) => return Err(error::without_settings("it closed the connection")),
            Err(_) => return Err(error::without_settings("it allowed no stream in time")),
        }
        let usage = Mutex::new(Usage { open: 0, left: Instant::now() });
        Ok(Arc::new(Self { requests, usage, resets: AtomicUsize::new(0), has_retired, room }))
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more request; `None`: the connection is full.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let most = self.requests.current_max_send_streams().min(settings::STREAMS);
        let mut usage = self.usage();
        if usage.open >= most {
            return None;
        }
        usage.open += 1;
        Some(Place(Arc::clone(self)))
    }

    /// True if no request has been on the connection for this time.
    pub(crate) fn was_idle_for(&self, time: Duration) -> bool {
        let usage = self.usage();
        usage.open == 0 && usage.left.elapsed() >= time
    }

    pub(crate) fn has_retired(&self) -> bool {
        self.has_retired.load(Ordering::Relaxed)
    }
}

/// The place of one request on a connection. Dropping it gives the place to another request.
#[derive(Debug)]
pub(crate) struct Place(Arc<Connection>);

impl Place {
    /// The handle that begins the request's stream.
    pub(crate) fn requests(&self) -> SendRequest<Bytes> {
        self.0.requests.clone()
    }

    /// Notes that the request's stream is reset before its end. The connection retires if that has
    /// happened often, before the host ends it.
    pub(crate) fn note_reset(&self) {
        if self.0.resets.fetch_add(1, Ordering::Relaxed) + 1 >= settings::RESETS {
            self.retire();
        }
    }

    /// Lets no further request onto the connection. Requests on it go on.
    pub(crate) fn retire(&self) {
        self.0.has_retired.store(true, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut usage = self.0.usage();
        usage.open -= 1;
        usage.left = Instant::now();
        drop(usage);
        self.0.room.notify_one();
    }
}
