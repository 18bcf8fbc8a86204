//! HTTPS requests to the authority, with limits on time and size.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use sendoff_tls::{Verify, client_config};
use tokio::time::timeout;

/// Time limit of one request with its response.
const LIMIT: Duration = Duration::from_secs(30);

/// The largest body of a response, in bytes.
const MAX_BODY: usize = 1 << 20;

/// A response that cannot come from an authority: another server has the address, or the authority
/// is broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotAcme {
    /// A redirect. RFC 8555 has no redirects, and signatures cover the requested URL.
    Redirect(String),
    /// A page for browsers, such as a portal's or a maintenance page.
    Page,
    /// The body is larger than [`MAX_BODY`].
    TooLarge,
    /// The response was not complete after [`LIMIT`].
    Late,
}

impl fmt::Display for NotAcme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redirect(to) => write!(f, "a redirect to {to}, which is not followed"),
            Self::Page => f.write_str("a page for browsers"),
            Self::TooLarge => write!(f, "more than {MAX_BODY} bytes"),
            Self::Late => write!(f, "nothing complete within {} s", LIMIT.as_secs()),
        }
    }
}

impl std::error::Error for NotAcme {}

impl NotAcme {
    /// The mistake in the head of a response that cannot come from an authority.
    fn of(response: &Response<()>) -> Option<Self> {
        let field = |name| response.headers().get(name).map(|value| value.as_bytes());
        if response.status().is_redirection() {
            let to = field(LOCATION).unwrap_or(b"no place");
            return Some(Self::Redirect(String::from_utf8_lossy(to).into_owned()));
        }
        let is_page = field(CONTENT_TYPE).is_some_and(|kind| kind.starts_with(b"text/html"));
        (is_page && response.status().is_success()).then_some(Self::Page)
    }
}

/// An HTTPS client for one attempt.
#[derive(Clone)]
pub(crate) struct Https {
    client: Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>,
    /// The value of `Retry-After` in the last refusal, in seconds.
    retry_after: Arc<Mutex<Option<u64>>>,
}

impl Https {
    /// `roots`: a PEM file with root certificates; `None`: the system's.
    ///
    /// # Errors
    /// A sentence: there are no root certificates.
    pub(crate) fn new(roots: Option<&Path>) -> Result<Self, String> {
        let config = client_config(roots, Verify::Certificate)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.build());
        Ok(Self { client, retry_after: Arc::default() })
    }

    /// The time to wait after the last refusal, as the authority demanded, in seconds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        *self.retry_after.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (response, noted) = (self.client.request(request), Arc::clone(&self.retry_after));
        Box::pin(async move {
            let exchange = async {
                let (parts, body) = response.await?.into_parts();
                let response = Response::from_parts(parts, ());
                if let Some(why) = NotAcme::of(&response) {
                    return Err(why.into());
                }
                match Limited::new(body, MAX_BODY).collect().await {
                    Ok(body) => Ok((response, body.to_bytes())),
                    Err(error) if error.is::<LengthLimitError>() => Err(NotAcme::TooLarge.into()),
                    Err(error) => Err(error),
                }
            };
            let exchange = timeout(LIMIT, exchange).await;
            let (response, body) =
                exchange.unwrap_or_else(|_| Err(NotAcme::Late.into())).map_err(Error::Other)?;
            if !response.status().is_success() {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = retry_after(&response);
            }
            let (parts, ()) = response.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// Seconds to wait (RFC 9110 §10.2.3).
fn retry_after(response: &Response<()>) -> Option<u64> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(seconds);
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(SystemTime::now()).map_or(0, |wait| wait.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_wait_is_read_in_both_forms() {
        let wait = |value: &str| {
            retry_after(&Response::builder().header(RETRY_AFTER, value).body(()).unwrap())
        };
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1000));
        assert!(wait(&later).is_some_and(|wait| (990..=1000).contains(&wait)));
    }

    #[test]
    fn roots_are_those_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        let said = Https::new(Some(file.path())).err().unwrap();
        assert_eq!(
            said,
            format!("{path}: no certificate in PEM (\"-----BEGIN CERTIFICATE-----\")")
        );
        let missing = Https::new(Some(Path::new("/nowhere/roots.pem"))).err().unwrap();
        assert!(missing.starts_with("/nowhere/roots.pem: "), "{missing}");
    }
}
