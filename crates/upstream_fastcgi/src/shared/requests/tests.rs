use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::BytesMut;
use sendoff_delivery::segment::Segment;
use sendoff_fastcgi::record::EndRequest;
use sendoff_fastcgi::{Decoder, RecordPart};
use sendoff_message::request::Body;
use sendoff_upstream::error::UpstreamErrorKind;
use sendoff_upstream::fastcgi_request::RequestMessageBuilder;

use super::answers::BURDEN;
use super::silence::ABANDONED_BYTES;
use super::*;
use crate::facts::SharingRefusal;
use crate::peer::Peer;

const PATIENCE: Duration = Duration::from_secs(60);

fn peer() -> Peer {
    Peer::new("tcp:127.0.0.1:1".parse().unwrap(), None, PATIENCE)
}

struct Table {
    requests: Requests,
    decoder: Decoder,
    peer: Peer,
    now: Instant,
    busy: Arc<AtomicUsize>,
}

impl Table {
    fn new() -> Self {
        let (requests, decoder) = (Requests::default(), Decoder::default());
        Self { requests, decoder, peer: peer(), now: Instant::now(), busy: Arc::default() }
    }

    fn begin(&mut self, body: &Body) -> RequestHandles {
        let mut builder = RequestMessageBuilder::new();
        builder.param(b"NAME", b"value");
        let request = Rc::new(builder.streamed(body));
        let admitted = InFlightGuard::new(&self.busy, None);
        self.requests.begin(request, "GET /".into(), admitted, self.now).unwrap()
    }

    fn get(&mut self) -> RequestHandles {
        self.begin(&Body::default())
    }

    /// Sends gathered records. Returns the kind, the id and the length of each.
    fn send(&mut self) -> Vec<(Kind, u16, usize)> {
        let mut out = Vec::new();
        self.requests.gather(&mut out, self.now);
        self.requests.wrote(out.len());
        let (mut decoder, mut out, mut all) =
            (Decoder::default(), BytesMut::from(&out[..]), Vec::new());
        while let Some(part) = decoder.next(&mut out).unwrap() {
            all.push(match part {
                RecordPart::Stream { kind, request_id, data } => (kind, request_id, data.len()),
                RecordPart::EndOfStream { kind, request_id } => (kind, request_id, 0),
                RecordPart::Record { kind, request_id, content, .. } => {
                    (kind, request_id, content.len())
                }
            });
        }
        assert!(out.is_empty() && decoder.at_boundary());
        all
    }

    fn hear(&mut self, wire: &[u8]) -> Result<Option<SharingRefusal>, UpstreamError> {
        let (mut wire, mut refusal) = (BytesMut::from(wire), None);
        while let Some(part) = self.decoder.next(&mut wire).unwrap() {
            let ends_record = !self.decoder.is_inside_content();
            let heard = self.requests.take(part, ends_record, &self.peer, self.now)?;
            refusal = refusal.or(heard);
        }
        Ok(refusal)
    }

    fn end(&mut self, id: u16) -> Result<Option<SharingRefusal>, UpstreamError> {
        self.hear(&EndRequest { app_status: 0, protocol_status: 0 }.encode(id))
    }

    fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }
}

fn stdout(id: u16, bytes: &[u8]) -> Vec<u8> {
    let records = bytes.chunks(60_000).map(|piece| {
        let len = piece.len().try_into().unwrap();
        [&Header::new(Kind::STDOUT, id, len).encode(), piece].concat()
    });
    records.collect::<Vec<_>>().concat()
}

fn file(len: usize) -> Body {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![b'x'; len]).unwrap();
    Body::File { descriptor: Rc::new(OwnedFd::from(file)), len: len as u64 }
}

/// The received bytes, and the last event.
fn drain(inbox: &Inbox) -> (Vec<u8>, Option<Event>) {
    let mut all = Vec::new();
    while let Some(event) = inbox.take() {
        match event {
            Event::Segment(Segment::Bytes(bytes)) => all.extend_from_slice(&bytes),
            last => return (all, Some(last)),
        }
    }
    (all, None)
}

