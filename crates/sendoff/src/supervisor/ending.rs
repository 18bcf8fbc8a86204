//! The end of the server: load balancers are told, the front drains, masters end.

use sendoff_control::{Commands, ControlAnswer};

use super::state::Supervisor;
use crate::orders::ToFront;
use crate::signals::{SignalRequest, Signals};

impl Supervisor {
    /// Asks load balancers to stop sending requests, if the configuration grants time for that.
    /// Returns the way to end the server.
    pub(super) async fn leave(
        &mut self,
        asked: SignalRequest,
        signals: &mut Signals,
        commands: &mut Commands,
    ) -> SignalRequest {
        let delay = self.config.drain_delay;
        if asked == SignalRequest::Cut || delay.is_zero() {
            return asked;
        }
        if let Some(orders) = self.front.orders()
            && let Err(error) = orders.send(&ToFront::Leave, &[])
        {
            tracing::warn!(%error, "load balancers are not told of the end: the front takes no order");
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => asked,
            () = end_at_once(signals, commands) => SignalRequest::Cut,
            _failed = self.keep_running() => asked,
        }
    }

    /// Ends the front and, if there is time, the PHP masters.
    pub(super) async fn end(
        &mut self,
        asked: SignalRequest,
        signals: &mut Signals,
        commands: &mut Commands,
    ) {
        if asked == SignalRequest::Drain {
            tokio::select! {
                () = self.drain() => return,
                () = end_at_once(signals, commands) => {}
            }
        }
        self.cut().await;
    }
}

/// Waits for a signal or a command that ends the draining server at once.
async fn end_at_once(signals: &mut Signals, commands: &mut Commands) {
    loop {
        let asked = tokio::select! {
            asked = signals.next() => Some(asked),
            (command, reply) = commands.next() => {
                let asked = SignalRequest::of(&command);
                if !matches!(asked, Some(SignalRequest::Drain | SignalRequest::Cut)) {
                    let _ = reply.send(ControlAnswer::Failed("the server is ending".to_owned()));
                }
                asked
            }
        };
        if matches!(asked, Some(SignalRequest::Drain | SignalRequest::Cut)) {
            return;
        }
    }
}
