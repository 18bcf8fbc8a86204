//! The records that come from the worker: their meaning, if they are allowed in this state.

use std::collections::VecDeque;

use bytes::BytesMut;
use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::handover::{MAX_EXPLANATION, Record};
use sendoff_fastcgi::record::{EndRequest, Kind};

use super::response::{AtEnd, Busy, Source};
use super::{
    Broken, Caller, Event, Front, MAX_FILES, MAX_WAITING_DESCRIPTORS, Origin, Output, State,
};

impl<C: Caller> Front<C> {
    /// The worker's next message; `None` until more has been `received`. Descriptors are taken from
    /// the front of `descriptors`.
    ///
    /// # Errors
    /// The worker has violated the protocol: call [`Self::broken`] next.
    pub fn next(
        &mut self,
        received: &mut BytesMut,
        descriptors: &mut VecDeque<C::Received>,
    ) -> Result<Option<Output<C>>, Broken> {
        if descriptors.len() > MAX_WAITING_DESCRIPTORS {
            return Err(Broken::TooManyDescriptors);
        }
        while let Some(part) = self.decoder.next(received)? {
            if let Some(output) = self.part(part, descriptors)? {
                return Ok(Some(output));
            }
        }
        Ok(None)
    }

    fn part(
        &mut self,
        part: RecordPart,
        descriptors: &mut VecDeque<C::Received>,
    ) -> Result<Option<Output<C>>, Broken> {
        let (RecordPart::Stream { kind, request_id, .. }
        | RecordPart::EndOfStream { kind, request_id }
        | RecordPart::Record { kind, request_id, .. }) = part;
        let expected = match kind {
            // A worker may write to the log before its first request.
            Kind::STDERR => request_id,
            Kind::RECALL | Kind::RELEASE => 0,
            Kind::CLAIM if request_id != 0 => request_id,
            _ => self.request_id,
        };
        if request_id != expected {
            return Err(Broken::OutOfPlace(kind));
        }
        match part {
            RecordPart::Stream { kind: Kind::STDOUT, data, .. } => {
                self.busy(kind)?.body();
                Ok(Some(Output::Event(Event::Bytes(data))))
            }
            RecordPart::Stream { kind: Kind::STDERR, data, .. } => {
                let ends_record = !self.decoder.is_inside_content();
                Ok(Some(Output::Log { text: data, ends_record }))
            }
            RecordPart::EndOfStream { kind: Kind::STDOUT | Kind::STDERR, .. } => Ok(None),
            RecordPart::Stream { .. } | RecordPart::EndOfStream { .. } => {
                Err(Broken::OutOfPlace(kind))
            }
            RecordPart::Record { kind: Kind::END_REQUEST, content, .. } => {
                self.end_request(&content).map(Some)
            }
            RecordPart::Record { kind: Kind::EXPLAIN, content, .. } => {
                if content.len() > MAX_EXPLANATION {
                    return Err(Broken::LongExplanation);
                }
                self.busy(kind)?.body();
                Ok(Some(Output::Event(Event::Explanation(content))))
            }
            RecordPart::Record { kind, content, .. } => match Record::decode(kind, &content)? {
                Some(record) => self.record(kind, request_id, record, descriptors),
                None => Err(Broken::OutOfPlace(kind)),
            },
        }
    }

