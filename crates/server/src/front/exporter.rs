//! The thread that sends spans to the collector, by OTLP over HTTP.
//!
//! It has a runtime of its own, so a slow collector delays no client. Spans wait in a bounded queue
//! ([`Spans`]). The thread starts with the first configuration that has a collector.

use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sendoff_config::Traces;
use sendoff_report::seldom::Seldom;
use sendoff_traces::{Span, Spans};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::collector::{Collector, Refusal};

/// The longest time that a span waits for others.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pause after the first failure of a request to the collector. It doubles with each further
/// one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The time after which a batch that cannot be sent is dropped: newer spans are worth more.
const GIVE_UP: Duration = Duration::from_secs(60);

/// The thread, if there is a collector, and the queue that it empties.
pub(super) struct Exporter {
    spans: Arc<Spans>,
    thread: RefCell<Option<ExportThread>>,
}

/// A running thread.
struct ExportThread {
    orders: watch::Sender<Order>,
    handle: JoinHandle<()>,
}

/// The latest order to the thread.
#[derive(Debug, Clone)]
enum Order {
    /// This collector gets the spans from now on.
    Serve(Box<Traces>),
    /// No further spans come. The thread ends once none wait.
    Finish,
    /// The same, and the thread ends at this time at the latest.
    EndBy(Instant),
}

impl Order {
    fn end_by(&self) -> Option<Instant> {
        match self {
            Self::Serve(_) | Self::Finish => None,
            Self::EndBy(time) => Some(*time),
        }
    }
}

impl Exporter {
    /// An exporter without a collector.
    pub(super) fn new(spans: Arc<Spans>) -> Self {
        Self { spans, thread: RefCell::default() }
    }

    /// Sends spans to the collector of this configuration from now on.
    pub(super) fn serve(&self, traces: Option<&Traces>) {
        let mut thread = self.thread.borrow_mut();
        match (traces, &*thread) {
            (None, None) => {}
            (None, Some(ExportThread { orders, .. })) => {
                orders.send_replace(Order::Finish);
                // It ends by itself. A collector that comes later has another thread.
                *thread = None;
            }
            (Some(traces), Some(ExportThread { orders, .. })) => {
                orders.send_replace(Order::Serve(Box::new(traces.clone())));
            }
            (Some(traces), None) => match start(Arc::clone(&self.spans), traces.clone()) {
                Ok(started) => *thread = Some(started),
                Err(error) => {
                    tracing::error!(%error, "no spans are sent: no thread can be started");
                }
            },
        }
    }

    /// Sends the spans that wait, for at most this time, and ends the thread.
    pub(super) fn finish(&self, within: Duration) {
        let Some(ExportThread { orders, handle }) = self.thread.borrow_mut().take() else { return };
        orders.send_replace(Order::EndBy(Instant::now() + within));
        if handle.join().is_err() {
            tracing::error!("the thread that sends spans has panicked");
        }
    }
}

fn start(spans: Arc<Spans>, traces: Traces) -> io::Result<ExportThread> {
    let (orders, receiver) = watch::channel(Order::Serve(Box::new(traces.clone())));
    let run = move || match Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
    {
        Ok(runtime) => runtime.block_on(async {
            let collector = Collector::new(traces);
            Exports { spans, orders: receiver, collector }.run().await;
        }),
        Err(error) => tracing::error!(%error, "no spans are sent"),
    };
    let handle = thread::Builder::new().name("traces".to_owned()).spawn(run)?;
    Ok(ExportThread { orders, handle })
}

/// The work of the thread.
struct Exports {
    spans: Arc<Spans>,
    orders: watch::Receiver<Order>,
    collector: Collector,
}

/// The reason for the end of a pause.
enum Woken {
    ByTime,
    ByOrder,
}

impl Exports {
    async fn run(mut self) {
        loop {
            let order = self.follow_order();
            loop {
                let batch = self.spans.take();
                if batch.is_empty() {
                    break;
                }
                self.deliver(batch).await;
            }
            if !matches!(order, Order::Serve(_)) {
                return;
            }
            let Self { spans, orders, .. } = &mut self;
            tokio::select! {
                () = sleep(INTERVAL) => {}
                () = spans.batch_is_full() => {}
                Ok(()) = orders.changed() => {}
            }
        }
    }

    /// Follows the latest order, and returns it.
    fn follow_order(&mut self) -> Order {
        let order = self.orders.borrow_and_update().clone();
        if let Order::Serve(traces) = &order
            && *self.collector.traces() != **traces
        {
            self.collector = Collector::new(Traces::clone(traces));
        }
        order
    }

    /// Sends a batch, again and again if the collector is away or busy. An order ends a pause: the
    /// collector may be another one, or there is only one try left.
    async fn deliver(&mut self, batch: Vec<Span>) {
        static LATER: Seldom = Seldom::new();
        static FINAL: Seldom = Seldom::new();
        let give_up = Instant::now() + GIVE_UP;
        let mut pause = FIRST_PAUSE;
        loop {
            let end_by = self.follow_order().end_by();
            let refusal = match self.try_once(&batch, end_by).await {
                Ok(rejected) => {
                    let rejected = rejected.min(batch.len());
                    return self.spans.note_sent(batch.len() - rejected, rejected);
                }
                Err(refusal) => refusal,
            };
            let (said, is_final) = match &refusal {
                Refusal::Later { .. } => (&LATER, false),
                Refusal::Final(_) => (&FINAL, true),
            };
            if said.is_due() {
                let collector = self.collector.name();
                tracing::warn!(collector, "spans cannot be sent: {}", refusal.why());
            }
            if is_final {
                return self.spans.note_sent(0, batch.len());
            }
            let demanded = refusal.after();
            let jitter = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
            let next = Instant::now() + demanded.map_or(jitter, |after| after.min(LONGEST_PAUSE));
            if end_by.is_some() || next > give_up {
                return self.spans.note_dropped(batch.len());
            }
            pause = match self.wait_until(next).await {
                Woken::ByTime => (pause * 2).min(LONGEST_PAUSE),
                Woken::ByOrder => FIRST_PAUSE,
            };
        }
    }

    /// Sends a batch, until the end of the thread at the latest. Returns the number of spans that
    /// the collector has rejected.
    async fn try_once(&self, batch: &[Span], end_by: Option<Instant>) -> Result<usize, Refusal> {
        let mut sending = pin!(self.collector.send(batch));
        let mut orders = self.orders.clone();
        let ends = async move {
            let order = orders.wait_for(|order| order.end_by().is_some()).await;
            order.ok().and_then(|order| order.end_by())
        };
        let end_by = match end_by {
            Some(end_by) => end_by,
            None => tokio::select! {
                sent = &mut sending => return sent,
                Some(end_by) = ends => end_by,
            },
        };
        timeout_at(end_by, sending).await.unwrap_or_else(|_| Err(Refusal::late()))
    }

    async fn wait_until(&mut self, time: Instant) -> Woken {
        tokio::select! {
            () = sleep_until(time) => Woken::ByTime,
            Ok(()) = self.orders.changed() => Woken::ByOrder,
        }
    }
}
