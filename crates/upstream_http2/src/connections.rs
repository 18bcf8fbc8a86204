//! The connections to one host.

use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use sendoff_upstream::error::{Retry, UpstreamError};
use sendoff_upstream::queue::QueueLimits;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::alone::AloneConnections;
use crate::connection::{Connection, Place};
use crate::request::{Http2Request, Sharing};
use crate::settings;
use crate::stream::Http2Stream;

/// The connections of all event loops to one host.
#[derive(Debug, Default)]
pub struct Connections {
    loops: Mutex<Vec<LoopConnections>>,
    alone: AloneConnections,
    /// Requests that wait for a place.
    waiting: AtomicUsize,
    limits: QueueLimits,
}

/// The shared connections of one event loop.
#[derive(Debug)]
struct LoopConnections {
    thread: ThreadId,
    open: Vec<Arc<Connection>>,
    /// The connection that is being made; sends the reason if it fails.
    attempt: Option<watch::Receiver<Option<UpstreamError>>>,
    /// Notified when a place becomes free.
    room: Arc<Notify>,
}

/// The next step of a request that looks for a place.
enum Step<'c> {
    Enter(Place),
    Connect(Attempt<'c>),
    /// Another request makes a connection.
    Follow(watch::Receiver<Option<UpstreamError>>),
    /// All connections are full.
    Wait(Arc<Notify>),
}

impl Connections {
    /// Begins a request on a connection of this event loop, or on one of its own. If there is none,
    /// `connect` makes a byte stream to the host.
    ///
    /// # Errors
    /// The host cannot be reached, or its connections have no place in time.
    pub async fn begin<T: AsyncRead + AsyncWrite + Unpin + 'static>(
        &self,
        request: &Rc<Http2Request>,
        connect: impl AsyncFn() -> Result<T, UpstreamError>,
    ) -> Result<Http2Stream, UpstreamError> {
        let mut offers = 0;
        loop {
            let place = match request.sharing() {
                Sharing::Alone => self.alone.place(&connect).await?,
                Sharing::Shared => match self.step() {
                    Step::Enter(place) => place,
                    other => self.place(other, &connect).await?,
                },
            };
            offers += 1;
            match Http2Stream::begin(place, request).await {
                Err(error) if error.retry() == Retry::Safe && offers < settings::OFFERS => {}
                result => return result,
            }
        }
    }

    /// Closes connections that have been idle for too long. To be called now and then.
    pub fn close_idle(&self) {
        for connections in &mut *self.loops() {
            connections.open.retain(|connection| {
                !connection.has_retired() && !connection.was_idle_for(settings::IDLE_TIME)
            });
        }
    }

    fn loops(&self) -> MutexGuard<'_, Vec<LoopConnections>> {
        // A panic elsewhere cannot leave the list inconsistent.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `with` with the connections of this event loop.
    fn with_own<R>(&self, with: impl FnOnce(&mut LoopConnections) -> R) -> R {
        let thread = thread::current().id();
        let mut loops = self.loops();
        let at = loops.iter().position(|connections| connections.thread == thread);
        let at = at.unwrap_or_else(|| {
            let (open, attempt, room) = (Vec::new(), None, Arc::default());
            loops.push(LoopConnections { thread, open, attempt, room });
            loops.len() - 1
        });
        with(&mut loops[at])
    }

    fn step(&self) -> Step<'_> {
        self.with_own(|own| {
            own.open.retain(|connection| !connection.has_retired());
            if let Some(place) = own.open.iter().find_map(Connection::enter) {
                return Step::Enter(place);
            }
            if let Some(attempt) = &own.attempt {
                return Step::Follow(attempt.clone());
            }
            if own.open.len() >= settings::CONNECTIONS {
                return Step::Wait(Arc::clone(&own.room));
            }
            let (tell, told) = watch::channel(None);
            own.attempt = Some(told);
            Step::Connect(Attempt { of: self, room: Arc::clone(&own.room), tell })
        })
    }

    /// Waits for a place, in the order of the steps, for as long as the queue allows.
    async fn place<T: AsyncRead + AsyncWrite + Unpin + 'static>(
        &self,
        mut step: Step<'_>,
        connect: &impl AsyncFn() -> Result<T, UpstreamError>,
    ) -> Result<Place, UpstreamError> {
        let _waiting = self.limits.enter(&self.waiting)?;
        let found = async {
            loop {
                match step {
                    Step::Enter(place) => return Ok(place),
                    Step::Connect(attempt) => attempt.make(connect).await?,
                    Step::Follow(mut attempt) => {
                        // An attempt that succeeds, or is given up, sends nothing.
                        if attempt.changed().await.is_ok()
                            && let Some(error) = attempt.borrow().clone()
                        {
                            return Err(error);
                        }
                    }
                    Step::Wait(room) => room.notified().await,
                }
                step = self.step();
            }
        };
        let late = |_| Err(UpstreamError::wait_timed_out(&self.limits));
        timeout(self.limits.wait, found).await.unwrap_or_else(late)
    }
}