    fn record(
        &mut self,
        kind: Kind,
        request_id: u16,
        record: Record,
        descriptors: &mut VecDeque<C::Received>,
    ) -> Result<Option<Output<C>>, Broken> {
        let mut descriptor = || descriptors.pop_front().ok_or(Broken::NoDescriptor(kind));
        Ok(Some(match record {
            Record::Open(id) => {
                if self.files.len() == MAX_FILES {
                    return Err(Broken::TooManyFiles);
                }
                if !self.files.insert(id) {
                    return Err(Broken::WrongFile(kind));
                }
                Output::Open(id, descriptor()?)
            }
            Record::Segment { file, offset, length } => {
                if !self.files.contains(&file) {
                    return Err(Broken::WrongFile(kind));
                }
                self.busy(kind)?.body();
                Output::Event(Event::Segment { file, offset, length })
            }
            Record::Recall(id) => {
                self.files.remove(&id);
                Output::Recall(id)
            }
            Record::Release(id) => {
                if !self.files.remove(&id) {
                    return Err(Broken::WrongFile(kind));
                }
                Output::Release(id)
            }
            Record::Length(length) => {
                self.busy(kind)?.length()?;
                Output::Event(Event::Length(length))
            }
            Record::Sent(sent) => {
                self.busy(kind)?.sent()?;
                Output::Event(Event::Sent(sent))
            }
            Record::Named => {
                let descriptor = descriptor()?;
                self.busy(kind)?.named()?;
                Output::Event(Event::Named(descriptor))
            }
            Record::Region => {
                let descriptor = descriptor()?;
                self.busy(kind)?;
                Output::Region(descriptor)
            }
            Record::Piece(piece) => {
                self.busy(kind)?.body();
                Output::Piece(piece)
            }
            Record::Detach => {
                if self.origin == Origin::Channel {
                    return Err(Broken::OutOfPlace(kind));
                }
                self.busy(kind)?.at_end = AtEnd::Detached;
                return Ok(None);
            }
            Record::Ready => match std::mem::replace(&mut self.state, State::Idle) {
                State::Detached(held) => Output::Ready(held),
                before => {
                    self.state = before;
                    return Err(Broken::OutOfPlace(kind));
                }
            },
            Record::Claim(secret) => {
                if self.origin != Origin::Channel || !matches!(self.state, State::Idle) {
                    return Err(Broken::OutOfPlace(kind));
                }
                self.request_id = request_id;
                Output::Claim(secret)
            }
            Record::Taken { number, at } => self.taken(number, at)?,
            // Only FastCGI connections bring tunnels.
            Record::Tunnel
            | Record::Body(_)
            | Record::Ring(_)
            | Record::Look
            | Record::Abandon(_) => {
                return Err(Broken::OutOfPlace(kind));
            }
        }))
    }

    fn taken(&mut self, number: u64, at: u64) -> Result<Output<C>, Broken> {
        let is_known = match &mut self.state {
            State::Idle if self.origin == Origin::Pool => false,
            State::Busy(Busy { source: Source::Ring { number: known, is_taken }, .. })
                if *known == number && !*is_taken =>
            {
                *is_taken = true;
                true
            }
            _ => return Err(Broken::OutOfPlace(Kind::TAKEN)),
        };
        Ok(Output::Taken { number, at, is_known })
    }

    fn end_request(&mut self, content: &[u8]) -> Result<Output<C>, Broken> {
        let EndRequest { app_status, protocol_status } = EndRequest::decode(content)?;
        if protocol_status != 0 {
            return Err(Broken::Refused);
        }
        self.busy(Kind::END_REQUEST)?;
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Busy(Busy { held, recipient, at_end: AtEnd::Idle, .. }) => {
                Ok(Output::Ended { recipient, app_status, free: Some(held) })
            }
            State::Busy(Busy { held, recipient, at_end: AtEnd::Detached, .. }) => {
                self.state = State::Detached(held);
                Ok(Output::Ended { recipient, app_status, free: None })
            }
            before => {
                self.state = before;
                Err(Broken::OutOfPlace(Kind::END_REQUEST))
            }
        }
    }

    /// The current request; an error if there is none, because a record of this type belongs to
    /// one.
    fn busy(&mut self, kind: Kind) -> Result<&mut Busy<C>, Broken> {
        match &mut self.state {
            State::Busy(Busy { source: Source::Ring { is_taken: false, .. }, .. }) => {
                Err(Broken::OutOfPlace(kind))
            }
            State::Busy(busy) => Ok(busy),
            _ => Err(Broken::OutOfPlace(kind)),
        }
    }
}
