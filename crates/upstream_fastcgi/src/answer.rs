//! The answer to one request over a connection, without the I/O: records come in, and their meaning
//! goes out as [`AnswerEvent`].

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use sendoff_fastcgi::direct::Sent;
use sendoff_fastcgi::handover::{Hints, MAX_EXPLANATION, Record};
use sendoff_fastcgi::record::{EndRequest, Kind};
use sendoff_fastcgi::region::Piece;
use sendoff_fastcgi::{Decoder, RecordPart};
use sendoff_message::response::ResponseEnd;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};

/// Descriptors that may wait for the record that needs them: an application has only one to send.
const MAX_WAITING_DESCRIPTORS: usize = 1;

/// `protocolStatus` of an `END_REQUEST` that refuses (FastCGI 1.0 §5.5).
pub(super) const CANT_MPX_CONN: u8 = 1;
pub(super) const OVERLOADED: u8 = 2;

/// One event of an application's answer; `D` is a descriptor.
#[derive(Debug)]
pub(super) enum AnswerEvent<D> {
    /// Bytes of the CGI header block and the body.
    Bytes(Bytes),
    /// The application has written the beginning of the response to the client.
    Sent(Sent),
    /// Memory that the application shares on this connection.
    Region(D),
    /// Bytes of the body in that memory.
    Piece(Piece),
    /// Text about the bytes that follow, for `sendoff explain`.
    Explanation(Bytes),
    /// A part of the application's log output.
    Log { text: Bytes, ends_record: bool },
    /// The response comes on the connection that was sent along with the request.
    Tunnel,
    /// The response has ended; the connection may serve the next request.
    End(Hints, ResponseEnd),
}

/// The kind of connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    /// A UNIX socket. It also carries descriptors, so the application may use handover.
    Unix,
    Tcp,
}

/// The party that may write to the client.
///
/// ```text
///  Lent ── SENT, or the first bytes of the response ──▶ Front
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketHolder {
    Front,
    Lent,
}

/// The connection that was sent along with the request, for an answer in HTTP/1.1.
///
/// ```text
///            TUNNEL
///  Offered ──────────▶ Chosen
///     └── the first bytes of another answer ──▶ None
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TunnelState {
    None,
    Offered,
    /// Only log output and the end of the request may follow.
    Chosen,
}

/// State of the answer: nothing or something was received since the request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voice {
    Silent,
    Heard,
}

/// Parses the records of the answer to one request.
#[derive(Debug)]
pub(super) struct FastCgiResponseParser {
    id: u16,
    /// The previous request on a kept connection.
    previous: Option<u16>,
    medium: Medium,
    holder: SocketHolder,
    tunnel: TunnelState,
    voice: Voice,
    decoder: Decoder,
}

impl FastCgiResponseParser {
    /// The answer to request `id`, on a connection whose last request was `previous`.
    pub(super) fn new(
        id: u16,
        previous: Option<u16>,
        medium: Medium,
        holder: SocketHolder,
    ) -> Self {
        Self {
            id,
            previous,
            medium,
            holder,
            tunnel: TunnelState::None,
            voice: Voice::Silent,
            decoder: Decoder::default(),
        }
    }

    /// Lets the application answer with `TUNNEL`.
    pub(super) fn offer_tunnel(&mut self) {
        self.tunnel = TunnelState::Offered;
    }

    /// The party that may write to the client now.
    pub(super) fn holder(&self) -> SocketHolder {
        self.holder
    }

    /// True if the connection has served another request before.
    pub(super) fn is_after_another(&self) -> bool {
        self.previous.is_some()
    }

