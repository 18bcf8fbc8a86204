//! The worker's machines and an application that acts at random. Where `crates/worker` makes system
//! calls, this driver moves bytes in memory; where it waits, this driver goes on with the next
//! step.

use std::collections::{HashMap, VecDeque};

use bytes::BytesMut;
use sendoff_fastcgi::Decoder;
use sendoff_fastcgi::handover::{FileId, Record};
use sendoff_fastcgi::record::Kind;
use sendoff_link::worker::{
    AfterSend, COPY_LIMIT, Chunks, ClientWriter, End, Event, FLUSH_LIMIT, Peer, Queue, ReadStep,
    Request, Requests, Response, Unsent,
};

use crate::site::{CHUNK, CHUNKS, Clients, Dice, FILE_LEN, FILES, Site, content};
use crate::wire::Pipe;

/// The application starts when this number of body bytes has arrived, or the whole body.
const WHOLE_BODY: usize = 64 * 1024;

pub(crate) struct WorkerEnd {
    input: BytesMut,
    descriptors: VecDeque<u32>,
    decoder: Decoder,
    requests: Requests<u32>,
    response: Response,
    queue: Queue,
    chunks: Chunks,
    backlog: Vec<Record>,
    held: HashMap<FileId, Held>,
    last_file: u32,
    app: App,
}

/// A held file.
struct Held {
    file: usize,
    /// The version that the application sees.
    version: u8,
    lease: Lease,
    /// The front knows the file, or has not answered yet.
    known: bool,
}

#[derive(PartialEq)]
enum Lease {
    Stands,
    Releasing,
    Broken,
}

/// ```text
///  Idle ──▶ Writing(actions left) ──▶ Detached ──▶ Idle
/// ```
enum App {
    Idle,
    Writing { number: u32, actions: usize, has_head: bool, unwritten: Vec<u8>, flushing: bool },
    Detached,
}

impl WorkerEnd {
    pub(crate) fn new() -> Self {
        Self {
            input: BytesMut::new(),
            descriptors: VecDeque::new(),
            decoder: Decoder::default(),
            requests: Requests::new(Peer::Front),
            response: Response::new(),
            queue: Queue::default(),
            chunks: Chunks::new(Site::layout()),
            backlog: Vec::new(),
            held: HashMap::new(),
            last_file: 0,
            app: App::Idle,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.app, App::Idle) && self.requests.is_idle() && self.queue.is_empty()
    }

    pub(crate) fn receive(&mut self, dice: &mut Dice, site: &mut Site, link: &mut Pipe) {
        if matches!(self.app, App::Writing { flushing: true, .. }) {
            return;
        }
        link.receive(dice.size(), &mut self.input, &mut self.descriptors);
        while !self.requests.running().is_some_and(Request::is_complete)
            || self.response.open().is_some()
        {
            let Some(part) = self.decoder.next(&mut self.input).unwrap() else { break };
            match self.requests.take(0, part, &mut self.descriptors).unwrap() {
                Event::None => {}
                Event::CheckBody { request_id, file, length } => {
                    self.requests.body_file(request_id, file, length).unwrap();
                }
                Event::Send { records, next } => {
                    assert_eq!(next, AfterSend::GoOn);
                    self.queue.raw(&records);
                }
                Event::Ring { .. } | Event::Look | Event::Withdrawn(_) => {
                    panic!("there is no ring")
                }
            }
        }
        let is_aborted = self.requests.running().is_some_and(Request::is_aborted);
        if is_aborted && matches!(self.app, App::Writing { .. }) {
            self.discard(site);
        }
    }

    fn discard(&mut self, site: &mut Site) {
        let unsent: Vec<FileId> = self.queue.unsent_opens().collect();
        for file in unsent {
            self.held.get_mut(&file).unwrap().known = false;
        }
        self.chunks.end(&mut self.queue);
        self.queue.discard();
        self.forget_answered(site);
    }

