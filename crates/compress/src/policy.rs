//! The decision about the compression of a response.

use http::header::{AUTHORIZATION, COOKIE, REFERER};
use http::{HeaderValue, Method, StatusCode};
use sendoff_config::{Coding, Compress, Compression};
use sendoff_message::request::{Request, Scheme};
use sendoff_message::response::{Field, ResponseHead};

use super::accept::Accepted;
use super::etag;

/// Fields with digests of the uncompressed body (RFC 9530, RFC 3230, RFC 1864).
const DIGESTS: [&str; 4] = ["Content-Digest", "Repr-Digest", "Digest", "Content-MD5"];

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Producer {
    /// The server, from a file or by itself.
    Server,
    /// A script or an application: the response may contain secrets besides input from the client.
    Application,
}

/// The compression that a request allows.
#[derive(Debug)]
pub struct Policy<'a> {
    rules: &'a Compression,
    of: Compress,
    producer: Producer,
    accepted: Accepted,
    pub(super) is_head: bool,
    /// The reason why the response is not compressed although the client would accept it.
    withheld: Option<&'static str>,
    /// The client's `If-None-Match`, if applications see another value.
    asked: Option<&'a HeaderValue>,
}

/// The decision about a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompressionDecision {
    /// The response does not depend on `Accept-Encoding`.
    Plain,
    /// Not compressed here, but for other requests of the same resource.
    Varies,
    /// The response is compressed.
    Compressed(Coding),
}

impl<'a> Policy<'a> {
    /// The policy for a request; `None` if nothing is compressed. `of`: the responses that are
    /// compressed. `asked`: the client's `If-None-Match`.
    pub fn new(
        rules: &'a Compression,
        of: Compress,
        producer: Producer,
        request: &Request,
        asked: Option<&'a HeaderValue>,
    ) -> Option<Self> {
        match of {
            Compress::Off => return None,
            Compress::Static if producer == Producer::Application => return None,
            Compress::Static | Compress::All => {}
        }
        let withheld = (!rules.cross_site && may_be_attack(request)).then_some(
            "the request carries credentials over TLS and may come from another site (compress_cross_site)",
        );
        let accepted = Accepted::of(&request.headers, request.version);
        let is_head = request.method == Method::HEAD;
        Some(Self { rules, of, producer, accepted, is_head, withheld, asked })
    }

    /// The same policy for a client that accepts every coding.
    pub fn for_everything(mut self) -> Self {
        self.accepted = Accepted::everything();
        self
    }

    /// The codings for this client, the best one first.
    pub fn choices(&self) -> Vec<Coding> {
        self.accepted.choices(&self.rules.codings)
    }

    /// True if bodies of this media type are compressed.
    pub fn is_compressible(&self, media_type: &[u8]) -> bool {
        let essence = media_type.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        self.rules.types.iter().map(String::as_bytes).any(|known| {
            if let Some(end) = known.strip_prefix(b"*/*") {
                // RFC 6838 §4.2.8: the suffix names the structure of the type.
                let from = essence.len().checked_sub(end.len());
                from.is_some_and(|from| essence[from..].eq_ignore_ascii_case(end))
            } else if let Some(start) = known.strip_suffix(b"*") {
                essence.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start))
            } else {
                essence.eq_ignore_ascii_case(known)
            }
        })
    }

    pub(super) fn is_too_short(&self, len: u64) -> bool {
        len < self.rules.min_length
    }

    /// The decision about a response with this head.
    pub(super) fn verdict(&self, head: &ResponseHead) -> CompressionDecision {
        if head.status == StatusCode::NOT_MODIFIED {
            return CompressionDecision::Varies;
        }
        let is_compressible =
            head.value("Content-Type").is_some_and(|media_type| self.is_compressible(media_type));
        let is_encoded = head.value("Content-Encoding").is_some_and(|coding| coding != b"identity");
        let is_part = head.status == StatusCode::PARTIAL_CONTENT || head.has("Content-Range");
        // The length of a part does not tell the length of the whole, which is compressed for
        // others.
        let is_short = !is_part && head.length.is_some_and(|len| self.is_too_short(len));
        // A script may answer in place of a file that cannot be sent.
        let is_other = self.of == Compress::Static && is_error(head.status);
        let is_bodiless =
            [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT].contains(&head.status);
        if is_other
            || !is_compressible
            || is_encoded
            || is_short
            || is_bodiless
            || forbids_transform(head)
        {
            return CompressionDecision::Plain;
        }
        let is_withheld = self.withheld(head.status).is_some();
        let coding = self.choices().first().copied().filter(|_| !is_part && !is_withheld);
        coding.map_or(CompressionDecision::Varies, CompressionDecision::Compressed)
    }

    /// The reason why a response with this status is not compressed although the client would
    /// accept it.
    fn withheld(&self, status: StatusCode) -> Option<&'static str> {
        self.withheld.filter(|_| self.producer == Producer::Application || is_error(status))
    }

    /// The explanation of the decision for the operator; `None` if the response alone is the
    /// reason.
    pub fn explanation(&self, head: &ResponseHead) -> Option<String> {
        match self.verdict(head) {
            CompressionDecision::Compressed(coding) => Some(format!(
                "compressed with {} for clients that accept it: read by the server, not sent from the file; compress = false in \
                 the site or a route turns it off",
                coding.name()
            )),
            CompressionDecision::Varies => {
                self.withheld(head.status).map(|why| format!("not compressed: {why}"))
            }
            CompressionDecision::Plain => None,
        }
    }

    /// Gives a 304 response the tag that the client has.
    pub(super) fn restore_tag(&self, head: &mut ResponseHead) {
        if head.status == StatusCode::NOT_MODIFIED
            && let Some(asked) = self.asked
            && let Some(own) = tag(head)
            && let Some(given) = etag::asked_for(own.value(), asked, self.accepted)
        {
            own.set_value(given);
        }
    }
}