    /// True if no byte of a further record has arrived.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.decoder.at_boundary()
    }

    /// The error for a connection that the application closed after `sent` bytes of the request,
    /// which `were_read` for certain. A retry is safe if the application has read nothing: either
    /// no byte was sent, or it may have closed an idle kept connection before the request arrived.
    pub(super) fn closed(&self, sent: u64, were_read: bool) -> UpstreamError {
        let may_be_unread = self.previous.is_some() && !were_read;
        let is_unread = self.voice == Voice::Silent && (may_be_unread || sent == 0);
        UpstreamError::died(if is_unread { Retry::Safe } else { Retry::Unsafe })
    }

    /// The next event of the answer; `None` until more bytes have been received.
    ///
    /// # Errors
    /// The application refuses the request, or breaks the protocol. The connection cannot be used
    /// any longer.
    pub(super) fn next<D>(
        &mut self,
        received: &mut BytesMut,
        descriptors: &mut VecDeque<D>,
    ) -> Result<Option<AnswerEvent<D>>, UpstreamError> {
        if descriptors.len() > MAX_WAITING_DESCRIPTORS {
            return Err(UpstreamError::broken("it sent descriptors that no record claims"));
        }
        if !received.is_empty() {
            self.voice = Voice::Heard;
        }
        while let Some(part) = self.decoder.next(received).map_err(malformed)? {
            if let Some(output) = self.part(part, descriptors)? {
                return Ok(Some(output));
            }
        }
        Ok(None)
    }

    fn part<D>(
        &mut self,
        part: RecordPart,
        descriptors: &mut VecDeque<D>,
    ) -> Result<Option<AnswerEvent<D>>, UpstreamError> {
        let (RecordPart::Stream { kind, request_id, .. }
        | RecordPart::EndOfStream { kind, request_id }
        | RecordPart::Record { kind, request_id, .. }) = part;
        // php-fpm sends a script's output after fastcgi_finish_request() behind the end of its
        // response.
        if Some(request_id) == self.previous {
            return Ok(None);
        }
        if request_id != self.id {
            return Err(out_of_place(kind));
        }
        match part {
            RecordPart::Stream { kind: Kind::STDOUT, data, .. } => {
                self.decline_tunnel(kind)?;
                self.holder = SocketHolder::Front;
                Ok(Some(AnswerEvent::Bytes(data)))
            }
            RecordPart::Stream { kind: Kind::STDERR, data, .. } => {
                let ends_record = !self.decoder.is_inside_content();
                Ok(Some(AnswerEvent::Log { text: data, ends_record }))
            }
            RecordPart::EndOfStream { kind: Kind::STDOUT | Kind::STDERR, .. } => Ok(None),
            RecordPart::Record { kind: Kind::END_REQUEST, content, padding, .. } => {
                let hints = match self.medium {
                    Medium::Unix => Hints::of(&padding),
                    Medium::Tcp => Hints::default(),
                };
                let ending = end(&content)?;
                Ok(Some(AnswerEvent::End(hints, ending)))
            }
            RecordPart::Record { kind: Kind::EXPLAIN, content, .. }
                if self.medium == Medium::Unix && content.len() <= MAX_EXPLANATION =>
            {
                Ok(Some(AnswerEvent::Explanation(content)))
            }
            RecordPart::Record { kind, content, .. } => {
                match Record::decode(kind, &content).map_err(malformed)? {
                    Some(record) => self.record(kind, record, descriptors).map(Some),
                    None => Err(out_of_place(kind)),
                }
            }
            _ => Err(out_of_place(kind)),
        }
    }

    fn record<D>(
        &mut self,
        kind: Kind,
        record: Record,
        descriptors: &mut VecDeque<D>,
    ) -> Result<AnswerEvent<D>, UpstreamError> {
        match record {
            Record::Tunnel if self.tunnel == TunnelState::Offered => {
                (self.holder, self.tunnel) = (SocketHolder::Front, TunnelState::Chosen);
                return Ok(AnswerEvent::Tunnel);
            }
            // A region may be announced early.
            Record::Region => {}
            _ => self.decline_tunnel(kind)?,
        }
        match record {
            Record::Region => {
                let missing = || UpstreamError::broken("it announced a region and sent none");
                descriptors.pop_front().map(AnswerEvent::Region).ok_or_else(missing)
            }
            Record::Sent(sent) if self.holder == SocketHolder::Lent => {
                self.holder = SocketHolder::Front;
                Ok(AnswerEvent::Sent(sent))
            }
            Record::Sent(_) => Err(UpstreamError::broken("a SENT record out of place")),
            Record::Piece(piece) => {
                self.holder = SocketHolder::Front;
                Ok(AnswerEvent::Piece(piece))
            }
            _ => Err(out_of_place(kind)),
        }
    }

    /// Notes that the answer begins on this connection.
    fn decline_tunnel(&mut self, kind: Kind) -> Result<(), UpstreamError> {
        match self.tunnel {
            TunnelState::Chosen => Err(out_of_place(kind)),
            TunnelState::None | TunnelState::Offered => {
                self.tunnel = TunnelState::None;
                Ok(())
            }
        }
    }
}

