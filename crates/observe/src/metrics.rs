//! The metrics as text in OpenMetrics 1.0, which `exposition.rs` converts to the format that the
//! client asks for. docs/metrics.md lists them.

use std::fmt;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use sendoff_report::limits::Limit;
use sendoff_report::meters::{BOUNDS, Histogram, OTHER_STATUS, SentResponses};
use sendoff_report::mode::Mode;
use sendoff_report::status::PoolStatus;
use sendoff_traces::Counts;

use crate::gather::{Figures, Gatherer};

/// Labels of one value: names and texts.
type Labels<'l> = Vec<(&'static str, &'l str)>;

/// The values of all metrics at one time.
#[derive(Debug)]
pub struct Metrics {
    figures: Figures,
    snapshot_cuts: u64,
    snapshot_recalls: u64,
    snapshot_bytes: u64,
    log_lines_dropped: u64,
    /// Spans on their way to the collector; `None`: requests are not traced.
    spans: Option<Counts>,
    /// Seconds since 1970.
    started: f64,
}

impl Metrics {
    /// Reads the shared state of `gatherer`, from which `figures` come.
    pub fn new(figures: Figures, gatherer: &Gatherer) -> Self {
        let usage = gatherer.snapshots.usage();
        let spans = figures.config.traces.is_some().then(|| gatherer.spans.counts());
        let started = gatherer.started.duration_since(UNIX_EPOCH);
        Self {
            figures,
            snapshot_cuts: usage.cuts,
            snapshot_recalls: usage.recalls,
            snapshot_bytes: usage.bytes,
            log_lines_dropped: gatherer.log.dropped(),
            spans,
            started: started.map_or(0.0, |since| since.as_secs_f64()),
        }
    }

    /// The metrics as text.
    ///
    /// # Errors
    /// The text cannot be written, for example because a metric's name is invalid.
    pub fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("sendoff");
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        text::encode(&mut out, &registry)?;
        Ok(out)
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut Out(&mut encoder);
        self.front(out)?;
        self.sites(out)?;
        self.pools(out)
    }
}

impl Metrics {
    fn front(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let status = &self.figures.status;
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        out.gauges("version", "The version of the front, as a label", [(version, 1.0)])?;
        let one = |value: f64| [(Labels::new(), value)];
        out.gauges("start_time_seconds", "When the front started, since 1970", one(self.started))?;
        let idle = status.idle_connections;
        let connections = [("busy", status.connections.saturating_sub(idle)), ("idle", idle)];
        let connections = connections.map(|(state, count)| (vec![("state", state)], float(count)));
        out.gauges("connections", "Connections of clients", connections)?;
        let alone = |count: u64| [(Labels::new(), count)];
        let help = "Requests that belong to no site, because they could not be understood";
        out.counters("malformed_requests", help, alone(status.refused))?;
        let limits = Limit::ALL.map(|(limit, label)| (vec![("limit", label)], limit.count()));
        out.counters("limits_reached", "How often a limit was met", limits)?;
        let help = "Writers of files that were being sent, for which bytes were copied";
        out.counters("snapshot_recalls", help, alone(self.snapshot_recalls))?;
        let help = "Responses cut because their file changed and could not be copied in time";
        out.counters("snapshot_cuts", help, alone(self.snapshot_cuts))?;
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
        let bytes = self.snapshot_bytes as f64;
        out.gauges("snapshot_copies_bytes", "Copies of files that are being sent", one(bytes))?;
        let help = "Lines of access logs that were lost: the disk is full or too slow";
        out.counters("access_log_dropped_lines", help, alone(self.log_lines_dropped))?;
        let spans = self.spans.iter().flat_map(|Counts { sent, dropped, rejected }| {
            [("sent", *sent), ("dropped", *dropped), ("rejected", *rejected)]
                .map(|(outcome, count)| (vec![("outcome", outcome)], count))
        });
        out.counters("trace_spans", "Spans of traced requests, by what became of them", spans)?;
        self.fleet(out)
    }

    fn fleet(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let fleet = || self.figures.status.fleet.iter();
        let up = fleet().map(|fleet| (Labels::new(), if fleet.why.is_none() { 1.0 } else { 0.0 }));
        out.gauges("fleet_engine_up", "1 while the engine of the fleet serves", up)?;
        let help = "Purges that wait until the engine of the fleet serves";
        let waiting = fleet().map(|fleet| (Labels::new(), float(fleet.waiting)));
        out.gauges("fleet_waiting_purges", help, waiting)?;
        let purges = fleet().flat_map(|fleet| {
            [("sent", fleet.sent), ("obeyed", fleet.obeyed), ("safety", fleet.restarts)]
                .map(|(kind, count)| (vec![("kind", kind)], count))
        });
        let help = "Purges that were sent to other nodes, that were obeyed because of them, and of \
                    all pages because purges may be missing";
        out.counters("fleet_purges", help, purges)?;
        let help = "Things in the engine of the fleet that no node has written";
        let broken = fleet().map(|fleet| (Labels::new(), fleet.broken));
        out.counters("fleet_foreign_records", help, broken)
    }

