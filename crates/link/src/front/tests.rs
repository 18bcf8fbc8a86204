//! The front's machine against scripted workers: fixed byte strings, or a worker that reads
//! requests and answers them in pieces.

use std::collections::VecDeque;

use bytes::BytesMut;
use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::direct::Rest;
use sendoff_fastcgi::record::{BeginRequest, EndRequest};

use super::*;

/// Descriptors, held values and recipients are numbers.
#[derive(Debug)]
struct Numbers;

impl Caller for Numbers {
    type Received = u32;
    type Attached = u32;
    type Held = u32;
    type Recipient = u32;
}

type Machine = Front<Numbers>;

const SENT: Sent = Sent {
    wire: 100,
    head: 50,
    framed: 0,
    rest: Rest::Length(0),
    status: 200,
    gone: false,
    surplus: false,
};

fn record(record: Record) -> Vec<u8> {
    let mut wire = Vec::new();
    record.encode(REQUEST_ID, &mut wire);
    wire
}

fn stream(kind: Kind, text: &[u8]) -> Vec<u8> {
    let len = text.len().try_into().unwrap();
    [&Header::new(kind, REQUEST_ID, len).encode(), text].concat()
}

fn end() -> Vec<u8> {
    EndRequest { app_status: 0, protocol_status: 0 }.encode(REQUEST_ID).to_vec()
}

fn request(client: ClientSocket, attached: Vec<u32>) -> Request<u32> {
    let begin = BeginRequest { keep_conn: true }.encode(REQUEST_ID);
    let records = [&begin[..], &stream(Kind::PARAMS, b""), &stream(Kind::STDIN, b"")].concat();
    Request { records: records.into(), attached, client }
}

/// A link with request 7, sent, with the held value 70.
fn busy(client: ClientSocket) -> Machine {
    let mut front = Machine::new(Origin::Pool);
    front.begin(request(client, vec![]), 70, 7).unwrap();
    send_all(&mut front);
    front
}

/// Takes the bytes to send, as the socket does.
fn send_all(front: &mut Machine) -> Vec<u8> {
    let mut wire = Vec::new();
    while let Some((bytes, _)) = front.outbox().next() {
        wire.extend_from_slice(bytes);
        let n = bytes.len();
        front.outbox().sent(n);
    }
    wire
}

/// The machine's outputs for these bytes, with adjacent pieces of streams joined, up to the first
/// error.
fn hear(front: &mut Machine, pieces: &[&[u8]], fds: &[u32]) -> (Vec<String>, Option<Broken>) {
    let (mut buffer, mut fds) = (BytesMut::new(), VecDeque::from(fds.to_vec()));
    let (mut said, mut body, mut log) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match front.next(&mut buffer, &mut fds) {
                Ok(None) => break,
                Ok(Some(Output::Event(Event::Bytes(bytes)))) => body.extend_from_slice(&bytes),
                Ok(Some(Output::Log { text, ends_record })) => {
                    log.extend_from_slice(&text);
                    if ends_record {
                        said.push(format!("log {}", String::from_utf8_lossy(&log)));
                        log.clear();
                    }
                }
                Ok(Some(output)) => {
                    if !body.is_empty() {
                        said.push(format!("body {}", String::from_utf8_lossy(&body)));
                        body.clear();
                    }
                    said.push(format!("{output:?}"));
                }
                Err(broken) => return (said, Some(broken)),
            }
        }
    }
    (said, None)
}

/// A response with every kind of record, from a worker that goes on after its end.
fn response() -> (Vec<u8>, Vec<u32>) {
    let file = FileId(3);
    let wire = [
        stream(Kind::STDERR, b"PHP Notice"),
        record(Record::Length(30)),
        stream(Kind::STDOUT, b"Status: 200\r\n\r\n"),
        record(Record::Open(file)),
        record(Record::Segment { file, offset: 5, length: 10 }),
        record(Record::Region),
        record(Record::Piece(Piece { chunk: 0, last: true, offset: 0, length: 9 })),
        record(Record::Recall(file)),
        record(Record::Detach),
        stream(Kind::STDOUT, b"the end"),
        stream(Kind::STDOUT, b""),
        end(),
        stream(Kind::STDERR, b"after the end"),
        record(Record::Ready),
    ];
    (wire.concat(), vec![31, 32])
}

#[test]
fn a_response_means_the_same_however_it_is_cut() {
    let (wire, fds) = response();
    let (whole, broken) = hear(&mut busy(ClientSocket::Kept), &[&wire], &fds);
    assert_eq!(broken, None);
    assert_eq!(whole.len(), 12, "{whole:#?}");
    for cut in 0..=wire.len() {
        let mut front = busy(ClientSocket::Kept);
        let heard = hear(&mut front, &[&wire[..cut], &wire[cut..]], &fds);
        assert_eq!(heard, (whole.clone(), None), "cut at {cut}");
        assert!(front.begin(request(ClientSocket::Kept, vec![]), 71, 8).is_ok(), "free again");
    }
    let bytes: Vec<&[u8]> = wire.chunks(1).collect();
    assert_eq!(hear(&mut busy(ClientSocket::Kept), &bytes, &fds).0, whole);
}

