//! Parses the response of a host, for all protocols.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use sendoff_ajp as ajp;
use sendoff_http1::client::{Reply, ResponseDecoder};
use sendoff_http1::{BadHead, CgiHead, CgiHeadReader, Trailers};
use sendoff_upstream::error::UpstreamError;

use super::protocol::RequestProtocol;
use super::request::GatewayRequest;
use super::websocket::WebSocketKey;

/// An event of the response.
#[derive(Debug)]
pub(super) enum ResponseEvent {
    /// A response head; interim if its status is 1xx.
    Head(CgiHead),
    /// The protocol has changed: the bytes that follow are no response.
    Switch(CgiHead),
    /// Bytes of the body.
    Bytes(Bytes),
    /// The fields behind the body; the end follows.
    Trailers(Trailers),
    /// The application asks for bytes of the request body (AJP).
    Wants(u16),
    /// The response is complete; `may_stay`: the connection may serve another request.
    End { may_stay: bool },
    /// No event until more bytes are received.
    Nothing,
}

/// Parses one response.
#[derive(Debug)]
pub(super) enum GatewayResponseParser {
    Http {
        decoder: ResponseDecoder,
        /// The client offers to change the protocol.
        upgrade: bool,
        key: Option<WebSocketKey>,
    },
    Scgi(Scgi),
    /// The connection serves one request, whatever the response says.
    Uwsgi(ResponseDecoder),
    Ajp {
        decoder: ajp::Decoder,
        has_head: bool,
    },
}

#[derive(Debug)]
pub(super) enum Scgi {
    Head(CgiHeadReader),
    Body,
}

