//! A web server's end of a FastCGI connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use bytes::BytesMut;
use sendoff_fastcgi::record::{EndRequest, Header, Kind};
use sendoff_fastcgi::{Decoder, RecordPart, params};

/// The parts of a request.
#[derive(Debug, Clone)]
pub struct Ask {
    pub role: u16,
    pub keep: bool,
    pub id: u16,
    pub params: Vec<(String, String)>,
    pub stdin: Option<Vec<u8>>,
    pub data: Option<Vec<u8>>,
}

/// `QUERY_STRING`, and an empty body.
pub fn ask(action: &str) -> Ask {
    let params = vec![
        ("QUERY_STRING".into(), action.into()),
        ("REQUEST_METHOD".into(), "POST".into()),
        ("EMPTY".into(), String::new()),
    ];
    Ask { role: 1, keep: false, id: 1, params, stdin: Some(Vec::new()), data: None }
}

impl Ask {
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(body.into());
        self
    }

    pub fn param(mut self, name: &str, value: &str) -> Self {
        self.params.push((name.into(), value.into()));
        self
    }

    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    pub fn id(mut self, id: u16) -> Self {
        self.id = id;
        self
    }

    pub fn role(mut self, role: u16) -> Self {
        self.role = role;
        self
    }

    /// Up to the end of the parameters.
    pub fn head(&self) -> Vec<u8> {
        let mut wire = Header::new(Kind::BEGIN_REQUEST, self.id, 8).encode().to_vec();
        let role = self.role.to_be_bytes();
        wire.extend([role[0], role[1], u8::from(self.keep), 0, 0, 0, 0, 0]);
        let mut text = Vec::new();
        for (name, value) in &self.params {
            params::encode(&mut text, name.as_bytes(), value.as_bytes());
        }
        stream(&mut wire, Kind::PARAMS, self.id, &text);
        wire
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut wire = self.head();
        for (kind, bytes) in [(Kind::STDIN, &self.stdin), (Kind::DATA, &self.data)] {
            if let Some(bytes) = bytes {
                stream(&mut wire, kind, self.id, bytes);
            }
        }
        wire
    }
}

/// A whole stream, in records of odd lengths with padding.
pub fn stream(wire: &mut Vec<u8>, kind: Kind, id: u16, bytes: &[u8]) {
    for (number, piece) in bytes.chunks(8191).enumerate() {
        let padding = u8::try_from(number % 8).unwrap();
        let mut header = Header::new(kind, id, u16::try_from(piece.len()).unwrap());
        header.padding_len = padding;
        wire.extend(header.encode());
        wire.extend(piece);
        wire.extend(vec![0; padding.into()]);
    }
    wire.extend(Header::new(kind, id, 0).encode());
}

/// The records that came back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub stdout_ended: bool,
    /// Application and protocol status; none if the connection ended before.
    pub end: Option<(u32, u8)>,
    pub others: Vec<(u8, Vec<u8>)>,
    pub closed: bool,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

pub trait Socket: Read + Write + Send {
    fn split(&self) -> Box<dyn Socket>;
    fn close_write(&self);
}

impl Socket for UnixStream {
    fn split(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().unwrap())
    }

    fn close_write(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Socket for TcpStream {
    fn split(&self) -> Box<dyn Socket> {
        Box::new(self.try_clone().unwrap())
    }

    fn close_write(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

pub struct Connection {
    pub socket: Box<dyn Socket>,
    buf: BytesMut,
    decoder: Decoder,
}

impl Connection {
    pub fn new(socket: impl Socket + 'static) -> Self {
        Self { socket: Box::new(socket), buf: BytesMut::new(), decoder: Decoder::default() }
    }

    /// Sends and receives at the same time. Without a kept connection, waits for its end.
    pub fn ask(&mut self, ask: &Ask) -> Answer {
        let (mut out, wire) = (self.socket.split(), ask.bytes());
        // It fails if the application answers without having read it.
        let writer = std::thread::spawn(move || out.write_all(&wire));
        let mut answer = self.answer(ask.id);
        if !ask.keep {
            answer.closed = self.next().is_none();
        }
        let _unread = writer.join().unwrap();
        answer
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Reads records up to the end of the request, or of the connection.
    pub fn answer(&mut self, id: u16) -> Answer {
        let mut answer = Answer::default();
        loop {
            match self.next() {
                None => {
                    answer.closed = true;
                    return answer;
                }
                Some(RecordPart::Stream { kind, request_id, data }) => {
                    assert_eq!(request_id, id);
                    match kind {
                        Kind::STDOUT => answer.stdout.extend_from_slice(&data),
                        Kind::STDERR => answer.stderr.extend_from_slice(&data),
                        other => panic!("{other:?} from an application"),
                    }
                }
                Some(RecordPart::EndOfStream { kind, .. }) => {
                    answer.stdout_ended |= kind == Kind::STDOUT;
                }
                Some(RecordPart::Record {
                    kind: Kind::END_REQUEST, request_id, content, ..
                }) => {
                    assert_eq!(request_id, id);
                    let end = EndRequest::decode(&content).unwrap();
                    answer.end = Some((end.app_status, end.protocol_status));
                    return answer;
                }
                Some(RecordPart::Record { kind, content, .. }) => {
                    answer.others.push((kind.0, content.to_vec()));
                }
            }
        }
    }

    /// The next part; `None` at the end of the connection.
    pub fn next(&mut self) -> Option<RecordPart> {
        loop {
            if let Some(part) = self.decoder.next(&mut self.buf).unwrap() {
                return Some(part);
            }
            let mut piece = [0; 65_536];
            match self.socket.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.buf.extend_from_slice(&piece[..n]),
            }
        }
    }
}