/// At whatever byte the worker dies, the held value comes back once, the recipient learns of the
/// end once, and a request may be given to another worker only if no byte of a response has arrived
/// and some of the request was not read.
#[test]
fn a_death_at_any_byte_gives_everything_back() {
    let (wire, fds) = response();
    let log_end = stream(Kind::STDERR, b"PHP Notice").len();
    let length_end = log_end + record(Record::Length(0)).len();
    for (cut, how) in (0..=wire.len()).flat_map(|cut| [(cut, Hangup::Closed), (cut, Hangup::Reset)])
    {
        let mut front = busy(ClientSocket::Kept);
        let (said, broken) = hear(&mut front, &[&wire[..cut]], &fds);
        assert_eq!(broken, None);
        let said = said.concat();
        let has_ended = said.contains("Ended");
        let is_ready = said.contains("Ready");
        let LinkEnd { recipient, held, broken } = front.ended(how);
        assert_eq!(held, (!is_ready).then_some(70), "cut at {cut}");
        assert_eq!(recipient.is_some(), !has_ended);
        if let Some((recipient, retry)) = recipient {
            assert_eq!(recipient, 7);
            let is_safe = how == Hangup::Reset && cut < length_end;
            assert_eq!(retry == Retry::Safe, is_safe, "cut at {cut}, {how:?}");
        }
        assert!(broken.is_none() || how == Hangup::Closed);
        assert_eq!(front.ended(how).held, None, "once");
        assert!(front.begin(request(ClientSocket::Kept, vec![]), 71, 8).is_err());
    }
}

/// A partly sent request was not read completely.
#[test]
fn a_request_that_was_not_sent_may_be_sent_again() {
    let mut front = Machine::new(Origin::Pool);
    front.begin(request(ClientSocket::Kept, vec![]), 70, 7).unwrap();
    front.outbox().sent(5);
    assert_eq!(front.ended(Hangup::Closed).recipient, Some((7, Retry::Safe)));
}

/// At any moment of the client's leaving, the worker gets the whole request and then the abort, its
/// response is dropped, and the next request gets its own response.
#[test]
fn a_request_given_up_at_any_moment_leaves_nothing_behind() {
    let (wire, fds) = response();
    let sent = request(ClientSocket::Kept, vec![]).records;
    let abort = Header::new(Kind::ABORT_REQUEST, REQUEST_ID, 0).encode();
    for written in 0..=sent.len() {
        let mut front = Machine::new(Origin::Pool);
        front.begin(request(ClientSocket::Kept, vec![9]), 70, 7).unwrap();
        front.outbox().sent(written);
        assert_eq!(front.give_up(|&recipient| recipient == 7), Some(7));
        assert_eq!(front.give_up(|_| true), None, "once");
        let left = send_all(&mut front);
        assert_eq!([&sent[..written], &left].concat(), [&sent[..], &abort].concat());
    }
    for cut in 0..=wire.len() {
        let mut front = busy(ClientSocket::Kept);
        let mut received = BytesMut::from(&wire[..cut]);
        let mut descriptors = VecDeque::from(fds.clone());
        while front.next(&mut received, &mut descriptors).unwrap().is_some() {}
        let was_answering = front.give_up(|&recipient| recipient == 7).is_some();
        assert_eq!(front.outbox().is_empty(), !was_answering);
        received.extend_from_slice(&wire[cut..]);
        while let Some(output) = front.next(&mut received, &mut descriptors).unwrap() {
            assert_eq!(front.recipient(), None);
            if let Output::Ended { recipient, .. } = output {
                assert_eq!(recipient, (!was_answering).then_some(7));
            }
        }
        front.begin(request(ClientSocket::Kept, vec![]), 71, 8).unwrap();
        let (said, _) = hear(&mut front, &[&stream(Kind::STDOUT, b"mine"), &end()], &[]);
        assert_eq!(
            said,
            ["body mine", "Ended { recipient: Some(8), app_status: 0, free: Some(71) }"]
        );
    }
}

#[test]
fn descriptors_go_with_the_first_byte_of_their_request() {
    let mut front = Machine::new(Origin::Pool);
    front.begin(request(ClientSocket::Lent, vec![1, 2]), 70, 7).unwrap();
    assert_eq!(front.outbox().next().unwrap().1, [1, 2]);
    front.outbox().sent(0);
    assert_eq!(front.outbox().next().unwrap().1, [1, 2], "nothing was sent yet");
    front.outbox().sent(1);
    assert!(front.outbox().next().unwrap().1.is_empty());
}