    /// One `sendmsg` of the queue.
    pub(crate) fn send(&mut self, dice: &mut Dice, link: &mut Pipe) {
        let (queue, backlog) = (&mut self.queue, &mut self.backlog);
        queue.close_record();
        backlog.retain(|record| {
            if queue.in_flight() {
                queue.record(0, *record);
                return false;
            }
            let mut wire = Vec::new();
            record.encode(0, &mut wire);
            !link.send_whole(&wire)
        });
        let must = match &mut self.app {
            App::Writing { flushing, .. } => *flushing,
            App::Idle | App::Detached => true,
        };
        if !must || self.queue.is_empty() {
            return;
        }
        let (bytes, riders) = self.queue.batch();
        let fds: Vec<u32> = riders
            .map(|rider| match rider {
                Record::Open(file) => 1_000 + file.0,
                _ => 1,
            })
            .collect();
        let most = bytes.len().min(dice.size());
        let n = link.send(&bytes[..most], &fds);
        if n > 0 {
            self.queue.advance(n);
        }
        if let (true, App::Writing { flushing, .. }) = (self.queue.is_empty(), &mut self.app) {
            *flushing = false;
        }
    }

    /// One random action of the application.
    pub(crate) fn work(&mut self, dice: &mut Dice, site: &mut Site, clients: &mut Clients) {
        match &mut self.app {
            App::Idle => self.accept(dice, site),
            App::Writing { flushing: true, .. } => {}
            App::Writing { unwritten, .. } if !unwritten.is_empty() => {
                let rest = std::mem::take(unwritten);
                self.write(&rest, site, clients);
            }
            App::Writing { actions: 0, .. } => self.finish(dice, site, clients),
            App::Writing { actions, has_head, .. } => {
                *actions -= 1;
                if std::mem::replace(has_head, true) {
                    self.act(dice, site, clients);
                } else {
                    self.write_head(site, clients);
                }
            }
            App::Detached => {
                let id = self.requests.running().unwrap().id();
                if dice.below(2) == 0 {
                    self.queue.stream(Kind::STDERR, id, b"late\n");
                    site.log.push_str("late\n");
                } else {
                    assert!(self.response.ready(&mut self.queue, id));
                    self.requests.end();
                    self.app = App::Idle;
                }
            }
        }
    }

    fn accept(&mut self, dice: &mut Dice, site: &mut Site) {
        let begins =
            |request: &Request<_>| request.is_aborted() || request.body_arrived(WHOLE_BODY);
        if !self.requests.running().is_some_and(begins) || !self.queue.is_empty() {
            return;
        }
        self.response = Response::new();
        let (_, number) =
            self.requests.params().with_nul().find(|(name, _)| *name == b"NUMBER\0").unwrap();
        let number = std::str::from_utf8(&number[..number.len() - 1]).unwrap().parse().unwrap();
        site.written.insert(number, Vec::new());
        let (actions, has_head) = (1 + dice.below(8), false);
        let unwritten = Vec::new();
        self.app = App::Writing { number, actions, has_head, unwritten, flushing: false };
    }

    fn is_closed(&self) -> bool {
        self.response.open().is_none() || self.requests.running().is_none_or(Request::is_aborted)
    }

    fn written(&mut self, bytes: &[u8], site: &mut Site) {
        let App::Writing { number, .. } = self.app else { panic!("nothing is being written") };
        site.written.get_mut(&number).unwrap().extend_from_slice(bytes);
    }

    fn write_head(&mut self, site: &mut Site, clients: &mut Clients) {
        if !self.is_closed() {
            self.write(b"Content-Type: text/x\r\n\r\n", site, clients);
            if let Some(open) = self.response.open_mut() {
                open.wrote_head();
            }
        }
    }

