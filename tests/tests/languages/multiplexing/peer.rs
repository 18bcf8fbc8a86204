//! An application whose answers a test writes record by record.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sendoff_fastcgi::params;
use sendoff_tests::{LIMIT, Server, Site, wait};

pub const END_REQUEST: u8 = 3;
pub const STDOUT: u8 = 6;

/// More requests than an event loop has connections that are shared.
const CROWD: usize = 10;

/// Connections of two event loops.
const MOST: usize = 8;

const HEAD: &[u8] = b"Content-Type: text/plain\r\n\r\n";

pub fn record(id: u16, kind: u8, content: &[u8]) -> Vec<u8> {
    let ([id0, id1], len) = (id.to_be_bytes(), u16::try_from(content.len()).unwrap());
    let [high, low] = len.to_be_bytes();
    [&[1, kind, id0, id1, high, low, 0, 0], content].concat()
}

pub fn end(id: u16, protocol_status: u8) -> Vec<u8> {
    record(id, END_REQUEST, &[0, 0, 0, 0, protocol_status, 0, 0, 0])
}

/// The beginning of a response.
pub fn beginning(id: u16, body: &str) -> Vec<u8> {
    record(id, STDOUT, &[HEAD, body.as_bytes()].concat())
}

pub fn response(id: u16, body: &str) -> Vec<u8> {
    [beginning(id, body), record(id, STDOUT, b""), end(id, 0)].concat()
}

/// A message that has come over a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A whole request.
    Request { id: u16, path: String },
    /// `ABORT_REQUEST`.
    Abort(u16),
}

/// One connection, as the application has it.
pub struct Wire {
    pub number: usize,
    stream: UnixStream,
    /// Requests that were begun and not ended.
    open: Mutex<BTreeSet<u16>>,
    seen: Arc<Seen>,
}

impl Wire {
    pub fn open(&self) -> Vec<u16> {
        self.open.lock().unwrap().iter().copied().collect()
    }

    /// Sends records. The front may have closed the connection, and be right.
    pub fn send(&self, records: impl AsRef<[u8]>) {
        let _ = (&self.stream).write_all(records.as_ref());
    }

    /// Answers a request.
    pub fn answer(&self, id: u16, body: &str) {
        self.note_end(id);
        self.send(response(id, body));
    }