#[test]
fn records_out_of_place_break_the_link() {
    let piece = Record::Piece(Piece { chunk: 0, last: true, offset: 0, length: 0 });
    let early = [
        stream(Kind::STDOUT, b"x"),
        record(Record::Ready),
        record(Record::Length(1)),
        record(Record::Detach),
        record(piece),
        end(),
    ];
    for lie in early {
        let mut front = Machine::new(Origin::Pool);
        assert!(hear(&mut front, &[&lie], &[]).1.is_some(), "{lie:?} before a request");
    }
    let segment = Record::Segment { file: FileId(1), offset: 0, length: 1 };
    let twice = |one: Record| [record(one), record(one)].concat();
    for lie in [
        record(Record::Ready),
        record(Record::Body(1)),
        record(Record::Claim(Secret([0; 16]))),
        record(segment),
        record(Record::Release(FileId(1))),
        twice(Record::Open(FileId(1))),
        twice(Record::Length(5)),
        twice(Record::Named),
        [stream(Kind::STDOUT, b"x"), record(Record::Length(5))].concat(),
        record(Record::Sent(SENT)),
        EndRequest { app_status: 0, protocol_status: 1 }.encode(REQUEST_ID).to_vec(),
        Header::new(Kind::STDIN, REQUEST_ID, 0).encode().to_vec(),
        Header::new(Kind::STDOUT, 2, 0).encode().to_vec(),
        b"HTTP/1.1".to_vec(),
    ] {
        let mut front = busy(ClientSocket::Kept);
        assert!(hear(&mut front, &[&lie], &[1, 2]).1.is_some(), "{lie:?}");
        let ended = front.broken();
        assert_eq!((ended.held, ended.recipient), (Some(70), Some((7, Retry::Unsafe))));
    }
    for late in
        [[record(Record::Detach), end(), stream(Kind::STDOUT, b"x")], [vec![], end(), end()]]
    {
        assert!(hear(&mut busy(ClientSocket::Kept), &[&late.concat()], &[]).1.is_some());
    }
    for needs_one in [Record::Open(FileId(1)), Record::Named, Record::Region] {
        let heard = hear(&mut busy(ClientSocket::Kept), &[&record(needs_one)], &[]);
        assert!(matches!(heard.1, Some(Broken::NoDescriptor(_))), "{needs_one:?}");
    }
}

#[test]
fn a_lent_socket_comes_back_once_and_first() {
    let sent = record(Record::Sent(SENT));
    let after = |first: &[u8]| hear(&mut busy(ClientSocket::Lent), &[first, &sent], &[]).1;
    assert_eq!(after(b""), None);
    assert_eq!(after(&record(Record::Length(1))), None);
    assert_eq!(after(&stream(Kind::STDOUT, b"x")), Some(Broken::OutOfPlace(Kind::SENT)));
    assert_eq!(after(&sent), Some(Broken::OutOfPlace(Kind::SENT)));
}

#[test]
fn files_and_descriptors_are_bounded() {
    let mut front = busy(ClientSocket::Kept);
    let open = |id: usize| record(Record::Open(FileId(u32::try_from(id).unwrap())));
    for id in 0..MAX_FILES {
        assert_eq!(hear(&mut front, &[&open(id)], &[1]).1, None);
    }
    // After the end of the script the files stay open and count.
    assert_eq!(hear(&mut front, &[&end(), &record(Record::Release(FileId(0)))], &[]).1, None);
    assert_eq!(hear(&mut front, &[&open(MAX_FILES)], &[1]).1, None);
    assert_eq!(front.files(), MAX_FILES);
    assert_eq!(hear(&mut front, &[&open(MAX_FILES + 1)], &[1]).1, Some(Broken::TooManyFiles));
    let waiting = vec![1; MAX_WAITING_DESCRIPTORS + 1];
    let heard = hear(&mut busy(ClientSocket::Kept), &[b""], &waiting);
    assert_eq!(heard.1, Some(Broken::TooManyDescriptors));
}

