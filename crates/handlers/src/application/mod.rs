//! One request to an application, from its parameters to the last byte of the response body.
//!
//! [`script`] answers with a script's response: [`worker`] asks workers of a pool, [`fastcgi`] asks
//! FastCGI applications. [`proxy`] asks hosts that speak HTTP, SCGI, uwsgi or AJP, [`tunnel`] lets
//! FastCGI applications answer in HTTP. [`retry`] has the rule of repeating a request after a
//! failure. The crate `application_response` reads the response, [`direct`] lets a worker write to
//! the client's socket itself (`sendoff-delivery-stats` tells when that pays).

mod accept;
mod announce;
pub(crate) mod authorizer;
pub(crate) mod direct;
mod fastcgi;
pub(crate) mod proxy;
mod retry;
pub(crate) mod script;
mod tunnel;
mod worker;

use sendoff_application_response::beginning::{self, NoAnswer, ResponseStart};
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;

use crate::cached::may_purge;
use crate::context::Context;

/// Reads the beginning of a response. A response that may purge kept pages is read although the
/// client has gone.
///
/// # Errors
/// The client has gone.
fn read_start(
    exchange: &UpstreamExchange,
    context: &Context<'_>,
    sink: &mut dyn Sink,
) -> impl Future<Output = Result<Result<ResponseStart, NoAnswer>, Cut>> {
    beginning::read(exchange, context.request, || may_purge(context), sink)
}