#[test]
fn large_bodies_take_turns() {
    let mut table = Table::new();
    let body = file(300_000);
    (0..3).for_each(|_| drop(table.begin(&body)));
    let mut order = Vec::new();
    while table.requests.has_to_send() {
        let sent = table.send().into_iter();
        order.extend(sent.filter(|&(kind, _, len)| kind == Kind::STDIN && len > 0));
    }
    let bytes = order.iter().map(|&(.., len)| len).sum::<usize>();
    assert_eq!(bytes, 900_000);
    let ids: Vec<_> = order.iter().map(|&(_, id, _)| id).collect();
    assert!(ids.chunks(3).all(|turn| turn == [1, 2, 3]), "{ids:?}");
}

#[test]
fn what_a_slow_client_does_not_take_is_kept_for_it_alone() {
    let mut table = Table::new();
    let (slow, quick) = (table.get(), table.get());
    table.send();
    let body: Vec<u8> = (0..3_000_000_u32).map(|i| (i >> 3).to_le_bytes()[0]).collect();
    for piece in body.chunks(100_000) {
        table.hear(&[stdout(1, piece), stdout(2, b"x")].concat()).unwrap();
        assert!(table.requests.may_read(), "the other one waits");
        assert_eq!(drain(&quick.inbox).0, b"x");
    }
    assert!(table.requests.is_blocked());
    table.end(2).unwrap();
    assert!(matches!(drain(&quick.inbox), (rest, Some(Event::End(_))) if rest.is_empty()));
    assert!(!table.requests.may_read(), "only the slow one is left");
    let third = table.get();
    assert!(table.requests.may_read());
    table.send();
    table.hear(&stdout(3, b"third")).unwrap();
    table.end(1).unwrap();
    let (all, last) = drain(&slow.inbox);
    assert!(
        all == body && matches!(last, Some(Event::End(ResponseEnd::Complete))),
        "{}",
        all.len()
    );
    assert!(!slow.inbox.is_full() && table.requests.may_read() && !table.requests.is_blocked());
    assert_eq!(drain(&third.inbox).0, b"third");
}

#[test]
fn a_connection_with_a_very_slow_client_takes_no_new_requests() {
    let mut table = Table::new();
    let (slow, _quick) = (table.get(), table.get());
    table.send();
    while table.requests.has_room() {
        assert!(slow.inbox.stored() <= BURDEN);
        table.hear(&stdout(1, &[b'x'; 64_000])).unwrap();
    }
    assert!(slow.inbox.stored() > BURDEN);
    assert!(table.requests.may_read(), "the other one waits");
    table.end(2).unwrap();
    assert!(!table.requests.may_read());
}

#[test]
fn ids_rest_and_those_that_go_may_still_use_are_spent() {
    let mut table = Table::new();
    let begun: Vec<_> = (0..3).map(|_| table.get()).collect();
    table.begin(&file(200_000));
    table.send();
    // Before the end of the body: Go keeps the id until then.
    table
        .hear(
            &[
                stdout(4, b"early"),
                EndRequest { app_status: 0, protocol_status: 0 }.encode(4).into(),
            ]
            .concat(),
        )
        .unwrap();
    assert_eq!(table.send(), [(Kind::STDIN, 4, 0)]);
    table.requests.give_up(begun[0].key, table.now);
    assert_eq!(table.send(), [(Kind::ABORT_REQUEST, 1, 0)]);
    // Ends twice, as in Go.
    table.end(1).unwrap();
    table.hear(&stdout(1, b"late")).unwrap();
    table.end(1).unwrap();
    table.end(2).unwrap();
    table.end(3).unwrap();
    assert_eq!(table.busy(), 0);
    let mut used = Vec::new();
    for _ in 0..100 {
        let begun = table.get();
        table.send();
        table.end(begun.key.id).unwrap();
        assert!(!used.iter().rev().take(RESTING).any(|id| *id == begun.key.id), "{used:?}");
        used.push(begun.key.id);
    }
    assert!(!used.contains(&1) && !used.contains(&4) && used.contains(&2));
    assert!(used.iter().all(|id| usize::from(*id) <= 4 + RESTING + 1), "{used:?}");
}

