//! The front's machine, and a front that acts on its outputs. Segments and pieces stay in its
//! custody until [`FrontEnd::resolve_one`] sends them, which may be long after the response has
//! ended.

use std::collections::{HashMap, VecDeque};

use bytes::BytesMut;
use sendoff_fastcgi::direct::{Client as ClientRecord, Rest, Sent};
use sendoff_fastcgi::handover::{FileId, GuardAnswer, Record};
use sendoff_fastcgi::params;
use sendoff_fastcgi::record::{BeginRequest, Header, Kind};
use sendoff_fastcgi::region::Piece;
use sendoff_link::front::{
    Caller, ClientSocket, Event, Front, Hangup, Origin, Output, REQUEST_ID, Request, Retry,
};

use crate::site::{Client, Clients, Dice, Site};
use crate::wire::Pipe;

/// Descriptors and requests are numbers.
#[derive(Debug)]
pub(crate) struct Numbers;

impl Caller for Numbers {
    type Received = u32;
    type Attached = u32;
    type Held = u32;
    type Recipient = u32;
}

/// A part of a response, in the front's custody.
enum Item {
    Bytes(Vec<u8>),
    Segment { file: FileId, offset: u64, length: u64 },
    Piece(Piece),
}

struct Answer {
    items: Vec<Item>,
    length: Option<u64>,
    /// The worker's report about the client's socket, and the bytes that the client had by then.
    sent: Option<(Sent, Vec<u8>)>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Open,
    Ended,
    GivenUp,
    Lost,
}

#[derive(PartialEq)]
enum FileState {
    Open,
    Releasing,
    Done,
}

pub(crate) struct FrontEnd {
    machine: Front<Numbers>,
    received: BytesMut,
    descriptors: VecDeque<u32>,
    pub(crate) asked: u32,
    answers: HashMap<u32, Answer>,
    given_back: Vec<u32>,
    files: HashMap<FileId, (u32, FileState)>,
    log: String,
    has_ended: bool,
}

