//! gRPC's health service (`grpc.health.v1.Health/Check`, the GRPC Health Checking Protocol).

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use sendoff_config::GrpcCheck;
use sendoff_delivery::segment::Segment;
use sendoff_http1::CgiHead;
use sendoff_upstream::error::{UpstreamError, UpstreamErrorKind};
use sendoff_upstream::inbox::Event;

use super::{CheckExchange, unfit};

/// The method of the health service.
pub(super) const PATH: &str = "/grpc.health.v1.Health/Check";

/// Bytes in front of a message: a flag for compression, and the length.
const PREFIX: usize = 5;
/// The longest answer that is read: the message has one number.
const MAX_ANSWER: usize = 1024;
/// Key of field 1 as a text, in the wire format of protobuf.
const TEXT_1: u8 = 1 << 3 | 2;
/// Key of field 1 as a number.
const NUMBER_1: u8 = 1 << 3;

/// A `HealthCheckRequest { service }`.
pub(super) fn request(check: &GrpcCheck) -> Bytes {
    let mut message = BytesMut::new();
    if !check.service.is_empty() {
        message.put_u8(TEXT_1);
        put_varint(&mut message, check.service.len());
        message.put_slice(check.service.as_bytes());
    }
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put(message);
    framed.freeze()
}

fn put_varint(out: &mut BytesMut, mut number: usize) {
    while number >= 0x80 {
        out.put_u8(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.put_u8(number.to_le_bytes()[0]);
}

/// Reads the answer to its end.
pub(super) async fn answer(
    check: &GrpcCheck,
    exchange: &mut CheckExchange,
) -> Result<(), UpstreamError> {
    let (mut body, mut code) = (Vec::new(), None);
    loop {
        match exchange.next().await? {
            Event::Head(head) if head.status.is_informational() => {}
            Event::Head(head) if head.status != http::StatusCode::OK => {
                return Err(says(&format!("status {}", head.status.as_u16())));
            }
            Event::Head(head) => code = code_in_head(&head),
            Event::Segment(Segment::Bytes(bytes)) => {
                let room = MAX_ANSWER - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Event::Trailers(trailers) => code = code_in_trailers(trailers.fields()).or(code),
            Event::End(_) => return verdict(check, code.as_deref(), &body),
            _ => {}
        }
    }
}

/// The code of a response that is only a head (`Trailers-Only`).
fn code_in_head(head: &CgiHead) -> Option<Vec<u8>> {
    let field = head.fields.iter().find(|field| field.is("grpc-status"))?;
    Some(field.value().to_vec())
}

fn code_in_trailers(fields: &HeaderMap) -> Option<Vec<u8>> {
    fields.get("grpc-status").map(|code| code.as_bytes().to_vec())
}

fn verdict(check: &GrpcCheck, code: Option<&[u8]>, body: &[u8]) -> Result<(), UpstreamError> {
    match code {
        Some(b"0") => {}
        Some(b"5") => return Err(says(&format!("no service {:?}", check.service))),
        Some(b"12") => return Err(says("no health service (UNIMPLEMENTED)")),
        Some(code) => return Err(says(&format!("code {} of gRPC", code.escape_ascii()))),
        None => return Err(says("no code of gRPC")),
    }
    match serving_status(body) {
        Some(1) => Ok(()),
        Some(2) => Err(says("NOT_SERVING")),
        Some(3) => Err(says("SERVICE_UNKNOWN")),
        Some(_) => Err(says("an unknown state")),
        None => Err(says("no message of the health service")),
    }
}

/// The number in a `HealthCheckResponse { status }`. A message without the field has the default, 0.
fn serving_status(body: &[u8]) -> Option<u8> {
    let (prefix, message) = body.split_at_checked(PREFIX)?;
    let len = u32::from_be_bytes(prefix[1..].try_into().ok()?);
    let is_whole = usize::try_from(len).is_ok_and(|len| len == message.len());
    match message {
        _ if prefix[0] != 0 || !is_whole => None,
        [] => Some(0),
        [NUMBER_1, status] if *status < 0x80 => Some(*status),
        _ => None,
    }
}

fn says(answer: &str) -> UpstreamError {
    let why = format!("its check by gRPC was answered with {answer}");
    unfit(UpstreamErrorKind::Broken, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(service: &str) -> GrpcCheck {
        GrpcCheck { service: service.to_owned(), host: None }
    }

    #[test]
    fn requests_name_the_service() {
        assert_eq!(&request(&check(""))[..], b"\0\0\0\0\0");
        assert_eq!(&request(&check("a.B"))[..], b"\0\0\0\0\x05\x0a\x03a.B");
        let long = request(&check(&"x".repeat(200)));
        assert_eq!(long[..8], *b"\0\0\0\0\xcb\x0a\xc8\x01");
    }

    #[test]
    fn only_a_host_that_serves_is_up() {
        let check = check("a.B");
        let said = |code: Option<&[u8]>, body: &[u8]| {
            verdict(&check, code, body).map_err(|error| error.to_string())
        };
        assert_eq!(said(Some(b"0"), b"\0\0\0\0\x02\x08\x01"), Ok(()));
        for (code, body, why) in [
            (Some(&b"0"[..]), &b"\0\0\0\0\x02\x08\x02"[..], "NOT_SERVING"),
            (Some(b"0"), b"\0\0\0\0\0", "an unknown state"),
            (Some(b"0"), b"\0\0\0\0\x02\x08", "no message"),
            (Some(b"0"), b"\x01\0\0\0\x02\x08\x01", "no message"),
            (Some(b"0"), b"", "no message"),
            (Some(b"5"), b"", "no service \"a.B\""),
            (Some(b"12"), b"", "no health service"),
            (Some(b"14"), b"", "code 14"),
            (None, b"\0\0\0\0\x02\x08\x01", "no code"),
        ] {
            let said = said(code, body).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
