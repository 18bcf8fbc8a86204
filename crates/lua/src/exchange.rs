//! What a script sees of a request and of its response, and what it has made of them.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::dictionary::Dictionary;

/// When a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the path has led to a file (`magnet.attract-raw-url-to`).
    Before,
    /// When it has (`magnet.attract-physical-path-to`).
    Route,
    /// When the head of the response is known (`magnet.attract-response-start-to`).
    Response,
}

/// What a script sees and may change.
#[derive(Debug)]
pub struct Exchange {
    /// When the script runs.
    pub phase: Phase,
    /// The request.
    pub request: Request,
    /// Where the path leads in the file system; in [`Phase::Before`] nothing.
    pub physical: Physical,
    /// Variables for applications (`r.req_env`).
    pub environment: Vec<(Bytes, Bytes)>,
    /// The status of the response; 0: there is none yet.
    pub status: u16,
    /// The fields of the response: in [`Phase::Response`] all of them, else those that scripts have set.
    pub fields: Vec<(Bytes, Bytes)>,
    /// The body that scripts have made; `None`: none has.
    pub content: Option<Vec<Piece>>,
    /// The dictionary that the scripts of the site share.
    pub shared: Arc<Dictionary>,
    /// What the script wants to be logged.
    pub messages: Vec<String>,
    /// Whether the response is explained, so that the place is noted where the script makes it.
    pub is_explained: bool,
    /// That place, the file and the line.
    pub place: Option<String>,
}

/// A request as scripts see it.
#[derive(Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The protocol, `HTTP/1.1`.
    pub protocol: &'static str,
    /// `http` or `https`.
    pub scheme: Bytes,
    /// The host that was asked for, with its port.
    pub authority: Bytes,
    /// The site's name for itself.
    pub server_name: Bytes,
    /// The request target, which scripts may change; it counts after a restart.
    pub target: Bytes,
    /// The request target as the client sent it.
    pub original_target: Bytes,
    /// The path, decoded.
    pub path: Vec<u8>,
    /// The query.
    pub query: Option<Bytes>,
    /// The client; `None`: it is connected by a UNIX socket.
    pub remote: Option<SocketAddr>,
    /// The address that it is connected to.
    pub local: Option<SocketAddr>,
    /// All fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub enum Body {
    /// It has been received, or there is none.
    Received(Bytes),
    /// It has not been read.
    Pending {
        /// Its length; `None`: not known yet.
        length: Option<u64>,
        /// A script has asked for it: the script is to run again when the body is there.
        is_wanted: bool,
    },
    /// It has been received and is too large for scripts.
    Large(u64),
}

/// Where a path leads in the file system.
#[derive(Debug, Clone, Default)]
pub struct Physical {
    /// The file.
    pub path: Option<Vec<u8>>,
    /// Its path beneath the root.
    pub relative: Option<Vec<u8>>,
    /// The folder of the site.
    pub root: Option<Rc<[u8]>>,
    /// What follows the name of a script in the path.
    pub path_info: Option<Vec<u8>>,
}

/// A piece of the body that a script has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes.
    Text(Bytes),
    /// A range of a file.
    File {
        /// Its path.
        path: Vec<u8>,
        /// Where the range begins; negative: from the end of the file.
        offset: i64,
        /// Its length; `None`: up to the end.
        len: Option<u64>,
    },
}

/// What a script has decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The request goes on.
    GoOn,
    /// The request begins again, with the target as it is now.
    Restart,
    /// The response is complete, with this status.
    Answer(u16),
    /// This file is the response, with ranges and conditions.
    File(Vec<u8>),
    /// The script has failed, with the file and the line.
    Failed(String),
}

/// Fields that scripts may add to a head.
pub(crate) const MAX_FIELDS: usize = 128;

/// Messages of one run that are logged, and bytes of each.
const MAX_MESSAGES: (usize, usize) = (32, 4096);

impl Exchange {
    /// What a script sees before anything has been answered.
    #[must_use]
    pub fn new(
        phase: Phase,
        request: Request,
        physical: Physical,
        shared: Arc<Dictionary>,
    ) -> Self {
        Self {
            phase,
            request,
            physical,
            environment: Vec::new(),
            status: 0,
            fields: Vec::new(),
            content: None,
            shared,
            messages: Vec::new(),
            is_explained: false,
            place: None,
        }
    }

    /// Notes a message for the log.
    pub(crate) fn log(&mut self, message: &str) {
        if self.messages.len() < MAX_MESSAGES.0 {
            let most = &message.as_bytes()[..message.len().min(MAX_MESSAGES.1)];
            let text = String::from_utf8_lossy(most);
            self.messages.push(text.replace(char::is_control, "\u{fffd}"));
        }
    }

    /// All values of a response field, as scripts write several ones.
    pub(crate) fn field(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut all: Option<Vec<u8>> = None;
        for (known, value) in &self.fields {
            if known.eq_ignore_ascii_case(name) {
                match &mut all {
                    None => all = Some(value.to_vec()),
                    Some(all) => {
                        all.extend_from_slice(b"\r\n");
                        all.extend_from_slice(known);
                        all.extend_from_slice(b": ");
                        all.extend_from_slice(value);
                    }
                }
            }
        }
        all
    }

    /// Sets a response field; an empty value removes it. What would break the head is logged and left out; what is about framing is
    /// left out.
    pub(crate) fn set_field(&mut self, name: &[u8], value: Bytes) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if ["content-length", "connection", "transfer-encoding"].into_iter().any(is) {
            return;
        }
        let Some(values) = lines(name, &value) else {
            let name = name.escape_ascii();
            self.log(&format!("the response field {name} is not valid, and not set"));
            return;
        };
        if self.fields.len() + values.len() > MAX_FIELDS {
            self.log("the response has too many fields");
            return;
        }
        let place = self.fields.iter().position(|(known, _)| known.eq_ignore_ascii_case(name));
        // Most fields are new and have one value, which then needs no copy.
        if place.is_none() && values == [&value[..]] {
            if !value.is_empty() {
                self.fields.push((Bytes::copy_from_slice(name), value));
            }
            return;
        }
        self.fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        let place = place.unwrap_or(self.fields.len()).min(self.fields.len());
        let name = Bytes::copy_from_slice(name);
        let new = values.into_iter().map(|value| (name.clone(), Bytes::copy_from_slice(value)));
        self.fields.splice(place..place, new.filter(|(_, value)| !value.is_empty()));
    }
}

/// The values that one text gives: further ones stand on lines of their own, each with the name. `None`: it is not valid.
fn lines<'v>(name: &[u8], value: &'v [u8]) -> Option<Vec<&'v [u8]>> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(is_name) {
        return None;
    }
    let mut values = Vec::new();
    for (number, line) in value.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let value = if number == 0 {
            line
        } else {
            let (own, rest) = line.split_at_checked(name.len())?;
            rest.strip_prefix(b":").filter(|_| own.eq_ignore_ascii_case(name))?
        };
        if value.iter().any(|&byte| byte < b' ' && byte != b'\t' || byte == 127) {
            return None;
        }
        values.push(value.trim_ascii());
    }
    Some(values)
}