impl FrontEnd {
    pub(crate) fn new() -> Self {
        Self {
            machine: Front::new(Origin::Pool),
            received: BytesMut::new(),
            descriptors: VecDeque::new(),
            asked: 0,
            answers: HashMap::new(),
            given_back: Vec::new(),
            files: HashMap::new(),
            log: String::new(),
            has_ended: false,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.machine.held().is_none()
    }

    /// Sends the next request, if the worker is free.
    pub(crate) fn ask(&mut self, dice: &mut Dice, site: &mut Site, clients: &mut Clients) {
        if !self.is_idle() {
            return;
        }
        self.asked += 1;
        let number = self.asked;
        let mut records = BeginRequest { keep_conn: true }.encode(REQUEST_ID).to_vec();
        let (mut attached, mut client) = (Vec::new(), ClientSocket::Kept);
        if dice.below(3) == 0 {
            client = ClientSocket::Lent;
            let (http_10, encrypted) = (dice.below(3) == 0, dice.below(2) == 0);
            let fields = b"Server: x\r\n";
            let client = ClientRecord { http_10, keep_alive: true, encrypted, fields };
            client.encode(REQUEST_ID, &mut records);
            attached.push(3_000 + number);
            let room = [0, 10_000, 100_000, 10_000_000][dice.below(4)];
            let gone = dice.below(6) == 0;
            clients.0.insert(3_000 + number, Client { room, gone, ..Client::default() });
        }
        let mut stream = Vec::new();
        params::encode(&mut stream, b"SENDOFF_ACCEPT", b"file region direct");
        params::encode(&mut stream, b"NUMBER", number.to_string().as_bytes());
        push(&mut records, Kind::PARAMS, &stream);
        push(&mut records, Kind::PARAMS, b"");
        if dice.below(3) == 0 {
            Record::Body(10_000).encode(REQUEST_ID, &mut records);
            attached.push(2_000 + number);
        } else {
            vec![b'b'; dice.below(60_000)]
                .chunks(9_000)
                .for_each(|piece| push(&mut records, Kind::STDIN, piece));
            push(&mut records, Kind::STDIN, b"");
        }
        let request = Request { records: records.into(), attached, client };
        self.machine.begin(request, number, number).unwrap();
        let answer = Answer { items: Vec::new(), length: None, sent: None, outcome: Outcome::Open };
        self.answers.insert(number, answer);
        site.now += 1;
    }

    pub(crate) fn send(&mut self, dice: &mut Dice, link: &mut Pipe) {
        let outbox = self.machine.outbox();
        if let Some((bytes, attached)) = outbox.next() {
            let most = bytes.len().min(dice.size());
            let n = link.send(&bytes[..most], attached);
            outbox.sent(n);
        }
    }

    pub(crate) fn receive(
        &mut self,
        dice: &mut Dice,
        site: &mut Site,
        clients: &mut Clients,
        link: &mut Pipe,
    ) {
        link.receive(dice.size(), &mut self.received, &mut self.descriptors);
        loop {
            let output = match self.machine.next(&mut self.received, &mut self.descriptors) {
                Ok(Some(output)) => output,
                Ok(None) => return,
                Err(broken) => panic!("the worker broke the protocol: {broken}"),
            };
            self.take(output, dice, site, clients);
        }
    }

    fn take(
        &mut self,
        output: Output<Numbers>,
        dice: &mut Dice,
        site: &mut Site,
        clients: &Clients,
    ) {
        let number = self.machine.recipient().copied();
        match output {
            Output::Event(event) => {
                if let Some(number) = number {
                    self.event(number, event, clients);
                }
            }
            Output::Piece(piece) => match number {
                Some(number) => self.push(number, Item::Piece(piece)),
                None => give_back(site, piece),
            },
            Output::Ended { recipient, free, .. } => {
                if let Some(number) = recipient {
                    self.end_answer(number, Outcome::Ended);
                }
                self.given_back.extend(free);
            }
            Output::Ready(held) => self.given_back.push(held),
            Output::Open(file, descriptor) => {
                assert_eq!(descriptor, 1_000 + file.0, "descriptors come in order");
                let before = self.files.insert(file, (descriptor, FileState::Open));
                assert!(before.is_none(), "no id is used twice");
            }
            Output::Release(file) => {
                self.files.get_mut(&file).unwrap().1 = FileState::Releasing;
                self.answer_released(dice.below(50) as u64, site);
            }
            Output::Recall(file) => {
                if self.files[&file].1 != FileState::Done {
                    self.resolve_file(file, site);
                    self.answer(file, GuardAnswer::Recalled, dice.below(50) as u64, site);
                }
            }
            Output::Region(descriptor) => assert_eq!(descriptor, 1),
            Output::Claim(_) => panic!("no request comes elsewhere"),
            Output::Taken { .. } => panic!("there is no ring"),
            Output::Log { text, .. } => self.log.push_str(std::str::from_utf8(&text).unwrap()),
        }
    }

    fn event(&mut self, number: u32, event: Event<u32>, clients: &Clients) {
        match event {
            Event::Bytes(bytes) => self.push(number, Item::Bytes(bytes.to_vec())),
            Event::Segment { file, offset, length } => {
                self.push(number, Item::Segment { file, offset, length });
            }
            Event::Length(length) => self.answers.get_mut(&number).unwrap().length = Some(length),
            Event::Sent(sent) => {
                let got = clients.0[&(3_000 + number)].got.clone();
                assert_eq!(sent.wire, got.len() as u64);
                self.answers.get_mut(&number).unwrap().sent = Some((sent, got));
            }
            Event::Named(_) | Event::Explanation(_) => panic!("not asked for"),
        }
    }

    fn push(&mut self, number: u32, item: Item) {
        self.answers.get_mut(&number).unwrap().items.push(item);
    }

    fn end_answer(&mut self, number: u32, outcome: Outcome) {
        let answer = self.answers.get_mut(&number).unwrap();
        assert_eq!(answer.outcome, Outcome::Open, "request {number} ends once");
        answer.outcome = outcome;
    }

    /// The client has gone: drops the items in custody for it.
    pub(crate) fn give_up(&mut self, site: &mut Site) {
        let Some(number) = self.machine.recipient().copied() else { return };
        assert_eq!(self.machine.give_up(|recipient| *recipient == number), Some(number));
        self.end_answer(number, Outcome::GivenUp);
        for item in std::mem::take(&mut self.answers.get_mut(&number).unwrap().items) {
            if let Item::Piece(piece) = item {
                give_back(site, piece);
            }
        }
        self.answer_released(0, site);
    }

    /// Sends the first segment or piece in custody, of the oldest answer that has one.
    pub(crate) fn resolve_one(&mut self, site: &mut Site) {
        let files = &self.files;
        let unsent =
            |answer: &Answer| answer.items.iter().position(|item| !matches!(item, Item::Bytes(_)));
        let oldest =
            (1..=self.asked).find_map(|number| Some((number, unsent(&self.answers[&number])?)));
        if let Some((number, at)) = oldest {
            resolve(&mut self.answers.get_mut(&number).unwrap().items[at], files, site);
            self.answer_released(0, site);
        }
    }

    /// Copies the items in custody that refer to a file.
    fn resolve_file(&mut self, wanted: FileId, site: &mut Site) {
        for answer in self.answers.values_mut() {
            for item in &mut answer.items {
                if matches!(item, Item::Segment { file, .. } if *file == wanted) {
                    resolve(item, &self.files, site);
                }
            }
        }
    }

    /// Answers `RELEASE` of the files to which no item in custody refers.
    fn answer_released(&mut self, delay: u64, site: &mut Site) {
        let in_custody = |wanted: FileId| {
            let is_it = |item: &Item| matches!(item, Item::Segment { file, .. } if *file == wanted);
            self.answers.values().any(|answer| answer.items.iter().any(is_it))
        };
        let mut done: Vec<FileId> = self
            .files
            .iter()
            .filter(|(file, (_, state))| *state == FileState::Releasing && !in_custody(**file))
            .map(|(file, _)| *file)
            .collect();
        done.sort();
        for file in done {
            self.answer(file, GuardAnswer::Released, delay, site);
        }
    }

    fn answer(&mut self, file: FileId, answer: GuardAnswer, delay: u64, site: &mut Site) {
        self.files.get_mut(&file).unwrap().1 = FileState::Done;
        let after = site.answers.back().map_or(0, |(at, ..)| *at);
        site.answers.push_back((after.max(site.now + delay), answer, file));
    }

    /// Ends the link after the worker's death.
    pub(crate) fn end(&mut self, unread: bool, site: &Site) {
        let how = if unread { Hangup::Reset } else { Hangup::Closed };
        let ended = self.machine.ended(how);
        if let Some((number, retry)) = ended.recipient {
            self.end_answer(number, Outcome::Lost);
            let has_started = site.written.contains_key(&number);
            assert!(retry == Retry::Unsafe || !has_started, "request {number} would run twice");
        }
        self.given_back.extend(ended.held);
        self.has_ended = true;
    }

    /// Checks that each request has ended once, that its held value is back, and that the received
    /// bytes are the written ones.
    pub(crate) fn check(&mut self, site: &mut Site) {
        self.given_back.sort_unstable();
        assert_eq!(self.given_back, (1..=self.asked).collect::<Vec<_>>());
        for (number, answer) in &mut self.answers {
            assert_ne!(answer.outcome, Outcome::Open, "request {number} has not ended");
            for item in &mut answer.items {
                resolve(item, &self.files, site);
            }
            if answer.outcome == Outcome::Ended {
                answer.check(&site.written[number]);
            }
        }
        assert!(self.has_ended || self.log == site.log, "{} is not {}", self.log, site.log);
    }
}

impl Answer {
    fn check(&self, written: &[u8]) {
        let bytes: Vec<u8> = self.items.iter().flat_map(|item| item.bytes()).copied().collect();
        let Some((sent, got)) = &self.sent else {
            let body = after_head(&bytes);
            assert!(body == written, "{} bytes are not the {} written", body.len(), written.len());
            assert!(self.length.is_none_or(|length| length == written.len() as u64));
            return;
        };
        if sent.gone {
            return;
        }
        let (framed, rest) = bytes.split_at(usize::try_from(sent.framed).unwrap());
        let mut wire = [got, framed].concat();
        match sent.rest {
            Rest::Length(length) => {
                assert_eq!(length, rest.len() as u64);
                wire.extend_from_slice(rest);
            }
            Rest::Close => wire.extend_from_slice(rest),
            Rest::Chunked { open } => {
                let end = if open { "\r\n" } else { "" };
                wire.extend_from_slice(end.as_bytes());
                if !rest.is_empty() {
                    wire.extend_from_slice(format!("{:x}\r\n", rest.len()).as_bytes());
                    wire.extend_from_slice(rest);
                    wire.extend_from_slice(b"\r\n");
                }
                wire.extend_from_slice(b"0\r\n\r\n");
            }
        }
        let head = &wire[..usize::try_from(sent.head).unwrap()];
        let mut body = after_head(&wire).to_vec();
        if head.windows(9).any(|word| word.eq_ignore_ascii_case(b": chunked")) {
            body = joined_chunks(&body);
        }
        assert!(body == written, "{} bytes are not the {} written", body.len(), written.len());
    }
}

impl Item {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            _ => panic!("not sent yet"),
        }
    }
}