    fn act(&mut self, dice: &mut Dice, site: &mut Site, clients: &mut Clients) {
        let id = self.requests.running().unwrap().id();
        match dice.below(9) {
            0 if self.response.open().is_some() => {
                self.response.open_mut().unwrap().uses_stderr();
                self.queue.stream(Kind::STDERR, id, b"entry\n");
                site.log.push_str("entry\n");
            }
            1 => {
                if let Some(open) = self.response.open_mut() {
                    open.flushed();
                }
                self.send_soon(clients);
            }
            2 => self.read_body(),
            3 => self.drop_file(dice, site),
            4..=6 => self.write_file(dice, site, clients),
            _ => {
                let bytes: Vec<u8> = {
                    let (size, first) = (dice.size(), dice.below(256));
                    (0..size).map(|i| u8::try_from((i * 7 + first) % 253).unwrap()).collect()
                };
                if !self.is_closed() {
                    self.written(&bytes, site);
                    let open = self.response.open_mut().unwrap();
                    open.wrote_body(bytes.len() as u64);
                    self.write(&bytes, site, clients);
                }
            }
        }
    }

    fn read_body(&mut self) {
        let body = self.requests.running_mut().unwrap().stream_mut(Kind::STDIN);
        let mut buf = [0; 5_000];
        if let ReadStep::FromFile { len, .. } = body.read(&mut buf) {
            body.advance(len);
        }
    }

    fn write(&mut self, bytes: &[u8], site: &mut Site, clients: &mut Clients) {
        if self.is_closed() {
            return;
        }
        self.response.open_mut().unwrap().uses_stdout();
        let mut rest = bytes;
        if rest.len() >= COPY_LIMIT {
            let Some(left) = self.write_to_client(rest, false, clients) else { return };
            rest = left;
            self.response.open_mut().unwrap().begin();
        }
        let (request, open) = (self.requests.running().unwrap(), self.response.open_mut().unwrap());
        if open.generate(rest.len(), request) {
            let room = open.room_in_chunks(self.queue.lent());
            if room == 0 {
                open.announce(self.queue.lent());
                self.send_soon(clients);
                if let App::Writing { unwritten, .. } = &mut self.app {
                    *unwritten = rest.to_vec();
                }
                return;
            }
            let mut now = &rest[..rest.len().min(room)];
            rest = &rest[now.len()..];
            while !now.is_empty() {
                let returned = |chunk: u32| site.returned[chunk as usize];
                let Some(range) =
                    self.chunks.lend(&mut self.queue, request.id(), now.len(), returned)
                else {
                    break;
                };
                let (these, later) = now.split_at(range.len());
                site.memory[range].copy_from_slice(these);
                now = later;
            }
            self.queue.stdout(request.id(), now);
            if let App::Writing { unwritten, .. } = &mut self.app {
                *unwritten = rest.to_vec();
            }
        } else {
            self.queue.stdout(request.id(), rest);
        }
        if open.note_queued(self.queue.len(), &request.client) {
            self.send_soon(clients);
        }
    }

    /// Sends the queue before the application goes on.
    fn send_soon(&mut self, clients: &mut Clients) {
        if self.is_closed() || self.write_to_client(&[], false, clients).is_none() {
            return;
        }
        if let (false, App::Writing { flushing, .. }) = (self.queue.is_empty(), &mut self.app) {
            self.response.open_mut().unwrap().begin();
            *flushing = true;
        }
    }