/// A connection that is being made for all requests of an event loop that wait for one. Dropping it
/// lets another request make it.
struct Attempt<'c> {
    of: &'c Connections,
    room: Arc<Notify>,
    tell: watch::Sender<Option<UpstreamError>>,
}

impl Attempt<'_> {
    async fn make<T: AsyncRead + AsyncWrite + Unpin + 'static>(
        self,
        connect: &impl AsyncFn() -> Result<T, UpstreamError>,
    ) -> Result<(), UpstreamError> {
        let made = match connect().await {
            Ok(io) => Connection::new(io, Arc::clone(&self.room), None).await,
            Err(error) => Err(error),
        };
        let connection = made.inspect_err(|error| {
            self.tell.send_replace(Some(error.clone()));
        })?;
        self.of.with_own(|own| own.open.push(connection));
        Ok(())
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.of.with_own(|own| own.attempt = None);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::Ordering;

    use http::Request;
    use sendoff_message::request::Body;
    use sendoff_upstream::error::UpstreamErrorKind;
    use tokio::io::{AsyncWriteExt, DuplexStream};
    use tokio::task::{LocalSet, yield_now};
    use tokio::time::Instant;

    use super::*;
    use crate::request::RequestTrailers;

    fn request() -> Rc<Http2Request> {
        let head = Request::get("http://a.test/").body(()).unwrap();
        Rc::new(Http2Request::new(head, Body::default(), RequestTrailers::None))
    }

    #[tokio::test]
    async fn requests_that_wait_for_a_connection_share_its_failure() {
        let (connections, attempts) = (Connections::default(), Cell::new(0));
        let connect = async || -> Result<DuplexStream, UpstreamError> {
            attempts.set(attempts.get() + 1);
            yield_now().await;
            let kind = UpstreamErrorKind::Unreachable;
            Err(UpstreamError::new(kind, Retry::Unsafe, "it is away"))
        };
        let request = request();
        let begin = || connections.begin(&request, &connect);
        let (one, two, three) = tokio::join!(begin(), begin(), begin());
        for result in [one, two, three] {
            assert_eq!(result.unwrap_err().kind(), UpstreamErrorKind::Unreachable);
        }
        assert_eq!((attempts.get(), connections.waiting.load(Ordering::Relaxed)), (1, 0));
        // The next request tries again.
        assert!(begin().await.is_err());
        assert_eq!(attempts.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_allows_no_request_gets_none() {
        let connections = Connections::default();
        let peers = RefCell::new(Vec::new());
        let connect = async || {
            let (ours, peer) = tokio::io::duplex(64 * 1024);
            peers.borrow_mut().push(peer);
            Ok(ours)
        };
        let begun = Instant::now();
        let error = LocalSet::new().run_until(connections.begin(&request(), &connect)).await;
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (UpstreamErrorKind::Unreachable, Retry::Safe));
        assert_eq!(begun.elapsed(), settings::SETTINGS_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_share_a_connection_that_ends_when_it_is_idle() {
        let (connections, peers) = (Connections::default(), Mutex::new(Vec::new()));
        let connect = async || {
            let (ours, mut peer) = tokio::io::duplex(64 * 1024);
            peer.write_all(&settings::UNLIMITED).await.unwrap();
            peers.lock().unwrap().push(peer);
            Ok(ours)
        };
        let request = request();
        let begin = || async { connections.begin(&request, &connect).await.unwrap() };
        let count = || connections.with_own(|own| own.open.len());
        LocalSet::new()
            .run_until(async {
                let streams = [begin().await, begin().await];
                assert_eq!((peers.lock().unwrap().len(), count()), (1, 1));
                // The host is silent: further requests avoid the connection.
                streams[0].distrust();
                let third = begin().await;
                assert_eq!((peers.lock().unwrap().len(), count()), (2, 1));
                tokio::time::advance(settings::IDLE_TIME * 2).await;
                connections.close_idle();
                assert_eq!(count(), 1);
                drop((streams, third));
                connections.close_idle();
                assert_eq!(count(), 1);
                tokio::time::advance(settings::IDLE_TIME).await;
                connections.close_idle();
                assert_eq!(count(), 0);
            })
            .await;
    }
}