#[test]
fn a_request_is_given_up_once_and_the_next_with_its_id_lives() {
    let mut table = Table::new();
    // No byte was sent: the application never learns of the request.
    let unsent = table.get();
    table.requests.give_up(unsent.key, table.now);
    assert_eq!((table.send(), table.busy()), (vec![], 0));
    let first = table.get();
    table.send();
    table.end(first.key.id).unwrap();
    (0..=RESTING).for_each(|_| drop(table.get()));
    table.send();
    for id in 2..=10 {
        table.end(id).unwrap();
    }
    let mut again = table.get();
    while again.key.id != first.key.id {
        again = table.get();
    }
    table.requests.give_up(first.key, table.now);
    table.send();
    table.hear(&stdout(again.key.id, b"its own")).unwrap();
    assert_eq!(drain(&again.inbox).0, b"its own");
}

#[test]
fn what_goes_on_after_an_abort_has_the_connection_retired() {
    for (seconds, bytes, look) in [
        (1, 1000, TimeoutCheck::Fine),
        (1, ABANDONED_BYTES + 1, TimeoutCheck::Retire),
        (6, 0, TimeoutCheck::Retire),
    ] {
        let mut table = Table::new();
        let (leaves, stays) = (table.get(), table.get());
        table.send();
        table.requests.give_up(leaves.key, table.now);
        table.hear(&stdout(1, &vec![b'x'; bytes])).unwrap();
        table.now += Duration::from_secs(seconds);
        assert_eq!(table.requests.look(table.now, PATIENCE), look, "{seconds} s, {bytes} bytes");
        assert!(leaves.inbox.take().is_none() && stays.inbox.take().is_none());
    }
}

#[test]
fn silence_is_that_of_one_request() {
    let mut table = Table::new();
    let (silent, heard) = (table.get(), table.get());
    table.send();
    table.now += PATIENCE / 2;
    table.hear(&stdout(2, b"x")).unwrap();
    table.now += PATIENCE / 2;
    assert_eq!(table.requests.next_deadline(PATIENCE), Some(table.now));
    table.requests.look(table.now, PATIENCE);
    let is_silent = |event| matches!(event, Some(Event::Failed(error)) if error.kind() == UpstreamErrorKind::Silent);
    assert!(is_silent(silent.inbox.take()));
    assert!(!is_silent(drain(&heard.inbox).1));
    assert_eq!(table.send(), [(Kind::ABORT_REQUEST, 1, 0)]);
}

#[test]
fn only_what_was_not_sent_may_be_asked_again_whatever_it_is() {
    let mut table = Table::new();
    let (heard, sent) = (table.get(), table.get());
    table.send();
    let unsent = table.get();
    table.hear(&stdout(1, b"x")).unwrap();
    table.requests.fail(&UpstreamError::broken("it broke"));
    let failure = |begun: &RequestHandles| match drain(&begun.inbox).1 {
        Some(Event::Failed(error)) => (error.kind(), error.retry()),
        other => panic!("{other:?}"),
    };
    assert_eq!(failure(&heard), (UpstreamErrorKind::Broken, Retry::Unsafe));
    assert_eq!(failure(&sent), (UpstreamErrorKind::Died, Retry::Unsafe));
    assert_eq!(failure(&unsent), (UpstreamErrorKind::Died, Retry::Safe));
    assert_eq!(table.busy(), 0);
}

#[test]
fn records_out_of_place_break_the_connection() {
    for wire in [
        stdout(2, b"x"),
        stdout(0, b"x"),
        Header::new(Kind::GET_VALUES_RESULT, 0, 0).encode().to_vec(),
        Header::new(Kind::END_REQUEST, 1, 0).encode().to_vec(),
        Header::new(Kind::STDIN, 1, 0).encode().to_vec(),
    ] {
        let mut table = Table::new();
        table.get();
        table.send();
        assert_eq!(table.hear(&wire).unwrap_err().kind(), UpstreamErrorKind::Broken, "{wire:?}");
    }
    // An answer before the request.
    let mut table = Table::new();
    table.get();
    table.hear(&stdout(1, b"x")).unwrap_err();
}
