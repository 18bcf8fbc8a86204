//! Parts of a request in the form that rules need.

use std::borrow::Cow;
use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use sendoff_htaccess as apache;
use sendoff_message::request::Endpoint;

/// The request's fields.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a HeaderMap);

impl<'a> Fields<'a> {
    /// The value of a field; several fields of the same name are joined.
    pub(super) fn value(&self, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
        let mut values = self.0.get_all(name).iter();
        let first = values.next()?.as_bytes();
        let rest: Vec<_> = values.map(HeaderValue::as_bytes).collect();
        if rest.is_empty() {
            return Some(Cow::Borrowed(first));
        }
        let all = std::iter::once(first).chain(rest).collect::<Vec<_>>();
        Some(Cow::Owned(all.join(&b", "[..])))
    }
}

impl apache::Fields for Fields<'_> {
    fn get(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.value(&HeaderName::from_bytes(name).ok()?)
    }

    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in self.0 {
            each(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

/// The port in `host:port`.
pub(super) fn port(host: &[u8]) -> Option<u16> {
    let (_, port) = str::from_utf8(host).ok()?.rsplit_once(':')?;
    port.parse().ok()
}

/// An address for rules that compare addresses. The address of a UNIX socket is in no network.
pub(super) fn socket_address(endpoint: &Endpoint) -> SocketAddr {
    match endpoint {
        Endpoint::Ip(address) => *address,
        Endpoint::Unix(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}
