//! Calls of gRPC-Web, which become calls of gRPC.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method};
use sendoff_config::{GatewayProtocol, Proxy};
use sendoff_message::request::{Body, BodyStore, Request};
use sendoff_sys::file::read_exact_at;

use crate::{GRPC, format_of};

/// The media types of gRPC-Web: the body as it is, and in base64.
const BINARY: &[u8] = b"application/grpc-web";
const TEXT: &[u8] = b"application/grpc-web-text";

/// The most bytes of a body in base64: one of the largest messages that gRPC takes by default.
const MAX_TEXT: u64 = 6 << 20;

/// A call of gRPC-Web that becomes one of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebCall {
    /// Both bodies are in base64.
    is_text: bool,
}

/// A body that is not in base64, or too large to be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

impl WebCall {
    /// The call that a request makes to an application; `None`: it is none of gRPC-Web, or the
    /// application gets it as it is.
    #[must_use]
    pub fn of(request: &Request, proxy: &Proxy) -> Option<Self> {
        let GatewayProtocol::Http2 { grpc_web: true, .. } = proxy.protocol else { return None };
        Self::made_by(request)
    }

    fn made_by(request: &Request) -> Option<Self> {
        let calls = [false, true].map(|is_text| Self { is_text });
        let is_post = request.method == Method::POST;
        calls.into_iter().find(|call| is_post && call.format(&request.headers).is_some())
    }

    fn own_type(self) -> &'static [u8] {
        if self.is_text { TEXT } else { BINARY }
    }

    /// The format of the messages of a request.
    fn format(self, fields: &HeaderMap) -> Option<&[u8]> {
        format_of(self.own_type(), fields.get(CONTENT_TYPE)?.as_bytes())
    }

    /// True if the request's body must be complete before it can be passed on.
    #[must_use]
    pub fn needs_whole_body(self) -> bool {
        self.is_text
    }

    /// The request in the form of gRPC.
    ///
    /// # Errors
    /// Its body cannot be decoded.
    pub fn as_grpc(self, request: &Request) -> Result<Request, Unreadable> {
        let mut call = request.clone();
        let format = self.format(&request.headers).ok_or(Unreadable)?;
        let media_type = HeaderValue::from_bytes(&[GRPC, format].concat());
        call.headers.insert(CONTENT_TYPE, media_type.map_err(|_| Unreadable)?);
        call.headers.insert(TE, HeaderValue::from_static("trailers"));
        if self.is_text {
            // A large one waits in a file, as the text does.
            let mut body = BodyStore::keep();
            let bytes = decode(&text(&request.body)?).ok_or(Unreadable)?;
            call.body = body.push(&bytes).and_then(|()| body.finish()).map_err(|_| Unreadable)?;
        }
        Ok(call)
    }

    /// The media type of a response, from the one of gRPC; `None`: it is no response of gRPC.
    pub(crate) fn media_type(self, of_grpc: &[u8]) -> Option<Vec<u8>> {
        Some([self.own_type(), format_of(GRPC, of_grpc)?].concat())
    }

    pub(crate) fn is_text(self) -> bool {
        self.is_text
    }
}

fn text(body: &Body) -> Result<Bytes, Unreadable> {
    match body {
        Body::Memory(bytes) => Ok(bytes.clone()),
        Body::File { descriptor, len } if *len <= MAX_TEXT => {
            let mut text = vec![0; usize::try_from(*len).map_err(|_| Unreadable)?];
            read_exact_at(descriptor, &mut text, 0).map_err(|_| Unreadable)?;
            Ok(text.into())
        }
        Body::File { .. } | Body::Stream(_) => Err(Unreadable),
    }
}

/// The bytes of a text in base64, which may be several texts with their padding; `None`: it is none.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut rest = text;
    while !rest.is_empty() {
        let padding = rest.iter().position(|&byte| byte == b'=').unwrap_or(rest.len());
        let (one, other) = rest.split_at((padding + 1).next_multiple_of(4).min(rest.len()));
        STANDARD.decode_vec(one, &mut bytes).ok()?;
        rest = other;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use sendoff_message::request::sample::request;

    use super::*;

    fn call(media_type: &str, body: &str) -> Request {
        let mut request = request(None);
        request.method = Method::POST;
        request.headers.insert(CONTENT_TYPE, media_type.parse().unwrap());
        request.body = Body::Memory(Bytes::copy_from_slice(body.as_bytes()));
        request
    }

    #[test]
    fn a_call_is_known_by_its_media_type() {
        for (media_type, is_text) in [
            ("application/grpc-web", Some(false)),
            ("application/grpc-web+proto", Some(false)),
            ("application/grpc-web;charset=utf-8", Some(false)),
            ("application/grpc-web-text", Some(true)),
            ("application/grpc-web-text+proto", Some(true)),
            ("application/grpc", None),
            ("application/grpc+proto", None),
            ("application/grpc-website", None),
            ("text/plain", None),
        ] {
            let found = WebCall::made_by(&call(media_type, ""));
            assert_eq!(found, is_text.map(|is_text| WebCall { is_text }), "{media_type}");
        }
        let mut get = call("application/grpc-web", "");
        get.method = Method::GET;
        assert_eq!(WebCall::made_by(&get), None);
    }

    #[test]
    fn a_call_becomes_one_of_grpc() {
        let text = "AAAAAAF4AAAAAAF5";
        for (media_type, body, expected, bytes) in [
            ("application/grpc-web+proto", "\0x", "application/grpc+proto", "\0x"),
            ("application/grpc-web-text", text, "application/grpc", "\0\0\0\0\u{1}x\0\0\0\0\u{1}y"),
            ("application/grpc-web-text+json", "eA==eXo=eg==", "application/grpc+json", "xyzz"),
        ] {
            let request = call(media_type, body);
            let grpc = WebCall::made_by(&request).unwrap().as_grpc(&request).unwrap();
            assert_eq!(
                (&grpc.headers[CONTENT_TYPE], &grpc.headers[TE]),
                (&HeaderValue::from_static(expected), &HeaderValue::from_static("trailers"))
            );
            let Body::Memory(got) = grpc.body else { panic!("it was in memory") };
            assert_eq!(got, bytes.as_bytes());
        }
        let request = call("application/grpc-web-text", &"AAAA".repeat(1 << 18));
        let large = WebCall::made_by(&request).unwrap().as_grpc(&request).unwrap();
        assert!(matches!(large.body, Body::File { len, .. } if len == 3 << 18));
        for bad in ["x", "=", "eA==x", "e A=", "eA==\n"] {
            let request = call("application/grpc-web-text", bad);
            let refused = WebCall::made_by(&request).unwrap().as_grpc(&request);
            assert_eq!(refused.unwrap_err(), Unreadable, "{bad}");
        }
    }
}