    fn sites(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let sites = self.figures.config.sites.iter().zip(&self.figures.sites);
        let sites: Vec<_> =
            sites.filter_map(|(site, meter)| Some((&*site.name, meter.as_deref()?))).collect();
        let codes = sites.iter().flat_map(|(name, meter)| {
            meter.statuses.iter().map(|(status, count)| {
                let code = match *status {
                    OTHER_STATUS => "other".to_owned(),
                    status => status.to_string(),
                };
                (*name, code, *count)
            })
        });
        let codes: Vec<_> = codes.collect();
        let codes = codes.iter().map(|(site, code, n)| (vec![("site", *site), ("code", code)], *n));
        out.counters("site_responses", "Responses by their status", codes)?;
        let sent = sites.iter().map(|(name, meter)| (*name, &meter.sent));
        out.sent("site", sent)?;
        let warming = self.figures.status.warming.iter().flat_map(|warming| {
            let all = warming.all;
            let outcomes = [
                ("made", all.made),
                ("fresh", all.fresh),
                ("not_kept", all.not_kept),
                ("error", all.errors),
            ];
            outcomes.map(|(outcome, count)| {
                (vec![("site", &*warming.site), ("outcome", outcome)], count)
            })
        });
        let help =
            "Pages of sitemaps, by the outcome of their requests before clients ask for them";
        out.counters("site_warmed_pages", help, warming)?;
        let help = "From the head of a request to the last byte of its response";
        let times = sites.iter().map(|(name, meter)| (vec![("site", *name)], &meter.duration));
        out.histograms("site_request_duration_seconds", help, times)
    }

    fn pools(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let pools = self.figures.config.pools.iter().zip(&self.figures.pools);
        let used: Vec<_> =
            pools.filter_map(|(pool, meter)| Some((&*pool.name, meter.as_deref()?))).collect();
        out.sent("pool", used.iter().map(|(name, meter)| (*name, &meter.sent)))?;
        let queue = used.iter().map(|(name, meter)| (vec![("pool", *name)], &meter.queue));
        let help = "How long requests waited for a worker";
        out.histograms("pool_queue_duration_seconds", help, queue)?;
        let service = used.iter().map(|(name, meter)| (vec![("pool", *name)], &meter.service));
        let help = "How long workers had requests";
        out.histograms("pool_service_duration_seconds", help, service)?;
        let all = || {
            let configs = self.figures.config.pools.iter();
            configs.map(|pool| &*pool.name).zip(&self.figures.status.pools)
        };
        let states = all().flat_map(|(name, pool)| {
            let busy = busy(pool);
            [("idle", pool.workers.len().saturating_sub(busy)), ("busy", busy)]
                .map(|(state, count)| (vec![("pool", name), ("state", state)], float(count)))
        });
        out.gauges("pool_workers", "Workers, or processes of a program", states)?;
        let waiting = all().map(|(name, pool)| (vec![("pool", name)], float(pool.waiting)));
        out.gauges("pool_waiting_requests", "Requests that wait for a worker", waiting)?;
        let limit = all().map(|(name, pool)| (vec![("pool", name)], pool.limit_reached));
        let help = "How often requests called for more workers than there may be";
        out.counters("pool_workers_limit_reached", help, limit)?;
        let slow = all().map(|(name, pool)| (vec![("pool", name)], pool.slow));
        out.counters("pool_slow_requests", "Requests that the slow log has", slow)?;
        let ended = all().map(|(name, pool)| (vec![("pool", name)], pool.out_of_memory));
        let help = "Processes that the kernel has ended because there was no memory left";
        out.counters("pool_processes_out_of_memory", help, ended)
    }
}

/// Writes metrics. Names get the prefix `sendoff_`, and counters the suffix `_total`.
struct Out<'o, 'e>(&'o mut DescriptorEncoder<'e>);

impl Out<'_, '_> {
    fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        values.into_iter().try_for_each(|(labels, value)| match &*labels {
            [] => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
            _ => metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None),
        })
    }

    fn gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, f64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        values.into_iter().try_for_each(|(labels, value)| match &*labels {
            [] => metric.encode_gauge(&value),
            _ => metric.encode_family(&labels)?.encode_gauge(&value),
        })
    }

    fn histograms<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, &'l Histogram)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        values.into_iter().try_for_each(|(labels, times)| {
            let bounds = BOUNDS.iter().map(|micros| seconds(*micros)).chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(times.buckets).collect();
            let (sum, count) = (seconds(times.sum), times.count());
            metric
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        })
    }

    /// Writes the requests and bytes of sites or pools, by their mode. `whose` is the label and the
    /// prefix of the metrics' names.
    fn sent<'l>(
        &mut self,
        whose: &'static str,
        all: impl Iterator<Item = (&'l str, &'l [SentResponses; Mode::ALL.len()])>,
    ) -> fmt::Result {
        let all: Vec<_> = all
            .flat_map(|(name, sent)| {
                let modes = Mode::ALL.into_iter().zip(sent).filter(|(_, sent)| sent.responses > 0);
                modes.map(move |((_, mode), sent)| (vec![(whose, name), ("mode", mode)], sent))
            })
            .collect();
        let values = |value: fn(&SentResponses) -> u64| {
            all.iter().map(move |(labels, sent)| (labels.clone(), value(sent)))
        };
        let help = "Requests by the way in which the body of the response came";
        self.counters(&format!("{whose}_requests"), help, values(|sent| sent.responses))?;
        let help = "Bytes of bodies that came as parts of files and were not copied by the server";
        self.counters(
            &format!("{whose}_handed_over_bytes"),
            help,
            values(|sent| sent.handed_over),
        )?;
        let help = "Bytes of bodies that came as bytes";
        self.counters(&format!("{whose}_copied_bytes"), help, values(|sent| sent.copied))
    }
}

/// Workers that have a request.
pub fn busy(pool: &PoolStatus) -> usize {
    match &pool.program {
        Some(program) => program.busy,
        None => pool.workers.iter().filter(|worker| worker.request.is_some()).count(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn float(count: usize) -> f64 {
    count as f64
}