pub(super) fn end(content: &[u8]) -> Result<ResponseEnd, UpstreamError> {
    // With these statuses the application states that it has not begun with the request.
    let busy = |why| UpstreamError::new(UpstreamErrorKind::Overloaded, Retry::Safe, why);
    let EndRequest { app_status, protocol_status } =
        EndRequest::decode(content).map_err(malformed)?;
    match protocol_status {
        0 => Ok(ResponseEnd::of(app_status)),
        CANT_MPX_CONN => Err(busy("it takes one request at a time (CANT_MPX_CONN)")),
        OVERLOADED => Err(busy("it is overloaded")),
        status => Err(UpstreamError::broken(format!("it refused the request, status {status}"))),
    }
}

pub(super) fn malformed(error: sendoff_fastcgi::Error) -> UpstreamError {
    UpstreamError::broken(error.to_string())
}

pub(super) fn out_of_place(kind: Kind) -> UpstreamError {
    UpstreamError::broken(format!("a record of type {} out of place", kind.0))
}

#[cfg(test)]
mod tests {
    use sendoff_fastcgi::direct::Rest;
    use sendoff_fastcgi::handover::Sockets;
    use sendoff_fastcgi::record::Header;

    use super::*;

    const SENT: Sent = Sent {
        wire: 100,
        head: 50,
        framed: 0,
        rest: Rest::Length(0),
        status: 200,
        gone: false,
        surplus: false,
    };

    fn stream(kind: Kind, id: u16, text: &[u8]) -> Vec<u8> {
        [&Header::new(kind, id, text.len().try_into().unwrap()).encode(), text].concat()
    }

    fn record(record: Record) -> Vec<u8> {
        let mut wire = Vec::new();
        record.encode(2, &mut wire);
        wire
    }

    fn end(protocol_status: u8) -> Vec<u8> {
        let end = EndRequest { app_status: 0, protocol_status };
        Hints { region: true, direct: Sockets::All, channel: false, tunnel: false }
            .end_request(end, 2)
            .to_vec()
    }

    fn answer(medium: Medium, holder: SocketHolder) -> FastCgiResponseParser {
        FastCgiResponseParser::new(2, Some(1), medium, holder)
    }

    /// The events in these pieces, neighbouring bytes joined, or the error.
    fn hear(
        answer: &mut FastCgiResponseParser,
        pieces: &[&[u8]],
        fds: &[u32],
    ) -> Result<Vec<String>, UpstreamError> {
        let (mut buffer, mut fds) = (BytesMut::new(), VecDeque::from(fds.to_vec()));
        let (mut said, mut body) = (Vec::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Some(output) = answer.next(&mut buffer, &mut fds)? {
                match output {
                    AnswerEvent::Bytes(bytes) => body.extend_from_slice(&bytes),
                    other => {
                        said.push(format!("{:?} {other:?}", String::from_utf8_lossy(&body)));
                        body.clear();
                    }
                }
            }
        }
        Ok(said)
    }

    #[test]
    fn an_answer_means_the_same_however_it_is_cut() {
        let piece = Record::Piece(Piece { chunk: 0, last: true, offset: 0, length: 5 });
        let wire = [
            stream(Kind::STDOUT, 1, b"late words of the previous request"),
            stream(Kind::STDOUT, 2, b"Status: 200\r\n\r\n"),
            record(Record::Region),
            record(piece),
            stream(Kind::STDOUT, 2, b"the end"),
            stream(Kind::STDOUT, 2, b""),
            end(0),
        ]
        .concat();
        let whole = hear(&mut answer(Medium::Unix, SocketHolder::Front), &[&wire], &[5]).unwrap();
        assert_eq!(whole.len(), 3, "{whole:?}");
        assert!(whole[2].contains("the end") && whole[2].contains("direct: All"));
        for cut in 0..=wire.len() {
            let mut answer = answer(Medium::Unix, SocketHolder::Front);
            let heard = hear(&mut answer, &[&wire[..cut], &wire[cut..]], &[5]);
            assert_eq!(heard.as_ref(), Ok(&whole), "cut at {cut}");
            assert!(answer.is_at_boundary());
        }
        // Over TCP, hints are ignored.
        let tcp = hear(&mut answer(Medium::Tcp, SocketHolder::Front), &[&end(0)], &[]).unwrap();
        assert!(tcp[0].contains("direct: None"));
    }

