//! The end of a connection in order: the client is told to go, its requests are answered, and it
//! closes the connection.

use std::pin::Pin;
use std::time::Duration;

use sendoff_exchange::lifecycle::Past;
use tokio::time::sleep;

use crate::streams::Streams;

/// Time for a client that was told to go (GOAWAY) to close the connection, once its streams have
/// ended.
pub const GOAWAY_TIME: Duration = Duration::from_secs(2);

/// The state of the client's right to send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStage {
    /// The client may send requests.
    Open,
    /// The client was told to go. Requests that it sent before it read this are answered.
    Draining,
    /// The client was told to go, and further requests are refused.
    Refusing,
}

/// The next step towards the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStep {
    /// The client is to be told to go: it was idle for too long, or makes room for another client,
    /// or the front stops.
    Leave,
    /// The client has been told to go, its requests are answered, and its time to close the
    /// connection is over.
    Over,
}

impl<S> Streams<S> {
    /// Waits for the next step. May be called anew whenever streams have begun. `stops`: the front
    /// stops. `grace`: the time for the client to close the connection.
    pub async fn drain_step(
        &self,
        stage: DrainStage,
        past: &mut Past,
        stops: Pin<&mut impl Future<Output = ()>>,
        grace: impl FnOnce() -> Duration,
    ) -> DrainStep {
        let is_open = stage == DrainStage::Open;
        if !self.is_idle() {
            tokio::select! {
                biased;
                () = self.idle() => *past = Past::Requests,
                () = stops, if is_open => return DrainStep::Leave,
            }
        }
        if is_open {
            self.lifecycle.evicted(*past, false).await;
            DrainStep::Leave
        } else {
            sleep(grace()).await;
            DrainStep::Over
        }
    }
}
