//! An application that follows a script, one thread per connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sendoff_tests::LIMIT;

/// The application. Its threads end with the process.
pub(crate) struct Responder {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// One connection of it.
pub(crate) struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
    /// The number of earlier connections.
    pub(crate) number: usize,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Responder {
    /// Calls `script` with each connection, which it closes at the end of the script.
    pub(crate) fn start(script: impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let closed = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, counted, noted) =
            (Arc::new(script), Arc::clone(&connections), Arc::clone(&seen));
        let ended = Arc::clone(&closed);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let (script, seen) = (Arc::clone(&script), Arc::clone(&noted));
                let ended = Arc::clone(&ended);
                std::thread::spawn(move || {
                    script(&mut Peer { stream, received: Vec::new(), number, seen });
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { addr, connections, closed, seen }
    }

    /// A responder that answers every request on a connection with these bytes.
    pub(crate) fn saying(wire: impl Into<Vec<u8>>) -> Self {
        let wire = wire.into();
        Self::start(move |peer| {
            loop {
                peer.request()?;
                peer.say(&wire)?;
            }
        })
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections among them that it has closed.
    pub(crate) fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    /// The requests that have been read.
    pub(crate) fn seen(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|request| String::from_utf8_lossy(request).into_owned()).collect()
    }
}

impl Peer {
    /// Reads a request of HTTP; `None` at the end of the connection.
    pub(crate) fn request(&mut self) -> Option<String> {
        let head = self.head_len()?;
        let text = String::from_utf8_lossy(&self.received[..head]).into_owned();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let whole = head + length.map_or(0, |length| length.parse::<usize>().unwrap());
        while self.received.len() < whole {
            self.more()?;
        }
        let request: Vec<u8> = self.received.drain(..whole).collect();
        let text = String::from_utf8_lossy(&request).into_owned();
        self.seen.lock().unwrap().push(request);
        Some(text)
    }

    /// Reads a request head of HTTP.
    pub(crate) fn head(&mut self) -> Option<String> {
        let head = self.head_len()?;
        let head: Vec<u8> = self.received.drain(..head).collect();
        Some(String::from_utf8_lossy(&head).into_owned())
    }

    fn head_len(&mut self) -> Option<usize> {
        loop {
            match self.received.windows(4).position(|part| part == b"\r\n\r\n") {
                Some(at) => return Some(at + 4),
                None => self.more()?,
            }
        }
    }

    /// Reads this many bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.received.len() < count {
            self.more()?;
        }
        Some(self.received.drain(..count).collect())
    }

    /// Reads everything up to the end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more().is_some() {}
        std::mem::take(&mut self.received)
    }

    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) -> Option<()> {
        self.stream.write_all(bytes.as_ref()).ok()
    }

    /// Each byte in a packet of its own.
    pub(crate) fn say_slowly(&mut self, bytes: &[u8]) -> Option<()> {
        bytes.iter().try_for_each(|byte| self.say([*byte]))
    }

    pub(crate) fn half_close(&mut self) -> Option<()> {
        self.stream.shutdown(std::net::Shutdown::Write).ok()
    }

    fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(n @ 1..) => {
                self.received.extend_from_slice(&buffer[..n]);
                Some(())
            }
            _ => None,
        }
    }
}