    /// Notes that a request has ended.
    pub fn note_end(&self, id: u16) {
        if self.open.lock().unwrap().remove(&id) {
            self.seen.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn close(&self) {
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

type Play = Box<dyn Fn(&Arc<Wire>, &Heard) + Send + Sync>;

/// The application's counters and findings.
#[derive(Default)]
pub struct Seen {
    /// The most requests that were open on one connection, and on all.
    pub most: AtomicUsize,
    pub most_of_all: AtomicUsize,
    pub largest_id: AtomicUsize,
    open: AtomicUsize,
    pub connections: AtomicUsize,
    pub most_connections: AtomicUsize,
    heard: Mutex<Vec<Heard>>,
    wrong: Mutex<Vec<String>>,
    crowd: Mutex<Vec<(Arc<Wire>, u16)>>,
    pair: Mutex<Vec<(Arc<Wire>, u16)>>,
    /// It was asked for values, and the server has read the answer.
    has_answered: AtomicBool,
}

/// A server and such an application.
pub struct Scripted {
    pub server: Server,
    pub seen: Arc<Seen>,
    site: Site,
}

impl Scripted {
    /// An application that says this when it is asked for values.
    pub fn start(
        values: &[(&str, &str)],
        options: &[&str],
        play: impl Fn(&Arc<Wire>, &Heard) + Send + Sync + 'static,
    ) -> Self {
        let site = Site::new();
        let path = site.outside("app.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let mut answer = Vec::new();
        for (name, value) in values {
            params::encode(&mut answer, name.as_bytes(), value.as_bytes());
        }
        let (seen, play): (Arc<Seen>, Arc<Play>) = (Arc::default(), Arc::new(Box::new(play)));
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (stream, seen) = (stream.unwrap(), Arc::clone(&all));
                let wire = Wire { number, stream, open: Mutex::default(), seen };
                let (play, answer) = (Arc::clone(&play), answer.clone());
                std::thread::spawn(move || serve(&Arc::new(wire), &play, &answer));
            }
        });
        let attached = format!("/app=unix:{}", path.display());
        let threads: &[_] = if options.contains(&"--threads") { &[] } else { &["--threads", "1"] };
        let options = [&["--fastcgi", &attached], threads, options].concat();
        Self { server: Server::start(site.root(), &options), seen, site }
    }

    /// The same; requests share connections already.
    pub fn sharing(
        values: &[(&str, &str)],
        options: &[&str],
        play: impl Fn(&Arc<Wire>, &Heard) + Send + Sync + 'static,
    ) -> Self {
        let scripted = Self::start(&[values, &[("FCGI_MPXS_CONNS", "1")]].concat(), options, play);
        // Two at once: the application is asked. It has answered when that connection is closed.
        let seen = &scripted.seen;
        let is_asked = || {
            scripted.ask_all(&["pair"; 2]);
            seen.has_answered.load(Ordering::Relaxed)
        };
        assert!(wait::until(LIMIT, is_asked), "it is not asked");
        assert!(wait::until(LIMIT, || scripted.shares()), "no connection is shared");
        // Connections that were not shared are closed after a while.
        let connections = || seen.connections.load(Ordering::Relaxed);
        assert!(wait::until(LIMIT, || connections() <= MOST), "{} connections", connections());
        for most in [&scripted.seen.most, &scripted.seen.most_of_all] {
            most.store(0, Ordering::Relaxed);
        }
        scripted
    }

    /// Takes no new connections.
    pub fn stop_listening(&self) {
        std::fs::remove_file(self.site.outside("app.sock")).unwrap();
    }

    /// Sends requests at once and returns whether some shared a connection.
    pub fn shares(&self) -> bool {
        let mut wires = self.ask_all(&["crowd"; CROWD]);
        assert!(wires.iter().flatten().all(|(status, _)| *status == 200), "{wires:?}");
        wires.sort();
        wires.dedup();
        wires.len() < CROWD
    }

    /// Asks for paths, all at once. Returns the status and body of each, or `None` for a cut
    /// response.
    pub fn ask_all(&self, paths: &[&str]) -> Vec<Option<(u16, String)>> {
        std::thread::scope(|scope| {
            let ask = |path: &&str| {
                let target = format!("/app/{path}");
                let request = match path.starts_with("post") {
                    true => sendoff_tests::Request::post(&target, "text/plain", "x"),
                    false => sendoff_tests::Request::get(&target),
                };
                scope.spawn(move || {
                    let response = self.server.connect().try_ask(&request).ok()?;
                    Some((response.status(), response.text()))
                })
            };
            let asked: Vec<_> = paths.iter().map(ask).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        })
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.seen.heard.lock().unwrap().clone()
    }

    pub fn await_heard(&self, what: impl Fn(&Heard) -> bool) {
        assert!(wait::until(LIMIT, || self.heard().iter().any(&what)), "{:?}", self.heard());
    }

    /// The server's violations of the protocol so far.
    pub fn wrong(&self) -> Vec<String> {
        self.seen.wrong.lock().unwrap().clone()
    }
}

fn serve(wire: &Arc<Wire>, play: &Play, answer: &[u8]) {
    let seen = &wire.seen;
    let mut reader = wire.stream.try_clone().unwrap();
    let mut parameters: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    let (mut counted, mut is_asked) = (false, false);
    loop {
        let mut header = [0; 8];
        if reader.read_exact(&mut header).is_err() {
            break;
        }
        let id = u16::from_be_bytes([header[2], header[3]]);
        let mut content = vec![0; usize::from(u16::from_be_bytes([header[4], header[5]]))];
        if reader.read_exact(&mut content).is_err() {
            break;
        }
        match (header[1], content.len()) {
            (9, _) => {
                is_asked = true;
                wire.send(record(0, 10, answer));
            }
            (1, _) => {
                if !std::mem::replace(&mut counted, true) {
                    let open = seen.connections.fetch_add(1, Ordering::Relaxed) + 1;
                    seen.most_connections.fetch_max(open, Ordering::Relaxed);
                }
                let mut open = wire.open.lock().unwrap();
                if !open.insert(id) {
                    seen.wrong.lock().unwrap().push(format!("{id} was begun twice"));
                }
                seen.most.fetch_max(open.len(), Ordering::Relaxed);
                let all = seen.open.fetch_add(1, Ordering::Relaxed) + 1;
                seen.most_of_all.fetch_max(all, Ordering::Relaxed);
                seen.largest_id.fetch_max(id.into(), Ordering::Relaxed);
            }
            (4, _) => parameters.entry(id).or_default().extend(content),
            (5, 0) => {
                let Some(parameters) = parameters.remove(&id) else { continue };
                let uri = params::decode(&parameters)
                    .flatten()
                    .find(|(name, _)| *name == b"REQUEST_URI")
                    .map(|(_, value)| String::from_utf8_lossy(value).into_owned());
                let path = uri.unwrap().trim_start_matches("/app/").to_owned();
                hear(wire, play, Heard::Request { id, path });
            }
            (2, _) => hear(wire, play, Heard::Abort(id)),
            _ => {}
        }
    }
    if is_asked {
        seen.has_answered.store(true, Ordering::Relaxed);
    }
    for id in wire.open() {
        wire.note_end(id);
    }
    if counted {
        seen.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn hear(wire: &Arc<Wire>, play: &Play, heard: Heard) {
    let seen = &wire.seen;
    seen.heard.lock().unwrap().push(heard.clone());
    let gathers = match &heard {
        Heard::Request { path, .. } if path == "crowd" => Some((&seen.crowd, CROWD)),
        Heard::Request { path, .. } if path == "pair" => Some((&seen.pair, 2)),
        _ => None,
    };
    if let (Some((all, count)), Heard::Request { id, .. }) = (gathers, &heard) {
        let mut all = all.lock().unwrap();
        all.push((Arc::clone(wire), *id));
        if all.len() == count {
            for (wire, id) in all.drain(..) {
                wire.answer(id, &wire.number.to_string());
            }
        }
        return;
    }
    play(wire, &heard);
}
