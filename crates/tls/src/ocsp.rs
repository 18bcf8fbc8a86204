//! Stored OCSP responses (RFC 6960 §4.2.1): the parts that decide whether clients can use them.

use x509_parser::asn1_rs::{Any, Class, FromDer, GeneralizedTime, Tag};

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The responder has refused to answer, for this reason.
    Refused(&'static str),
    /// The responder's statements about certificates.
    Answers(Vec<CertificateStatus>),
}

/// A responder's statement about one certificate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CertificateStatus {
    /// The serial number of the certificate, as encoded in the response.
    pub(crate) serial: Vec<u8>,
    /// True if the certificate is good.
    pub(crate) is_good: bool,
    /// End of the statement's validity, in seconds since 1970; `None` if the response has none.
    pub(crate) ends: Option<i64>,
}

/// Decodes a response; `None` if the bytes are not one.
pub(crate) fn read(bytes: &[u8]) -> Option<Response> {
    let (_, whole) = element(bytes, Tag::Sequence)?;
    let (rest, status) = element(whole, Tag::Enumerated)?;
    match status {
        [0] => {}
        [1] => return Some(Response::Refused("malformedRequest")),
        [2] => return Some(Response::Refused("internalError")),
        [3] => return Some(Response::Refused("tryLater")),
        [5] => return Some(Response::Refused("sigRequired")),
        [6] => return Some(Response::Refused("unauthorized")),
        _ => return None,
    }
    let (_, bytes) = tagged(rest, 0)?;
    let (_, bytes) = element(bytes, Tag::Sequence)?;
    let (rest, _) = element(bytes, Tag::Oid)?;
    let (_, basic) = element(rest, Tag::OctetString)?;
    let (_, basic) = element(basic, Tag::Sequence)?;
    let (_, data) = element(basic, Tag::Sequence)?;
    let data = tagged(data, 0).map_or(data, |(rest, _version)| rest);
    let (data, _responder) = any(data)?;
    let (data, _produced_at) = element(data, Tag::GeneralizedTime)?;
    let (_, mut all) = element(data, Tag::Sequence)?;
    let mut answers = Vec::new();
    while !all.is_empty() {
        let (rest, one) = element(all, Tag::Sequence)?;
        answers.push(answer(one)?);
        all = rest;
    }
    Some(Response::Answers(answers))
}

fn answer(one: &[u8]) -> Option<CertificateStatus> {
    let (rest, id) = element(one, Tag::Sequence)?;
    let (id, _algorithm) = element(id, Tag::Sequence)?;
    let (id, _name) = element(id, Tag::OctetString)?;
    let (id, _key) = element(id, Tag::OctetString)?;
    let (_, serial) = element(id, Tag::Integer)?;
    let (rest, status) = any(rest)?;
    let (rest, _this_update) = element(rest, Tag::GeneralizedTime)?;
    let ends = tagged(rest, 0).and_then(|(_, time)| GeneralizedTime::from_der(time).ok());
    Some(CertificateStatus {
        serial: serial.to_vec(),
        is_good: status.tag().0 == 0,
        ends: ends.and_then(|(_, time)| Some(time.utc_datetime().ok()?.unix_timestamp())),
    })
}

/// Splits off the first element: returns the rest and the element.
fn any(bytes: &[u8]) -> Option<(&[u8], Any<'_>)> {
    Any::from_der(bytes).ok()
}

/// Splits off the first element, which must have this tag: returns the rest and its contents.
fn element(bytes: &[u8], tag: Tag) -> Option<(&[u8], &[u8])> {
    let (rest, element) = any(bytes)?;
    (element.class() == Class::Universal && element.tag() == tag).then_some((rest, element.data))
}

/// Splits off the first element, which must have this context-specific tag: returns the rest and
/// its contents.
fn tagged(bytes: &[u8], number: u32) -> Option<(&[u8], &[u8])> {
    let (rest, element) = any(bytes)?;
    let is_meant = element.class() == Class::ContextSpecific && element.tag() == Tag(number);
    is_meant.then_some((rest, element.data))
}