impl GatewayResponseParser {
    pub(super) fn new(request: &GatewayRequest) -> Self {
        match request.protocol {
            RequestProtocol::Http { upgrade, key, line_ends } => Self::Http {
                decoder: ResponseDecoder::new(request.is_head).accept(line_ends),
                upgrade,
                key,
            },
            RequestProtocol::Scgi => Self::Scgi(Scgi::Head(CgiHeadReader::with_status_line())),
            RequestProtocol::Uwsgi => Self::Uwsgi(ResponseDecoder::new(request.is_head)),
            RequestProtocol::Ajp { packet_size } => {
                Self::Ajp { decoder: ajp::Decoder::new(packet_size), has_head: false }
            }
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// The application has broken the protocol; the connection cannot be used any longer.
    pub(super) fn next(&mut self, received: &mut BytesMut) -> Result<ResponseEvent, UpstreamError> {
        match self {
            Self::Http { decoder, upgrade, key } => http(decoder, *upgrade, *key, received),
            Self::Scgi(state) => scgi(state, received),
            Self::Uwsgi(decoder) => match http(decoder, false, None, received)? {
                ResponseEvent::End { .. } => Ok(ResponseEvent::End { may_stay: false }),
                event => Ok(event),
            },
            Self::Ajp { decoder, has_head } => from_container(decoder, has_head, received),
        }
    }

    /// To be called when the application has closed its sending direction. Returns true if the
    /// close is a regular end of the response.
    ///
    /// # Errors
    /// The connection was closed inside the header block (SCGI).
    pub(super) fn closed(&mut self) -> Result<bool, UpstreamError> {
        match self {
            Self::Http { decoder, .. } | Self::Uwsgi(decoder) => Ok(decoder.closed()),
            Self::Scgi(Scgi::Body) => Ok(true),
            Self::Scgi(Scgi::Head(head)) if head.is_empty() => Ok(false),
            Self::Scgi(Scgi::Head(_)) => {
                Err(UpstreamError::broken("it closed the connection inside the header block"))
            }
            Self::Ajp { .. } => Ok(false),
        }
    }
}

fn http(
    decoder: &mut ResponseDecoder,
    upgrade: bool,
    key: Option<WebSocketKey>,
    received: &mut BytesMut,
) -> Result<ResponseEvent, UpstreamError> {
    loop {
        return Ok(match decoder.next(received).map_err(wrong)? {
            // Ignored: the body is sent without waiting for it.
            Reply::Interim(head) if head.status == StatusCode::CONTINUE => continue,
            Reply::Interim(head) | Reply::Head(head) => ResponseEvent::Head(head),
            Reply::Switch(head) if upgrade && key.is_none_or(|key| is_answered(key, &head)) => {
                ResponseEvent::Switch(head)
            }
            Reply::Switch(_) if upgrade => {
                return Err(UpstreamError::broken("its Sec-WebSocket-Accept is not the key's"));
            }
            Reply::Switch(_) => {
                return Err(UpstreamError::broken("it changed the protocol unasked"));
            }
            Reply::Data(data) => ResponseEvent::Bytes(data),
            Reply::Trailers(trailers) => ResponseEvent::Trailers(trailers),
            Reply::End { may_stay } => ResponseEvent::End { may_stay },
            Reply::NeedMore => ResponseEvent::Nothing,
        });
    }
}

fn is_answered(key: WebSocketKey, head: &CgiHead) -> bool {
    let mut answers = head.fields.iter().filter(|field| field.is("Sec-WebSocket-Accept"));
    answers.next().is_some_and(|answer| key.is_answered_by(answer.value()))
}

fn scgi(state: &mut Scgi, received: &mut BytesMut) -> Result<ResponseEvent, UpstreamError> {
    if received.is_empty() {
        return Ok(ResponseEvent::Nothing);
    }
    let data = received.split().freeze();
    let Scgi::Head(reader) = state else { return Ok(ResponseEvent::Bytes(data)) };
    let Some((head, rest)) = reader.push(&data).map_err(wrong)? else {
        return Ok(ResponseEvent::Nothing);
    };
    *state = match head.status.is_informational() {
        true => Scgi::Head(CgiHeadReader::with_status_line()),
        false => Scgi::Body,
    };
    received.unsplit(BytesMut::from(rest));
    Ok(ResponseEvent::Head(head))
}

fn from_container(
    decoder: &ajp::Decoder,
    has_head: &mut bool,
    received: &mut BytesMut,
) -> Result<ResponseEvent, UpstreamError> {
    loop {
        if received.is_empty() {
            return Ok(ResponseEvent::Nothing);
        }
        let malformed = |wrong: ajp::Malformed| UpstreamError::broken(wrong.0);
        let Some(answer) = decoder.next(received).map_err(malformed)? else {
            return Ok(ResponseEvent::Nothing);
        };
        return Ok(match answer {
            ajp::ContainerPacket::Head { status, reason, fields } if !*has_head => {
                *has_head = true;
                ResponseEvent::Head(ajp_head(status, reason, fields)?)
            }
            // A request to flush, which is not needed.
            ajp::ContainerPacket::Data(data) if *has_head && data.is_empty() => continue,
            ajp::ContainerPacket::Data(data) if *has_head => ResponseEvent::Bytes(data),
            ajp::ContainerPacket::End { may_stay } if *has_head => ResponseEvent::End { may_stay },
            ajp::ContainerPacket::Wants(bytes) => ResponseEvent::Wants(bytes),
            _ => return Err(UpstreamError::broken("it sent a packet out of place")),
        });
    }
}

fn ajp_head(
    status: u16,
    reason: Bytes,
    fields: Vec<(Bytes, Bytes)>,
) -> Result<CgiHead, UpstreamError> {
    let status = StatusCode::from_u16(status).ok().filter(|status| !status.is_informational());
    let status = status.ok_or_else(|| UpstreamError::broken("it sent an invalid status"))?;
    let reason = Some(reason).filter(|reason| !reason.is_empty());
    CgiHead::of_fields(status, reason, fields).map_err(wrong)
}

fn wrong(head: BadHead) -> UpstreamError {
    UpstreamError::broken(format!("it sent {head}"))
}
