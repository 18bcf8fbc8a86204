//! A script's view of a request and of its response, and its changes.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};

use crate::dictionary::Dictionary;
use crate::fragments::{FragmentCount, FragmentStore};

/// The moment at which a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the path is mapped to a file (`magnet.attract-raw-url-to`).
    Before,
    /// After the path is mapped to a file (`magnet.attract-physical-path-to`).
    Route,
    /// When the head of the response is complete (`magnet.attract-response-start-to`).
    Response,
}

/// The data that a script may read and change.
#[derive(Debug)]
pub struct Exchange {
    /// The moment at which the script runs.
    pub phase: Phase,
    /// The request.
    pub request: Request,
    /// The file that the path is mapped to; empty in [`Phase::Before`].
    pub physical: Physical,
    /// Variables for applications (`r.req_env`).
    pub environment: Vec<(Bytes, Bytes)>,
    /// The status of the response; 0 if there is none yet.
    pub status: u16,
    /// The fields of the response: in [`Phase::Response`] all of them, otherwise only fields set by
    /// scripts.
    pub fields: Vec<(Bytes, Bytes)>,
    /// Names of the response fields that the script has set or removed in [`Phase::Response`].
    pub set_names: Vec<Bytes>,
    /// The body made by scripts; `None` if there is none.
    pub content: Option<Vec<BodyPiece>>,
    /// The dictionary of the site's scripts.
    pub shared: Arc<Dictionary>,
    /// The fragments of the site's scripts; `None`: they are made each time.
    pub fragments: Option<Rc<dyn FragmentStore>>,
    /// The number of fragments that scripts have asked for.
    pub fragment_count: FragmentCount,
    /// Messages of the script for the log.
    pub messages: Vec<String>,
    /// True if the response is explained, so that the place where the script makes the response is
    /// noted.
    pub is_explained: bool,
    /// That place: the file and the line.
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
    /// The requested host, with its port.
    pub authority: Bytes,
    /// The name of the site.
    pub server_name: Bytes,
    /// The request target. Scripts may change it; the change takes effect after a restart.
    pub target: Bytes,
    /// The request target as the client sent it.
    pub original_target: Bytes,
    /// The decoded path.
    pub path: Vec<u8>,
    /// The query.
    pub query: Option<Bytes>,
    /// The client's address; `None` if it is connected by a UNIX socket.
    pub remote: Option<SocketAddr>,
    /// The server's address of the connection.
    pub local: Option<SocketAddr>,
    /// All fields.
    pub headers: HeaderMap,
    /// Names of the fields that scripts have set or removed.
    pub set: Vec<HeaderName>,
    /// The body.
    pub body: Body,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub enum Body {
    /// It has been received, or the request has none.
    Received(Bytes),
    /// It has not been read.
    Pending {
        /// Its length in bytes; `None` if not known yet.
        length: Option<u64>,
        /// True if a script has asked for it: the script must run again after the body has arrived.
        is_wanted: bool,
    },
    /// It has been received, but is too large for scripts; its length in bytes.
    Large(u64),
}

/// The file that a path is mapped to.
#[derive(Debug, Clone, Default)]
pub struct Physical {
    /// The file.
    pub path: Option<Vec<u8>>,
    /// Its path relative to the root.
    pub relative: Option<Vec<u8>>,
    /// The folder of the site.
    pub root: Option<Rc<[u8]>>,
    /// The rest of the path after the name of a script.
    pub path_info: Option<Vec<u8>>,
}

/// A piece of a body made by a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyPiece {
    /// Bytes.
    Text(Bytes),
    /// A range of a file.
    File {
        /// Its path.
        path: Vec<u8>,
        /// Start of the range in bytes; negative: from the end of the file.
        offset: i64,
        /// Length of the range in bytes; `None`: up to the end of the file.
        len: Option<u64>,
    },
}

/// A script's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptDecision {
    /// Continue with the request.
    GoOn,
    /// Restart the request with its present target.
    Restart,
    /// The response is complete and has this status.
    Answer(u16),
    /// Send this file, with ranges and conditions.
    File(Vec<u8>),
    /// The script has failed; the message with the file and the line.
    Failed(String),
}

/// Maximum number of fields that scripts may add to a head.
pub(crate) const MAX_FIELDS: usize = 128;

/// Maximum number of logged messages per run, and maximum length of each in bytes.
const MAX_MESSAGES: (usize, usize) = (32, 4096);

impl Exchange {
    /// An exchange before any response.
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
            set_names: Vec::new(),
            content: None,
            shared,
            fragments: None,
            fragment_count: FragmentCount::default(),
            messages: Vec::new(),
            is_explained: false,
            place: None,
        }
    }

    /// Records a message for the log.
    pub(crate) fn log(&mut self, message: &str) {
        if self.messages.len() < MAX_MESSAGES.0 {
            let most = &message.as_bytes()[..message.len().min(MAX_MESSAGES.1)];
            let text = String::from_utf8_lossy(most);
            self.messages.push(text.replace(char::is_control, "\u{fffd}"));
        }
    }

    /// All values of a response field, in the notation that scripts use for several values.
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

    /// Sets a response field; an empty value removes it. Invalid fields are logged and ignored;
    /// fields about framing are silently ignored.
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
        if self.fields.len().max(self.set_names.len()) + values.len() > MAX_FIELDS {
            self.log("the response has too many fields");
            return;
        }
        if self.phase == Phase::Response
            && !self.set_names.iter().any(|known| known.eq_ignore_ascii_case(name))
        {
            self.set_names.push(Bytes::copy_from_slice(name));
        }
        let place = self.fields.iter().position(|(known, _)| known.eq_ignore_ascii_case(name));
        // Most fields are new and have one value, which can be stored without a copy.
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

/// Splits a text into values: each further value is on a line of its own, after the name. `None` if
/// the text is invalid.
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
