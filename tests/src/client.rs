//! A client that sends exactly the given bytes and reads only when it is told to.

use crate::LIMIT;
use crate::carrier::Carrier;
use crate::message::{Framing, Head, Request, Response};
use crate::secure;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// Why there is no complete response.
#[derive(Debug)]
pub enum Broken {
    /// The connection ended before a response began.
    Closed,
    /// The connection ended in the middle of a response.
    Cut(Box<Response>),
    /// Nothing came for [`LIMIT`].
    Hangs,
    /// The bytes that came are not HTTP.
    Malformed(String),
}

/// A connection to a server.
pub struct Client {
    carrier: Carrier,
    /// The connection has ended without `close_notify` (TLS), or the stream was reset (HTTP/2).
    truncated: bool,
    received: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// If the connection is refused.
    pub fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).expect("connect"), None)
    }

    /// Connects to an address for TLS, and trusts every certificate.
    ///
    /// # Panics
    /// If the connection is refused.
    pub fn connect_tls(addr: SocketAddr) -> Self {
        secure::PORTS.note(addr);
        Self::connect(addr)
    }

    /// Connects from an address of this machine, such as 127.0.0.2.
    ///
    /// # Panics
    /// If the connection is refused.
    pub fn connect_from(addr: SocketAddr, from: Ipv4Addr) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("socket");
        bind(&fd, &SocketAddr::from((from, 0))).expect("bind");
        connect(&fd, &addr).expect("connect");
        Self::over(TcpStream::from(fd), None)
    }

    /// Connects with a small receive buffer, and over HTTP/2 with a small window, so that the
    /// server has to keep what the client does not read.
    ///
    /// # Panics
    /// If the connection is refused.
    pub fn connect_narrow(addr: SocketAddr, receive_buffer: usize) -> Self {
        // Close-on-exec: a server that another scenario starts meanwhile must not inherit it.
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("socket");
        // Before connect(), because it determines the window of the handshake.
        sockopt::set_socket_recv_buffer_size(&fd, receive_buffer).expect("SO_RCVBUF");
        connect(&fd, &addr).expect("connect");
        Self::over(TcpStream::from(fd), Some(receive_buffer))
    }

    fn over(stream: TcpStream, receive_buffer: Option<usize>) -> Self {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let carrier = Carrier::new(stream, receive_buffer);
        Self { carrier, truncated: false, received: Vec::new() }
    }

    /// The socket beneath.
    pub fn stream(&self) -> &TcpStream {
        self.carrier.socket()
    }

    /// The port at this end.
    pub fn port(&self) -> u16 {
        self.stream().local_addr().unwrap().port()
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// If the server has closed the connection.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.carrier.send(bytes.as_ref()).expect("send");
    }

    /// Sends bytes that the server may refuse to take.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.carrier.send(bytes.as_ref())
    }

    /// Ends the sending direction.
    pub fn half_close(&mut self) {
        self.carrier.half_close();
    }

    /// Sends a request and reads its response.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn ask(&mut self, request: &Request) -> Response {
        self.send(request.bytes());
        self.response(&request.method)
    }

    /// As [`ask`](Self::ask), when it may fail.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub fn try_ask(&mut self, request: &Request) -> Result<Response, Broken> {
        // A server may answer and close before it has read the whole request, so an error of the
        // write is ignored.
        let _ = self.try_send(request.bytes());
        self.try_response(&request.method)
    }

    /// Reads the response to a request by `method`.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn response(&mut self, method: &str) -> Response {
        match self.try_response(method) {
            Ok(response) => response,
            Err(Broken::Cut(part)) => {
                panic!("the response was cut after {} bytes: {:?}", part.body.len(), part.head)
            }
            Err(broken) => panic!("no response to {method}: {broken:?}"),
        }
    }

    /// Reads the head of a response and leaves the body in the connection.
    ///
    /// # Errors
    /// The reason why there is no complete head.
    pub fn head(&mut self) -> Result<Head, Broken> {
        let end = loop {
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end;
            }
            if self.more()? == 0 {
                return Err(match self.received.len() {
                    0 => Broken::Closed,
                    _ => Broken::Malformed(format!("cut head: {:?}", text(&self.received))),
                });
            }
        };
        let mut head = Head::parse(&self.received[..end]).map_err(Broken::Malformed)?;
        if let Some(version) = self.carrier.version() {
            version.clone_into(&mut head.version);
        }
        self.received.drain(..end + 4);
        Ok(head)
    }

    /// Reads the response to a request by `method`.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub fn try_response(&mut self, method: &str) -> Result<Response, Broken> {
        let head = self.head()?;
        self.body_of(head, method)
    }

    /// Reads the body that belongs to a head already read.
    ///
    /// # Errors
    /// [`Broken::Cut`] with the part that has come, or another reason.
    pub fn body_of(&mut self, head: Head, method: &str) -> Result<Response, Broken> {
        let framing = head.framing(method).map_err(Broken::Malformed)?;
        let mut response = Response { head, framing, ..Response::empty() };
        let whole = match framing {
            Framing::None => true,
            Framing::Length(length) => self.take(length, &mut response.body)?,
            Framing::Chunked => self.chunks(&mut response)?,
            Framing::Close => {
                while self.more()? > 0 {}
                response.body = std::mem::take(&mut self.received);
                !self.truncated
            }
        };
        if whole { Ok(response) } else { Err(Broken::Cut(Box::new(response))) }
    }

    /// Reads `length` bytes; false if the connection ends before.
    fn take(&mut self, length: u64, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let mut left = usize::try_from(length).map_err(|e| Broken::Malformed(e.to_string()))?;
        loop {
            let part = left.min(self.received.len());
            into.extend_from_slice(&self.received[..part]);
            self.received.drain(..part);
            left -= part;
            if left == 0 {
                return Ok(true);
            }
            if self.more()? == 0 {
                return Ok(false);
            }
        }
    }

    fn chunks(&mut self, into: &mut Response) -> Result<bool, Broken> {
        loop {
            let Some(line) = self.line()? else { return Ok(false) };
            let size = u64::from_str_radix(&line, 16)
                .map_err(|_| Broken::Malformed(format!("chunk size {line:?}")))?;
            if size == 0 {
                return self.trailers(&mut into.trailers);
            }
            if !self.take(size, &mut into.body)? {
                return Ok(false);
            }
            match self.line()? {
                None => return Ok(false),
                Some(end) if end.is_empty() => {}
                Some(other) => return Err(Broken::Malformed(format!("after a chunk: {other:?}"))),
            }
        }
    }

    /// Reads the trailer section; false if the connection ends before.
    fn trailers(&mut self, into: &mut Vec<(String, String)>) -> Result<bool, Broken> {
        loop {
            let Some(line) = self.line()? else { return Ok(false) };
            if line.is_empty() {
                return Ok(true);
            }
            let field = line.split_once(": ");
            let (name, value) = field.ok_or_else(|| Broken::Malformed(line.clone()))?;
            into.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Reads one chunk of a chunked body and returns it: for responses that are streamed.
    ///
    /// # Panics
    /// If none comes.
    pub fn chunk(&mut self) -> Vec<u8> {
        let line = self.line().unwrap().expect("a chunk");
        let size = u64::from_str_radix(&line, 16).expect("a chunk size");
        let mut bytes = Vec::new();
        assert!(self.take(size, &mut bytes).unwrap());
        assert_eq!(self.line().unwrap().as_deref(), Some(""));
        bytes
    }

    fn line(&mut self) -> Result<Option<String>, Broken> {
        loop {
            if let Some(end) = find(&self.received, b"\r\n") {
                let line = text(&self.received[..end]);
                self.received.drain(..end + 2);
                return Ok(Some(line));
            }
            if self.more()? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads exactly `length` bytes.
    ///
    /// # Panics
    /// If fewer come.
    pub fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(self.take(length as u64, &mut bytes).unwrap(), "closed after {bytes:?}");
        bytes
    }

    /// Reads and keeps bytes that have arrived, about `limit` at most, without waiting. False if
    /// the server has closed the connection.
    pub fn read_some(&mut self, limit: usize) -> bool {
        let mut buffer = vec![0; limit];
        match self.carrier.read_now(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// True if a TLS connection has ended without `close_notify`, or a stream of HTTP/2 or HTTP/3 was reset.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Waits, and returns true if the server closes the connection without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        self.received.is_empty() && matches!(self.more(), Ok(0))
    }

    /// Reads up to the end of the connection, however it ends.
    ///
    /// # Panics
    /// If it does not end.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more().unwrap() > 0 {}
        std::mem::take(&mut self.received)
    }

    /// The error with which the connection ends.
    ///
    /// # Panics
    /// If something else comes.
    pub fn error(&mut self) -> io::ErrorKind {
        self.carrier.read(&mut [0]).unwrap_err().kind()
    }

    /// True if the connection speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.carrier.is_tls()
    }

    /// True if nothing has arrived yet. Does not wait.
    pub fn is_silent(&mut self) -> bool {
        self.received.is_empty() && self.carrier.is_silent()
    }

    /// Reads further bytes. A reset counts as the end of the connection.
    fn more(&mut self) -> Result<usize, Broken> {
        let mut buffer = [0; 64 * 1024];
        match self.carrier.read(&mut buffer) {
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                Ok(count)
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Err(Broken::Hangs)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => self.more(),
            Err(_) => {
                self.truncated |= self.carrier.tells_cuts();
                Ok(0)
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
