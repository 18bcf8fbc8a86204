//! The send timeout, and the least rate at which a client must take the bytes owed to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use sendoff_config::FrontConfig;
use sendoff_report::limits::Limit;
use sendoff_transport::pace::{Pace, SlowestPace};
use tokio::time::{Instant, Sleep, sleep_until};

use super::blocked::Blocked;

/// Checks per timeout of the bytes that the client has taken. A client of a kilobyte per second
/// leaves the socket full for minutes, so waiting for a writable socket would show no progress.
const LOOKS: u32 = 8;

/// The slowest that a client may take its responses.
pub fn send_pace(config: &FrontConfig) -> SlowestPace {
    SlowestPace { pause: config.timeouts.send, rate: config.limits.send_rate }
}

/// Runs while a client does not take all that is owed to it.
#[derive(Debug, Default)]
pub struct SendTimer(Option<RunningTimer>);

#[derive(Debug)]
struct RunningTimer {
    sleep: Pin<Box<Sleep>>,
    /// Bytes that the client had taken at the last check.
    taken: u64,
    pace: Pace,
    blocked: Blocked,
}

impl SendTimer {
    /// The client takes all bytes that it is given: the timer is not needed.
    pub fn stop(&mut self) {
        self.0 = None;
    }

    /// Fails if the client is too slow, or if memory is short and the client holds the most; the
    /// task is woken in both cases. Starts the timer if it does not run. `queued`: bytes in memory
    /// that wait for the client. `taken`: bytes that the client has taken so far.
    ///
    /// # Errors
    /// `TimedOut` or `OutOfMemory`.
    pub fn check(
        &mut self,
        cx: &mut Context<'_>,
        limits: SlowestPace,
        queued: usize,
        taken: impl Fn() -> u64,
    ) -> io::Result<()> {
        let running = self.0.get_or_insert_with(|| RunningTimer {
            sleep: Box::pin(sleep_until(Instant::now() + limits.pause / LOOKS)),
            taken: taken(),
            pace: Pace::new(limits.pause),
            blocked: Blocked::new(),
        });
        running.blocked.wait(queued, cx)?;
        while running.sleep.as_mut().poll(cx) == Poll::Ready(()) {
            running.look(limits, taken())?;
        }
        Ok(())
    }
}

impl RunningTimer {
    fn look(&mut self, limits: SlowestPace, taken: u64) -> io::Result<()> {
        let more = taken.saturating_sub(std::mem::replace(&mut self.taken, taken));
        if more > 0 {
            self.pace.note(more, limits);
        }
        let (now, deadline) = (Instant::now(), self.pace.deadline());
        if deadline <= now {
            Limit::SendTimeout.reached();
            let why = match more {
                0 => format!("the client took nothing for {} s", limits.pause.as_secs_f32()),
                _ => format!("the client took less than {} bytes per second", limits.rate),
            };
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        self.sleep.as_mut().reset(deadline.min(now + limits.pause / LOOKS));
        Ok(())
    }
}
