//! The records that come from the application: bytes for clients, log lines, ends.

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::record::{EndRequest, Header, Kind};
use sendoff_message::response::ResponseEnd;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::inbox::{Event, NotStored};
use sendoff_upstream::script_log::{LogMessage, Severity};
use tokio::time::Instant;

use super::{OpenRequest, RequestSlot, RequestStage, Requests};
use crate::answer;
use crate::driver::log;
use crate::facts::SharingRefusal;
use crate::peer::Peer;

/// Pieces below this size are copied: a client that does not read would otherwise keep the whole
/// receive buffer of a piece allocated.
const COPY_BELOW: usize = 16 * 1024;

/// Bytes on disk for one slow client from which on the connection takes no new requests. Once the
/// other requests have ended, the connection is not read, so the application waits for the client
/// (back-pressure).
pub(super) const BURDEN: u64 = 4 * 1024 * 1024;

impl Requests {
    /// Handles a part of a record; `ends_record`: it is the record's last part. Returns the
    /// refusal, if the application refuses a request.
    ///
    /// # Errors
    /// The application breaks the protocol. The connection cannot be used any longer.
    pub(in crate::shared) fn take(
        &mut self,
        part: RecordPart,
        ends_record: bool,
        peer: &Peer,
        now: Instant,
    ) -> Result<Option<SharingRefusal>, UpstreamError> {
        let (RecordPart::Stream { kind, request_id: id, .. }
        | RecordPart::EndOfStream { kind, request_id: id }
        | RecordPart::Record { kind, request_id: id, .. }) = part;
        let (written, shares) = (self.written, self.live + self.abandoned > 1);
        let open = match self.slot(id) {
            Some(RequestSlot::Open(open)) if open.begins_at.is_some_and(|at| at < written) => open,
            // A late record of a request that has ended.
            Some(RequestSlot::Free | RequestSlot::Spent) => return Ok(None),
            Some(RequestSlot::Open(_)) | None => return Err(answer::out_of_place(kind)),
        };
        open.since = now;
        if let (RequestStage::Abandoned { dropped, .. }, RecordPart::Stream { data, .. }) =
            (&mut open.stage, &part)
        {
            *dropped += data.len();
            return Ok(None);
        }
        open.is_heard = true;
        match part {
            RecordPart::Stream { kind: Kind::STDOUT, data, .. } => {
                self.deliver(id, data, shares, now);
            }
            RecordPart::Stream { kind: Kind::STDERR, data, .. } => {
                open.log(&data, ends_record, peer);
            }
            RecordPart::EndOfStream { kind: Kind::STDOUT | Kind::STDERR, .. } => {}
            RecordPart::Record { kind: Kind::END_REQUEST, content, .. } => {
                return self.end(id, &content);
            }
            _ => return Err(answer::out_of_place(kind)),
        }
        Ok(None)
    }

    /// Passes bytes on. Bytes that a slow client does not take are stored on disk, because other
    /// requests' records follow them.
    fn deliver(&mut self, id: u16, data: Bytes, shares: bool, now: Instant) {
        let Some(open) = self.live_one(id) else { return };
        if !open.inbox.is_full() {
            let data = match shares && data.len() < COPY_BELOW {
                true => Bytes::copy_from_slice(&data),
                false => data,
            };
            open.inbox.push(Event::Segment(Segment::Bytes(data)));
            self.may_be_stalled |= self.live_one(id).is_some_and(|open| open.inbox.is_full());
            return;
        }
        self.may_be_stalled = true;
        let Some(open) = self.live_one(id) else { return };
        let why = match open.inbox.store(&data) {
            Ok(()) => {
                self.is_burdened |= open.inbox.stored() > BURDEN;
                return;
            }
            Err(NotStored::Full) => {
                "its client is slow, and what waits for it has reached its limit"
            }
            Err(NotStored::NoDisk) => {
                "its client is slow, and the folder for temporary files takes nothing more"
            }
        };
        let error = UpstreamError::new(UpstreamErrorKind::Server, Retry::Unsafe, why);
        open.inbox.finish(Event::Failed(error));
        self.abandon(id, now);
    }

    fn end(&mut self, id: u16, content: &[u8]) -> Result<Option<SharingRefusal>, UpstreamError> {
        let status = EndRequest::decode(content).map_err(answer::malformed)?.protocol_status;
        let ended = answer::end(content);
        let Some(slot) = self.slot(id) else { return Ok(None) };
        let RequestSlot::Open(open) = std::mem::replace(slot, RequestSlot::Spent) else {
            return Ok(None);
        };
        self.is_proven = true;
        self.left(&open);
        if matches!(open.stage, RequestStage::Abandoned { .. }) {
            return Ok(None);
        }
        if open.outgoing.has_ended() {
            self.slots[usize::from(id) - 1] = RequestSlot::Free;
            self.free.push_back(id);
        } else {
            self.urgent.extend_from_slice(&Header::new(Kind::STDIN, id, 0).encode());
        }
        let refusal = match status {
            answer::CANT_MPX_CONN => Some(SharingRefusal::CannotShare),
            answer::OVERLOADED => Some(SharingRefusal::Overloaded),
            _ => None,
        };
        open.inbox.finish(match ended {
            Ok(ending) => Event::End(open.ending.and(ending)),
            Err(error) => Event::Failed(error),
        });
        Ok(refusal)
    }
}

impl OpenRequest {
    fn log(&mut self, text: &[u8], ends_record: bool, peer: &Peer) {
        let log = |entry: LogMessage| {
            if entry.severity == Severity::Fatal {
                self.ending = ResponseEnd::Failed;
            }
            log(peer, &self.label, entry);
        };
        let mut budget = peer.log_budget();
        self.log.push(text, ends_record, std::time::Instant::now(), &mut budget, log);
    }
}
