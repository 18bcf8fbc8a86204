//! The part of a request that a map is about.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::COOKIE;
use http::{HeaderName, HeaderValue};
use sendoff_config::MapSource;
use sendoff_message::request::variables::{
    ParameterName, and_trimmed, cookie_texts, joined_cookies,
};
use sendoff_message::request::{Endpoint, Request, sent_cookie};

use super::countries::Countries;

/// The part, compiled.
#[derive(Debug)]
pub(super) enum Source {
    /// Fields of this name; `None`: no request has such a field.
    Header(Option<HeaderName>),
    Cookie(String, ParameterName),
    Query(String, ParameterName),
    Client,
    Host,
    Path,
    Method,
    Scheme,
    Country(Countries),
}

/// The part of one request.
#[derive(Debug)]
pub(super) enum Part<'r> {
    /// A text; empty if the request has none.
    Text(Cow<'r, [u8]>),
    /// The client's address; `None` on a UNIX socket.
    Address(Option<IpAddr>),
}

impl Source {
    /// # Errors
    /// The database of countries cannot be read.
    pub(super) fn compile(source: &MapSource) -> Result<Self, String> {
        Ok(match source {
            MapSource::Header(name) => Self::Header(HeaderName::from_bytes(name.as_bytes()).ok()),
            MapSource::Cookie(name) => Self::Cookie(name.clone(), ParameterName::new(name)),
            MapSource::Query(name) => Self::Query(name.clone(), ParameterName::new(name)),
            MapSource::Client => Self::Client,
            MapSource::Host => Self::Host,
            MapSource::Path => Self::Path,
            MapSource::Method => Self::Method,
            MapSource::Scheme => Self::Scheme,
            MapSource::Country { database, version } => {
                Self::Country(Countries::open(database, *version)?)
            }
        })
    }

    /// True if it is a part by which clients differ that ask for the same address. The query is a
    /// part of the address, and so is the host.
    pub(super) fn is_about_client(&self) -> bool {
        match self {
            Self::Header(_) | Self::Cookie(..) | Self::Client | Self::Country(_) => true,
            Self::Query(..) | Self::Host | Self::Path | Self::Method | Self::Scheme => false,
        }
    }

    /// The part of a request.
    pub(super) fn read<'r>(&self, request: &'r Request) -> Part<'r> {
        Part::Text(match self {
            Self::Client => return Part::Address(address(&request.peer)),
            Self::Header(name) => field(request, name.as_ref()),
            Self::Cookie(name, _) => sent_cookie(&request.headers, name).unwrap_or_default().into(),
            Self::Query(_, name) => {
                let query = request.query.as_deref().unwrap_or_default();
                let value = name.values(query).flatten().next();
                value.map(|value| value.into_owned()).unwrap_or_default().into()
            }
            Self::Host => request.host_name().into_bytes().into(),
            Self::Path => request.path.as_slice().into(),
            Self::Method => request.method.as_str().as_bytes().into(),
            Self::Scheme => request.scheme.as_str().as_bytes().into(),
            Self::Country(countries) => match address(&request.peer) {
                Some(address) => countries.of(address).into_bytes().into(),
                None => Cow::default(),
            },
        })
    }

    /// The other texts that applications may read for the part: of several parameters, cookies or
    /// fields with one name some take the first and some the last, PHP takes `a.b` for `a_b`, and
    /// not all decode `%41` or find what others find.
    pub(super) fn other_readings(&self, request: &Request) -> Vec<Vec<u8>> {
        let fields = |name| request.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let mut readings: Vec<Vec<u8>> = match self {
            Self::Query(_, name) => {
                let query = request.query.as_deref().unwrap_or_default();
                let none = name.may_be_missing(query).then(Vec::new);
                name.any_values(query).map(Cow::into_owned).chain(none).collect()
            }
            Self::Cookie(_, name) => name.cookie_values(&joined_cookies(fields(&COOKIE))),
            Self::Header(Some(COOKIE)) => cookie_texts(&joined_cookies(fields(&COOKIE))).collect(),
            Self::Header(Some(name)) => {
                fields(name).map(Cow::Borrowed).flat_map(and_trimmed).map(Cow::into_owned).collect()
            }
            _ => return Vec::new(),
        };
        readings.sort_unstable();
        readings.dedup();
        if let Part::Text(first) = self.read(request) {
            readings.retain(|reading| *reading != *first);
        }
        readings
    }

    /// Its name, for `sendoff explain`.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Header(Some(name)) => format!("header:{name}"),
            Self::Header(None) => "a field".to_owned(),
            Self::Cookie(name, _) => format!("cookie:{name}"),
            Self::Query(name, _) => format!("query:{name}"),
            Self::Client => "client".to_owned(),
            Self::Host => "host".to_owned(),
            Self::Path => "path".to_owned(),
            Self::Method => "method".to_owned(),
            Self::Scheme => "scheme".to_owned(),
            Self::Country(_) => "country".to_owned(),
        }
    }
}

fn address(client: &Endpoint) -> Option<IpAddr> {
    client.ip().map(|address| address.to_canonical())
}

/// All fields of a name as one text. HTTP/2 and HTTP/3 may send each cookie in a field of its own
/// (RFC 9113 §8.2.3).
fn field<'r>(request: &'r Request, name: Option<&HeaderName>) -> Cow<'r, [u8]> {
    let Some(name) = name else { return Cow::default() };
    let mut values = request.headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let (Some(first), second) = (values.next(), values.next()) else { return Cow::default() };
    if second.is_none() {
        return first.into();
    }
    let separator: &[u8] = if *name == COOKIE { b"; " } else { b", " };
    let all: Vec<_> = [first].into_iter().chain(second).chain(values).collect();
    all.join(separator).into()
}
