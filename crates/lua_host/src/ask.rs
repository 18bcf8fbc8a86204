//! Subrequests of scripts: requests for other pages of the site. The script waits for the answer
//! while the event loop goes on.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method};
use sendoff_lua::{Reply, Subrequest, Waiting};
use sendoff_message::request::{Body, CONDITIONS, Request};
use tokio::time::Instant;

/// Time limit for all subrequests of one run together.
pub(super) const TOTAL_TIME: Duration = Duration::from_secs(30);

/// Fields that, with the conditions, concern only the request that a script runs for, and not its
/// subrequests.
const OF_THE_REQUEST: [HeaderName; 8] = [
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The answer to a subrequest, in the future.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Result<Reply, String>> + 'a>>;

/// Makes subrequests.
pub trait Asks {
    /// Sends the request to the site, and collects the answer.
    fn ask(&self, request: Request) -> Asked<'_>;
}

/// Makes the subrequest that a script waits for. `deadline`: for all subrequests of the run.
pub(super) async fn answer(
    asks: Option<&dyn Asks>,
    waiting: &mut Waiting,
    request: &Request,
    deadline: Instant,
) -> Result<Reply, String> {
    let wish = waiting.wish()?;
    let Some(asks) = asks else { return Err("no subrequest can be made here".to_owned()) };
    let until = deadline.min(Instant::now() + wish.timeout);
    let asked = asks.ask(of_wish(wish, waiting, request)?);
    let answered = tokio::time::timeout_at(until, asked).await;
    answered.unwrap_or_else(|_| Err("no answer came in time".to_owned()))
}

/// Builds the subrequest from the request that the script runs for.
fn of_wish(wish: Subrequest, waiting: &Waiting, request: &Request) -> Result<Request, String> {
    let Subrequest { target, method, fields, body, .. } = wish;
    let method = Method::from_bytes(&method).ok();
    let method = method.filter(|method| *method != Method::CONNECT && *method != Method::TRACE);
    let method = method.ok_or("the method is not valid")?;
    if target.iter().any(|byte| !byte.is_ascii_graphic()) {
        return Err("the path has bytes that must be percent-encoded".to_owned());
    }
    // The fields of the request itself are lent to the script.
    let mut headers = waiting.exchange().request.headers.clone();
    for name in CONDITIONS.into_iter().chain(OF_THE_REQUEST) {
        headers.remove(name);
    }
    for (name, value) in fields {
        let name = HeaderName::from_bytes(&name).map_err(|error| error.to_string())?;
        if matches!(name, header::CONTENT_LENGTH | header::CONNECTION | header::TRANSFER_ENCODING) {
            continue;
        }
        if value.is_empty() {
            headers.remove(name);
        } else {
            let value = HeaderValue::from_maybe_shared(value).map_err(|error| error.to_string())?;
            headers.insert(name, value);
        }
    }
    let host = headers.get(header::HOST).map(|host| Bytes::copy_from_slice(host.as_bytes()));
    let has_body = !body.is_empty();
    if has_body {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let mut asked = Request {
        method,
        target: target.clone(),
        uri: target,
        host: host.or_else(|| request.host.clone()),
        headers,
        body: Body::Memory(body),
        has_body,
        ..request.clone()
    };
    asked.restart().map_err(|bad| bad.0.to_owned())?;
    Ok(asked)
}