/// Tells caches that the response depends on `Accept-Encoding`.
pub fn vary(head: &mut ResponseHead) {
    let says = |field: &Field| {
        field.is("Vary")
            && field
                .value()
                .split(|&b| b == b',')
                .map(<[u8]>::trim_ascii)
                .any(|field| field == b"*" || field.eq_ignore_ascii_case(b"Accept-Encoding"))
    };
    if !head.fields.iter().any(says) {
        // A list may be spread over several fields (RFC 9110 §5.3), so the application's own field
        // stays unchanged.
        head.field("Vary", &b"Accept-Encoding"[..]);
    }
}

/// Turns the head of a response into the head of its compressed form, without a length. The caller
/// sets the length if it is known.
pub(super) fn compressed(head: &mut ResponseHead, coding: Coding) {
    head.length = None;
    head.fields.retain(|field| {
        let is = |name: &str| field.is(name);
        !is("Accept-Ranges") && !is("Content-Encoding") && !DIGESTS.into_iter().any(is)
    });
    if let Some(tag) = tag(head)
        && let Some(other) = etag::of_compressed(tag.value(), coding)
    {
        tag.set_value(other);
    }
    head.field("Content-Encoding", coding.name());
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn tag(head: &mut ResponseHead) -> Option<&mut Field> {
    head.fields.iter_mut().find(|field| field.is("ETag"))
}

/// True for `Cache-Control: no-transform` (RFC 9111 §5.2.2.6).
fn forbids_transform(head: &ResponseHead) -> bool {
    head.fields.iter().any(|field| {
        field.is("Cache-Control")
            && field
                .value()
                .split(|&b| b == b',')
                .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
    })
}

/// True if another site may have caused the request in order to learn a secret of the client's page
/// from the length of the compressed response (BREACH): the request carries credentials, is
/// encrypted, and neither `Sec-Fetch-Site` nor `Referer` shows that it comes from the site itself.
/// Browsers send `Sec-Fetch-Site` with every request; a page cannot change it.
fn may_be_attack(request: &Request) -> bool {
    let headers = &request.headers;
    let has_certificate =
        || request.tls.as_ref().is_some_and(|shown| shown.client_certificate.is_some());
    let has_credentials =
        headers.contains_key(COOKIE) || headers.contains_key(AUTHORIZATION) || has_certificate();
    if request.scheme != Scheme::Https || !has_credentials {
        return false;
    }
    let is_own = match headers.get("Sec-Fetch-Site") {
        // `none`: the user typed the address.
        Some(site) => site == "same-origin" || site == "none",
        None => headers.get(REFERER).is_some_and(|page| is_of_this_site(page.as_bytes(), request)),
    };
    !is_own
}

fn is_of_this_site(page: &[u8], request: &Request) -> bool {
    let Some(host) = &request.host else { return false };
    let rest = page.strip_prefix(b"https://").and_then(|rest| rest.strip_prefix(&host[..]));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_message::request::sample::request;

    fn head(status: u16, fields: &[(&'static str, &'static str)]) -> ResponseHead {
        let mut head = ResponseHead::new(StatusCode::from_u16(status).unwrap(), None);
        for (name, value) in fields {
            head.field(name, *value);
        }
        head
    }

    fn fields(head: &ResponseHead) -> String {
        head.fields.iter().map(Field::text).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_head_decides() {
        let rules = Compression::default();
        let mut request = request(Some("example.org"));
        request.headers.insert("accept-encoding", HeaderValue::from_static("br, gzip"));
        let policy = |of, producer| Policy::new(&rules, of, producer, &request, None);
        assert!(policy(Compress::Off, Producer::Server).is_none());
        assert!(policy(Compress::Static, Producer::Application).is_none());
        let files_only = policy(Compress::Static, Producer::Server).unwrap();
        let policy = policy(Compress::All, Producer::Server).unwrap();
        let html = ("Content-Type", "text/html; charset=utf-8");
        let br = CompressionDecision::Compressed(Coding::Brotli);
        assert_eq!(files_only.verdict(&head(200, &[html])), br);
        assert_eq!(
            files_only.verdict(&head(404, &[html])),
            CompressionDecision::Plain,
            "perhaps a script's"
        );
        for (status, more, expected) in [
            (200, &[html][..], br),
            (404, &[html], br),
            (200, &[("content-type", "IMAGE/SVG+XML")], br),
            (200, &[("Content-Type", "image/png")], CompressionDecision::Plain),
            (200, &[("Content-Type", "textile/x")], CompressionDecision::Plain),
            (200, &[], CompressionDecision::Plain),
            (200, &[html, ("Content-Encoding", "gzip")], CompressionDecision::Plain),
            (200, &[html, ("Content-Encoding", "identity")], br),
            (200, &[html, ("Cache-Control", "public,  No-Transform")], CompressionDecision::Plain),
            (204, &[html], CompressionDecision::Plain),
            (206, &[html], CompressionDecision::Varies),
            (200, &[html, ("Content-Range", "bytes 0-1/2")], CompressionDecision::Varies),
            (304, &[], CompressionDecision::Varies),
        ] {
            assert_eq!(policy.verdict(&head(status, more)), expected, "{status} {more:?}");
        }
        let mut short = head(200, &[html]);
        short.length = Some(1023);
        assert_eq!(policy.verdict(&short), CompressionDecision::Plain);
        short.length = Some(1024);
        assert_eq!(policy.verdict(&short), br);
        let mut part = head(206, &[html]);
        part.length = Some(100);
        assert_eq!(policy.verdict(&part), CompressionDecision::Varies);
    }

    #[test]
    fn what_describes_the_uncompressed_body_goes() {
        let mut head = head(
            200,
            &[
                ("etag", "\"x\""),
                ("Accept-Ranges", "bytes"),
                ("Repr-Digest", "sha-256=:x:"),
                ("Vary", "Cookie"),
                ("Content-MD5", "x"),
            ],
        );
        head.length = Some(5000);
        vary(&mut head);
        vary(&mut head);
        compressed(&mut head, Coding::Zstd);
        assert_eq!(head.length, None);
        assert_eq!(
            fields(&head),
            "etag: W/\"x+zstd\"\nVary: Cookie\nVary: Accept-Encoding\nContent-Encoding: zstd"
        );
        let mut known = self::head(200, &[("Vary", "Cookie, accept-encoding")]);
        vary(&mut known);
        let mut all = self::head(200, &[("Vary", "*")]);
        vary(&mut all);
        assert_eq!([known.fields.len(), all.fields.len()], [1, 1]);
    }

    #[test]
    fn pages_with_secrets_are_not_compressed_for_other_sites() {
        let rules = Compression::default();
        let html = head(200, &[("Content-Type", "text/html")]);
        let compressed = |scheme, producer, fields: &[(&'static str, &'static str)]| {
            let mut request = request(Some("example.org"));
            request.scheme = scheme;
            request.headers.insert("accept-encoding", HeaderValue::from_static("gzip"));
            for (name, value) in fields {
                request.headers.insert(*name, HeaderValue::from_static(value));
            }
            let policy = Policy::new(&rules, Compress::All, producer, &request, None).unwrap();
            policy.verdict(&html) != CompressionDecision::Varies
        };
        let cookie = ("cookie", "session=1");
        for (fields, expected) in [
            (&[][..], true),
            (&[cookie], false),
            (&[("authorization", "Basic eDp5")], false),
            (&[cookie, ("sec-fetch-site", "same-origin")], true),
            (&[cookie, ("sec-fetch-site", "none")], true),
            (&[cookie, ("sec-fetch-site", "same-site")], false),
            (&[cookie, ("sec-fetch-site", "cross-site")], false),
            (
                &[cookie, ("sec-fetch-site", "cross-site"), ("referer", "https://example.org/")],
                false,
            ),
            (&[cookie, ("referer", "https://example.org/a")], true),
            (&[cookie, ("referer", "https://example.org")], true),
            (&[cookie, ("referer", "https://example.org.evil/")], false),
            (&[cookie, ("referer", "https://evil/https://example.org/")], false),
            (&[cookie, ("referer", "http://example.org/")], false),
        ] {
            assert_eq!(
                compressed(Scheme::Https, Producer::Application, fields),
                expected,
                "{fields:?}"
            );
            assert!(compressed(Scheme::Http, Producer::Application, fields), "{fields:?}");
            assert!(compressed(Scheme::Https, Producer::Server, fields), "{fields:?}");
        }
    }
}