    #[test]
    fn a_connection_that_closes_says_whether_the_request_may_be_sent_again() {
        let heard = stream(Kind::STDERR, 2, b"x");
        for (previous, bytes, sent, expected) in [
            (Some(1), &b""[..], 100, Retry::Safe),
            (Some(1), &heard[..3], 100, Retry::Unsafe),
            (None, b"", 0, Retry::Safe),
            (None, b"", 1, Retry::Unsafe),
        ] {
            let mut answer =
                FastCgiResponseParser::new(2, previous, Medium::Unix, SocketHolder::Front);
            hear(&mut answer, &[bytes], &[]).unwrap();
            assert_eq!(
                answer.closed(sent, false).retry(),
                expected,
                "{previous:?}, {sent} bytes sent"
            );
        }
    }

    #[test]
    fn a_lent_socket_comes_back_once_and_first() {
        let sent = record(Record::Sent(SENT));
        let mut lent = answer(Medium::Unix, SocketHolder::Lent);
        hear(&mut lent, &[&sent], &[]).unwrap();
        assert_eq!(lent.holder(), SocketHolder::Front);
        hear(&mut lent, &[&sent], &[]).unwrap_err();
        hear(&mut answer(Medium::Unix, SocketHolder::Front), &[&sent], &[]).unwrap_err();
        let after_body = [stream(Kind::STDOUT, 2, b"x"), sent].concat();
        hear(&mut answer(Medium::Unix, SocketHolder::Lent), &[&after_body], &[]).unwrap_err();
    }

    #[test]
    fn an_answer_moves_to_its_own_connection_once_first_and_if_it_was_offered() {
        let offered = || {
            let mut answer = answer(Medium::Unix, SocketHolder::Front);
            answer.offer_tunnel();
            answer
        };
        let (tunnel, log) = (record(Record::Tunnel), stream(Kind::STDERR, 2, b"late"));
        let ended = [stream(Kind::STDOUT, 2, b""), end(0)].concat();
        let heard = hear(&mut offered(), &[&tunnel, &log, &ended], &[]).unwrap();
        assert!(heard[0].contains("Tunnel") && heard.len() == 3, "{heard:?}");
        hear(&mut answer(Medium::Unix, SocketHolder::Front), &[&tunnel], &[]).unwrap_err();
        let body = stream(Kind::STDOUT, 2, b"Status: 200\r\n\r\n");
        let piece = record(Record::Piece(Piece { chunk: 0, last: true, offset: 0, length: 5 }));
        for second in [&tunnel, &body, &piece] {
            hear(&mut offered(), &[&tunnel, second], &[]).unwrap_err();
        }
        for first in [&body, &piece] {
            hear(&mut offered(), &[first, &tunnel], &[]).unwrap_err();
        }
        // A descriptor does not come along.
        hear(&mut offered(), &[&tunnel], &[1, 2]).unwrap_err();
    }

    #[test]
    fn explanations_are_short_and_come_over_unix_sockets() {
        let explanation = |len| stream(Kind::EXPLAIN, 2, &vec![b'x'; len]);
        let unix = || answer(Medium::Unix, SocketHolder::Front);
        let heard = hear(&mut unix(), &[&explanation(MAX_EXPLANATION)], &[]).unwrap();
        assert!(heard[0].contains("Explanation"), "{heard:?}");
        hear(&mut unix(), &[&explanation(MAX_EXPLANATION + 1)], &[]).unwrap_err();
        let mut tcp = answer(Medium::Tcp, SocketHolder::Front);
        hear(&mut tcp, &[&explanation(1)], &[]).unwrap_err();
    }

    #[test]
    fn refusals_and_nonsense_are_told_apart() {
        let heard = |wire: &[u8], fds: &[u32]| {
            let heard = hear(&mut answer(Medium::Unix, SocketHolder::Front), &[wire], fds);
            heard.unwrap_err().kind()
        };
        assert_eq!(heard(&end(CANT_MPX_CONN), &[]), UpstreamErrorKind::Overloaded);
        assert_eq!(heard(&end(OVERLOADED), &[]), UpstreamErrorKind::Overloaded);
        for nonsense in [
            end(3),
            record(Record::Region),
            record(Record::Detach),
            stream(Kind::STDIN, 2, b"x"),
            stream(Kind::STDOUT, 3, b"x"),
            b"HTTP/1.1 200".to_vec(),
        ] {
            assert_eq!(heard(&nonsense, &[]), UpstreamErrorKind::Broken, "{nonsense:?}");
        }
        assert_eq!(heard(b"", &[1, 2]), UpstreamErrorKind::Broken);
    }
}