    /// Writes to the client; `None`: the client has gone.
    fn write_to_client<'d>(
        &mut self,
        data: &'d [u8],
        is_last: bool,
        clients: &mut Clients,
    ) -> Option<&'d [u8]> {
        let (Some(request), Some(open)) = (self.requests.running_mut(), self.response.open_mut())
        else {
            return Some(data);
        };
        let id = request.id();
        if matches!(request.client, ClientWriter::Offered(_)) {
            let mut queued = Vec::new();
            let only_bytes = self.queue.take_stdout(&mut queued);
            if only_bytes && queued.is_empty() && data.is_empty() {
                return Some(data);
            }
            let ClientWriter::Offered(offer) = request.client.take() else { unreachable!() };
            let may = only_bytes && open.has_head() && !open.has_begun();
            match if may { offer.begin(&mut queued, data) } else { None } {
                Some(writing) => {
                    request.client = ClientWriter::Writing(Box::new(writing));
                    open.begin();
                }
                None => self.queue.stdout(id, &queued),
            }
        }
        let ClientWriter::Writing(writing) = &mut request.client else { return Some(data) };
        if !self.queue.take_stdout(&mut writing.queued) {
            let sent = writing.sent_so_far();
            request.client = ClientWriter::Front;
            self.queue.first(id, Record::Sent(sent));
            return Some(data);
        }
        if !is_last && !writing.has_unsent() && data.is_empty() {
            return Some(data);
        }
        let client = clients.0.get_mut(writing.socket()).unwrap();
        let mut wire = writing.frame(data, is_last);
        for piece in wire.rest().map(<[u8]>::to_vec) {
            let n = piece.len().min(client.room);
            client.got.extend_from_slice(&piece[..n]);
            client.room -= n;
            wire.advance(n);
            if n < piece.len() {
                break;
            }
        }
        if client.gone {
            let sent = writing.sent_until_gone(&wire);
            request.client = ClientWriter::Gone;
            self.queue.first(id, Record::Sent(sent));
            if let App::Writing { flushing, .. } = &mut self.app {
                *flushing = true;
            }
            return None;
        }
        let Some(Unsent { sent, next, data }) = writing.wrote(wire) else { return Some(&[]) };
        request.client = ClientWriter::Front;
        self.queue.first(id, Record::Sent(sent));
        self.queue.stdout(id, &next);
        Some(data)
    }

    fn finish(&mut self, dice: &mut Dice, site: &mut Site, clients: &mut Clients) {
        if self.response.open().is_some_and(|open| open.is_long()) {
            let _gone = self.write_to_client(&[], false, clients);
        }
        let is_writing = |request: &Request<_>| matches!(request.client, ClientWriter::Writing(_));
        if self.requests.running().is_some_and(is_writing) {
            let _gone = self.write_to_client(&[], true, clients);
        }
        if matches!(self.app, App::Writing { flushing: true, .. }) {
            return;
        }
        let request = self.requests.running_mut().unwrap();
        match request.client.take() {
            ClientWriter::Gone => request.client = ClientWriter::Gone,
            ClientWriter::Writing(writing) => {
                self.queue.first(request.id(), Record::Sent(writing.sent_whole()));
            }
            ClientWriter::Front | ClientWriter::Offered(_) => {}
        }
        let is_aborted = request.is_aborted();
        if is_aborted {
            self.discard(site);
        }
        self.chunks.end(&mut self.queue);
        let request = self.requests.running().unwrap();
        let detach = dice.below(3) == 0;
        let end = End { peer: Peer::Front, app_status: 0, detach, hands_over: false };
        self.response.finish(&mut self.queue, request, end);
        self.app = App::Idle;
        if matches!(self.response, Response::Detached) {
            self.app = App::Detached;
        } else {
            self.requests.end();
        }
    }

    fn write_file(&mut self, dice: &mut Dice, site: &mut Site, clients: &mut Clients) {
        if self.is_closed() {
            return;
        }
        let file = dice.below(FILES);
        let (offset, length) = (dice.below(1_000) as u64, dice.size() as u64);
        let length = length.min(FILE_LEN - offset);
        let id = self.held.iter().find(|(_, held)| held.file == file).map(|(id, _)| *id);
        let id = match id {
            Some(id) if self.held[&id].lease == Lease::Stands => id,
            Some(id) => {
                // The application has a private copy.
                let bytes = content(file, self.held[&id].version, offset, length);
                self.written(&bytes, site);
                self.response.open_mut().unwrap().wrote_body(length);
                return self.write(&bytes, site, clients);
            }
            None => {
                self.last_file += 1;
                let (id, version) = (FileId(self.last_file), site.versions[file]);
                site.open.insert(1_000 + id.0, file);
                self.held.insert(id, Held { file, version, lease: Lease::Stands, known: false });
                id
            }
        };
        let bytes = site.read(file, offset, length);
        self.written(&bytes, site);
        let (request, held) = (self.requests.running().unwrap(), self.held.get_mut(&id).unwrap());
        if !std::mem::replace(&mut held.known, true) {
            self.queue.record(request.id(), Record::Open(id));
        }
        self.queue.segment(request.id(), id, offset, length);
        let open = self.response.open_mut().unwrap();
        open.uses_stdout();
        open.wrote_body(length);
        if self.queue.len() > FLUSH_LIMIT || dice.below(4) == 0 {
            self.send_soon(clients);
        }
    }

    fn tell(&mut self, record: Record) {
        if self.queue.in_flight() {
            self.queue.record(0, record);
        } else {
            self.backlog.push(record);
        }
    }

    fn drop_file(&mut self, dice: &mut Dice, site: &mut Site) {
        let Some(id) = self.held.keys().min().copied().filter(|_| dice.below(2) == 0) else {
            return;
        };
        let held = self.held.get_mut(&id).unwrap();
        // RELEASE must not overtake segments of the file.
        if held.lease == Lease::Stands && !self.queue.names(id) {
            held.lease = Lease::Releasing;
            if held.known {
                self.tell(Record::Release(id));
            }
            self.forget_answered(site);
        }
    }

    /// A process wants to write to a file: if the file is held, its lease breaks; otherwise the
    /// file changes at once.
    pub(crate) fn change_file(&mut self, dice: &mut Dice, site: &mut Site) {
        let file = dice.below(FILES);
        let Some((id, held)) = self.held.iter_mut().find(|(_, held)| held.file == file) else {
            site.versions[file] = site.versions[file].wrapping_add(1);
            return;
        };
        if held.lease == Lease::Broken {
            return;
        }
        let (id, version) = (*id, held.version);
        held.lease = Lease::Broken;
        let read = |offset, length, out: &mut Vec<u8>| {
            out.extend(content(file, version, offset, length));
            Ok::<(), ()>(())
        };
        if self.queue.take_back(id, read).unwrap() {
            held.known = false;
        }
        if held.known {
            self.tell(Record::Recall(id));
        }
        self.forget_answered(site);
    }

    /// Ends leases that have broken or are given back, once the front has answered; then the writer
    /// goes on.
    fn forget_answered(&mut self, site: &mut Site) {
        self.held.retain(|_, held| {
            let has_ended = !held.known && held.lease != Lease::Stands;
            if has_ended && held.lease == Lease::Broken {
                site.versions[held.file] = site.versions[held.file].wrapping_add(1);
            }
            !has_ended
        });
    }

    /// Checks that every chunk is free between requests, while nothing is in the front's custody.
    pub(crate) fn check(&mut self, site: &Site) {
        for chunk in 0..CHUNKS {
            let returned = |chunk: u32| site.returned[chunk as usize];
            let lent = self.chunks.lend(&mut self.queue, 1, CHUNK as usize, returned);
            assert!(lent.is_some(), "only {chunk} of {CHUNKS} chunks came back");
        }
    }

    /// Reads the guard socket.
    pub(crate) fn take_answers(&mut self, site: &mut Site) {
        let now = site.now;
        while let Some((_, _, file)) = site.answers.front().filter(|(at, ..)| *at <= now) {
            let file = *file;
            site.answers.pop_front();
            // RELEASED and RECALLED may cross; each means that the front has finished with the
            // file.
            let held = self.held.get_mut(&file).expect("an answer that was not asked");
            assert!(held.lease != Lease::Stands, "an answer that was not asked");
            held.known = false;
            self.forget_answered(site);
        }
    }
}
