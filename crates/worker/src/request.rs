//! One request as it is put together from records.
//!
//! ```text
//!         BEGIN_REQUEST            end of PARAMS             finish()
//!  Idle ────────────────▶ Params ────────────────▶ Ready ─────────────▶ Idle
//! ```

use std::os::fd::OwnedFd;

use sendoff_fastcgi::handover::{
    ACCEPT_EXPLAIN, ACCEPT_FILE, ACCEPT_NAMED, ACCEPT_PARAM, ACCEPT_REGION, ACCEPT_RELAY,
};
use sendoff_fastcgi::params;
use sendoff_fastcgi::record::Kind;

use crate::Bad;
use crate::direct::Direct;
use crate::peer::Role;

/// Bytes of PARAMS we take for one request. HTTP servers cut heads off far earlier (8 to 64 KiB are usual).
pub const MAX_PARAMS_LEN: usize = 1024 * 1024;

/// Parameters we take for one request.
pub const MAX_PARAMS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Params,
    Ready,
}

/// The request body.
#[derive(Debug)]
pub(crate) enum Body {
    /// `STDIN` bytes that have arrived, and those before `read` taken by the application.
    Stream { data: Vec<u8>, read: usize, ended: bool },
    /// The first `len` bytes of an open file.
    File { fd: OwnedFd, len: u64, read: u64 },
}

impl Default for Body {
    fn default() -> Self {
        Self::Stream { data: Vec::new(), read: 0, ended: false }
    }
}

impl Body {
    /// Whether nothing of it will arrive on the link any more.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Stream { ended, .. } => *ended,
            Self::File { .. } => true,
        }
    }

    /// Whether all of it has arrived, or more than `enough` bytes.
    pub(crate) fn arrived(&self, enough: usize) -> bool {
        match self {
            Self::Stream { data, ended, .. } => *ended || data.len() > enough,
            Self::File { .. } => true,
        }
    }
}

/// Its buffers are reused from request to request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) phase: Phase,
    pub(crate) id: u16,
    /// The worker's number for the link it came on.
    pub(crate) link: usize,
    pub(crate) keep_conn: bool,
    /// `ABORT_REQUEST` has come.
    pub(crate) aborted: bool,
    /// The front announced `file` or `relay`: it knows `LENGTH`, `DETACH` and `READY`.
    pub(crate) accepts_framing: bool,
    /// The front announced `file`.
    pub(crate) accepts_files: bool,
    /// The front announced `region`.
    pub(crate) accepts_regions: bool,
    /// The front announced `explain`.
    pub(crate) explains: bool,
    /// The front announced `named`.
    pub(crate) takes_named: bool,
    pub(crate) is_head: bool,
    pub(crate) direct: Direct,
    pub(crate) role: Role,
    pub(crate) body: Body,
    /// The file that a filter is to change (FastCGI §6.4).
    pub(crate) data: Body,
    /// PARAMS as they arrived.
    stream: Vec<u8>,
    /// Names and values, each followed by a NUL.
    text: Vec<u8>,
    pairs: Vec<Pair>,
}

/// Where a name and its value stand in `Request::text`, without their NULs.
#[derive(Debug, Clone, Copy)]
struct Pair {
    name: usize,
    value: usize,
    end: usize,
}

impl Request {
    pub(crate) fn begin(&mut self, link: usize, id: u16, keep_conn: bool, role: Role) {
        let mut data = match std::mem::take(&mut self.body) {
            Body::Stream { data, .. } => data,
            Body::File { .. } => Vec::new(),
        };
        data.clear();
        // Authorizers get no body (§6.3), filters get a second stream.
        self.body = Body::Stream { data, read: 0, ended: role == Role::Authorizer };
        self.data = Body::Stream { data: Vec::new(), read: 0, ended: role != Role::Filter };
        self.role = role;
        self.stream.clear();
        self.text.clear();
        self.pairs.clear();
        self.phase = Phase::Params;
        self.id = id;
        self.link = link;
        self.keep_conn = keep_conn;
        self.aborted = false;
        self.accepts_framing = false;
        self.accepts_files = false;
        self.accepts_regions = false;
        self.explains = false;
        self.takes_named = false;
        self.is_head = false;
        self.direct = Direct::Unasked;
    }

    /// `STDIN` or `DATA`.
    pub(crate) fn stream(&mut self, kind: Kind) -> &mut Body {
        if kind == Kind::DATA { &mut self.data } else { &mut self.body }
    }

    /// Whether nothing of it will arrive any more.
    pub(crate) fn is_complete(&self) -> bool {
        self.body.is_complete() && self.data.is_complete()
    }

    pub(crate) fn add_params(&mut self, data: &[u8]) -> Result<(), Bad> {
        if self.stream.len() + data.len() > MAX_PARAMS_LEN {
            return Err(Bad::TooManyParams);
        }
        self.stream.extend_from_slice(data);
        Ok(())
    }

    /// The end of PARAMS: cuts them into NUL-terminated pairs.
    pub(crate) fn end_params(&mut self) -> Result<(), Bad> {
        for pair in params::decode(&self.stream) {
            let (name, value) = pair?;
            if name == ACCEPT_PARAM {
                // Of several such parameters the last counts.
                let has = |wanted| value.split(|&b| b == b' ').any(|word| word == wanted);
                self.accepts_files = has(ACCEPT_FILE);
                self.accepts_framing = self.accepts_files || has(ACCEPT_RELAY);
                self.accepts_regions = has(ACCEPT_REGION);
                self.explains = has(ACCEPT_EXPLAIN);
                self.takes_named = has(ACCEPT_NAMED);
                continue;
            }
            if self.pairs.len() == MAX_PARAMS {
                return Err(Bad::TooManyParams);
            }
            if name == b"REQUEST_METHOD" {
                self.is_head = value == b"HEAD";
            }
            let start = self.text.len();
            self.text.extend_from_slice(name);
            self.text.push(0);
            self.text.extend_from_slice(value);
            self.text.push(0);
            let value = start + name.len() + 1;
            self.pairs.push(Pair { name: start, value, end: self.text.len() });
        }
        self.phase = Phase::Ready;
        Ok(())
    }

    /// Names and values, each with the NUL that follows it.
    pub(crate) fn params_with_nul(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.pairs
            .iter()
            .map(|pair| (&self.text[pair.name..pair.value], &self.text[pair.value..pair.end]))
    }
}