#[test]
fn a_claimed_request_has_its_own_id_and_an_unwanted_one_is_aborted() {
    for recipient in [Some(7), None] {
        let mut front = Machine::new(Origin::Channel);
        assert_eq!(front.begin(request(ClientSocket::Kept, vec![]), 1, 1), Err(NotIdle));
        let (mut received, mut none) = (BytesMut::new(), VecDeque::new());
        let mut wire = Vec::new();
        Record::Claim(Secret([4; 16])).encode(5, &mut wire);
        wire.extend_from_slice(&Header::new(Kind::STDOUT, 5, 1).encode());
        wire.push(b'x');
        received.extend_from_slice(&wire);
        let said = front.next(&mut received, &mut none).unwrap();
        assert!(matches!(said, Some(Output::Claim(Secret([4, ..])))));
        front.claim(70, recipient);
        let abort = Header::new(Kind::ABORT_REQUEST, 5, 0).encode();
        let expected = if recipient.is_none() { &abort[..] } else { b"" };
        assert_eq!(send_all(&mut front), expected);
        let said = front.next(&mut received, &mut none).unwrap();
        assert!(matches!(said, Some(Output::Event(Event::Bytes(_)))));
        assert_eq!(front.recipient().copied(), recipient);
        // LENGTH, DETACH and another claim before the end are errors.
        let mut lie = Vec::new();
        Record::Detach.encode(5, &mut lie);
        assert!(hear(&mut front, &[&lie], &[]).1.is_some());
    }
}

/// A worker that reads requests from the link and answers them.
#[derive(Default)]
struct Script {
    decoder: Decoder,
    received: BytesMut,
    answers: VecDeque<u8>,
    requests: usize,
    aborts: usize,
}

impl Script {
    /// Reads the front's bytes. Panics on anything but whole requests and aborts.
    fn read(&mut self, bytes: &[u8], detach: bool) {
        self.received.extend_from_slice(bytes);
        while let Some(part) = self.decoder.next(&mut self.received).unwrap() {
            match part {
                RecordPart::Record { kind: Kind::BEGIN_REQUEST, .. } => self.requests += 1,
                RecordPart::Record { kind: Kind::ABORT_REQUEST, .. } => self.aborts += 1,
                RecordPart::EndOfStream { kind: Kind::PARAMS, .. } => {}
                RecordPart::EndOfStream { kind: Kind::STDIN, .. } => self.answer(detach),
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(&mut self, detach: bool) {
        let body = self.requests.to_string();
        self.answers.extend(stream(Kind::STDOUT, body.as_bytes()));
        if detach {
            self.answers.extend(record(Record::Detach));
        }
        self.answers.extend(end());
        if detach {
            self.answers.extend(record(Record::Ready));
        }
    }
}

/// Pseudo-random numbers, the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides).unwrap()
    }
}

/// Both directions are delivered in pieces of any size and in any order, clients leave, and finally
/// the worker dies.
#[test]
fn in_any_order_every_request_ends_once_with_its_own_response() {
    for seed in 1..=2000 {
        let mut dice = Dice(seed * 0x9e37_79b9_7f4a_7c15);
        let mut front = Machine::new(Origin::Pool);
        let mut worker = Script::default();
        let (mut received, mut none) = (BytesMut::new(), VecDeque::new());
        // The current request, the received part of its body, and the held numbers that are not
        // back yet.
        let (mut begun, mut current, mut body) = (0, None, Vec::new());
        let (mut out, mut given_up) = (0, 0);
        for _ in 0..60 {
            match dice.roll(8) {
                0 | 1 => {
                    if front.begin(request(ClientSocket::Kept, vec![]), 0, begun + 1).is_ok() {
                        assert_eq!(out, 0, "one request at a time");
                        (begun, out) = (begun + 1, 1);
                        (current, body) = (Some(begun), Vec::new());
                    }
                }
                2..=4 => {
                    if let Some((bytes, _)) = front.outbox().next() {
                        let n = dice.roll(bytes.len() as u64 + 1);
                        let bytes = bytes[..n].to_vec();
                        front.outbox().sent(n);
                        worker.read(&bytes, dice.roll(3) == 0);
                    }
                }
                5 | 6 => {
                    let n = dice.roll(worker.answers.len() as u64 + 1);
                    received.extend(worker.answers.drain(..n));
                }
                _ => {
                    if dice.roll(4) == 0 && front.give_up(|_| true).is_some() {
                        (current, given_up) = (None, given_up + 1);
                    }
                }
            }
            while let Some(output) = front.next(&mut received, &mut none).unwrap() {
                match output {
                    Output::Event(Event::Bytes(bytes)) if current.is_some() => {
                        body.extend_from_slice(&bytes);
                    }
                    Output::Event(_) => assert_eq!(front.recipient(), None),
                    Output::Ended { recipient, free, .. } => {
                        assert_eq!(recipient, current.take());
                        assert!(recipient.is_none() || body == begun.to_string().as_bytes());
                        out -= u32::from(free.is_some());
                    }
                    Output::Ready(_) => out -= 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(worker.aborts <= given_up && worker.requests <= begun as usize);
        let how = if dice.roll(2) == 0 { Hangup::Closed } else { Hangup::Reset };
        let ended = front.ended(how);
        assert_eq!(ended.recipient.map(|(recipient, _)| recipient), current);
        assert_eq!(ended.held.is_some(), out == 1);
    }
}
