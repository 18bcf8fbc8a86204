//! Settings of the front: threads, timeouts, limits, the access log, kept pages.

use sendoff_config::{
    AccessLog, FrontConfig, Limits, LogFormat, MAX_THREADS, PageStore, Site, SiteLog, Timeouts,
    Variable,
};

use super::context::Context;
use crate::keys::Top;

/// Divisor of the machine's memory for `max_queued`: workers need most of the rest.
const QUEUED_SHARE: u64 = 8;

impl Context<'_> {
    pub(crate) fn front(&mut self, top: &Top, sites: &[Site]) -> FrontConfig {
        let access_log = self.server_log(top);
        let own = sites.iter().filter_map(|site| match &site.access_log {
            SiteLog::Own(log) => Some(log),
            SiteLog::Server | SiteLog::Off => None,
        });
        // The JSON format always has an id if there is one.
        let asks = |log: &AccessLog| {
            log.format.has(Variable::RequestId) && log.format != LogFormat::json()
        };
        let asks_for_ids = access_log.iter().chain(own).any(asks);
        let threads = top.threads.as_ref().map_or(self.machine.cores() as u64, |n| n.value.0);
        FrontConfig {
            threads: u8::try_from(threads).unwrap_or(MAX_THREADS).clamp(1, MAX_THREADS),
            access_log,
            request_ids: top.request_id.value || asks_for_ids,
            timeouts: Timeouts {
                head: top.head_timeout.value.0,
                body: top.body_timeout.value.0,
                idle: top.idle_timeout.value.0,
                send: top.send_timeout.value.0,
            },
            limits: Limits {
                max_body: top.max_body.value.0,
                connections: top.max_connections.map(|number| number.value.0),
                connections_per_client: top.max_connections_per_client.map(|number| number.value.0),
                body_rate: top.min_body_rate.value.0,
                send_rate: top.min_send_rate.value.0,
                queued: match &top.max_queued {
                    Some(size) => size.value.0,
                    None => self.machine.memory() / QUEUED_SHARE,
                },
            },
            page_cache: PageStore {
                folder: match &top.page_cache_folder {
                    Some(path) => path.value.0.clone(),
                    None => self.machine.cache_folder(),
                },
                size: top.page_cache_size.value.0,
            },
        }
    }
}
