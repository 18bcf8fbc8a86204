//! Pages about pools (`status_path`, `ping_path`), which the front answers without a worker.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::StatusCode;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;
use sendoff_report::pool_page;
use sendoff_report::pool_page::Format;
use sendoff_report::workers::Described;
use sendoff_site::pool_page::{PoolPage, PoolPageKind};
use sendoff_site_files::router::{Script, Upstream};

use crate::context::Context;

/// Maximum bytes of a path with its query, of a script's name and of a user's name on the status
/// page, as in php-fpm.
const MAX_URI: usize = 640;
const MAX_SCRIPT: usize = 256;
const MAX_USER: usize = 32;

/// Answers with a page about a pool.
pub(crate) async fn respond(
    context: &Context<'_>,
    page: PoolPage,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let (content_type, body) = match page.kind {
        PoolPageKind::Ping => {
            let pool = &context.services.config.pools[page.pool];
            (Format::Text.content_type(), pool.ping_response.clone())
        }
        PoolPageKind::Status => status(context, page.pool),
    };
    let mut head = ResponseHead::new(StatusCode::OK, Some(body.len() as u64));
    head.field("Expires", Bytes::from_static(b"Thu, 01 Jan 1970 00:00:00 GMT"));
    let never = b"no-cache, no-store, must-revalidate, max-age=0";
    head.field("Cache-Control", Bytes::from_static(never));
    head.field("Content-Type", content_type);
    sink::respond(sink, head, [Segment::Bytes(body.into())]).await
}

fn status(context: &Context<'_>, number: usize) -> (&'static str, String) {
    let Context { services, request, .. } = context;
    let (config, pool) = (&services.config.pools[number], &services.pools[number].shared);
    let query = request.query.as_deref().unwrap_or_default();
    let page = pool_page::PoolPage {
        name: &config.name,
        policy: config.workers,
        report: pool.report(),
        workers: asks_for(query, b"full").then(|| pool.worker_reports()),
        now: SystemTime::now(),
    };
    let format = format(query);
    (format.content_type(), page.write(format))
}

/// The format that a query asks for. If it names several, php-fpm takes the first in this order.
fn format(query: &[u8]) -> Format {
    let known: [(&[u8], Format); 4] = [
        (b"html", Format::Html),
        (b"xml", Format::Xml),
        (b"json", Format::Json),
        (b"openmetrics", Format::OpenMetrics),
    ];
    let asked = known.into_iter().find(|(name, _)| asks_for(query, name));
    asked.map_or(Format::Text, |(_, format)| format)
}

/// True if a query has a parameter of this name, with or without a value.
fn asks_for(query: &[u8], name: &[u8]) -> bool {
    query.split(|byte| *byte == b'&').any(|parameter| {
        let rest = parameter.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
    })
}

/// The request for its pool's status page and for `fpm_get_status()`; `None`: neither is in use.
pub(crate) fn described(context: &Context<'_>, script: &Script) -> Option<Arc<Described>> {
    let Context { services, request, user, .. } = *context;
    let Upstream::Workers(pool) = script.upstream else { return None };
    if services.config.pools[pool].status_path.is_none() && !services.pools[pool].shared.describes()
    {
        return None;
    }
    let uri = script.name[..script.name.len().min(MAX_URI)].to_vec();
    let query = request.query.as_deref().unwrap_or_default();
    // The page puts a question mark between the two.
    let query = query[..query.len().min(MAX_URI.saturating_sub(uri.len() + 1))].to_vec();
    Some(Arc::new(Described {
        method: request.method.clone(),
        uri,
        query,
        body: request.body.len(),
        user: user[..user.len().min(MAX_USER)].to_vec(),
        script: script.filename[..script.filename.len().min(MAX_SCRIPT)].to_vec(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_chooses_the_format_as_under_php_fpm() {
        for (query, expected) in [
            ("", Format::Text),
            ("full", Format::Text),
            ("json", Format::Json),
            ("full&json", Format::Json),
            ("json=1&xml", Format::Xml),
            ("openmetrics&html=", Format::Html),
            ("openmetrics", Format::OpenMetrics),
            ("jsonp&nothtml", Format::Text),
        ] {
            assert_eq!(format(query.as_bytes()), expected, "{query}");
        }
        assert!(asks_for(b"json&full", b"full") && !asks_for(b"fuller", b"full"));
    }
}