fn push(records: &mut Vec<u8>, kind: Kind, content: &[u8]) {
    let len = content.len().try_into().unwrap();
    records.extend_from_slice(&Header::new(kind, REQUEST_ID, len).encode());
    records.extend_from_slice(content);
}

/// Reads the bytes from their present place.
fn resolve(item: &mut Item, files: &HashMap<FileId, (u32, FileState)>, site: &mut Site) {
    *item = Item::Bytes(match item {
        Item::Bytes(_) => return,
        Item::Segment { file, offset, length } => {
            let descriptor = files[file].0;
            site.read(site.open[&descriptor], *offset, *length)
        }
        Item::Piece(piece) => {
            let bytes = site.memory[Site::layout().range(*piece).unwrap()].to_vec();
            give_back(site, *piece);
            bytes
        }
    });
}

/// Returns a chunk to the worker after its last piece.
fn give_back(site: &mut Site, piece: Piece) {
    if piece.last {
        site.returned[piece.chunk as usize] += 1;
    }
}

fn after_head(bytes: &[u8]) -> &[u8] {
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a head");
    &bytes[end + 4..]
}

fn joined_chunks(mut coded: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = coded.windows(2).position(|end| end == b"\r\n").expect("a chunk's size");
        let len = std::str::from_utf8(&coded[..line]).unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        coded = &coded[line + 2..];
        body.extend_from_slice(&coded[..len]);
        assert_eq!(&coded[len..len + 2], b"\r\n");
        coded = &coded[len + 2..];
        if len == 0 {
            assert!(coded.is_empty(), "nothing follows the last chunk");
            return body;
        }
    }
}
