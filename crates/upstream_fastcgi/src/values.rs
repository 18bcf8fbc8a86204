//! The question for the values of an application (`FCGI_GET_VALUES`, FastCGI 1.0 §4.1): the
//! connections that it takes at a time, and its ability to share them between requests.
//!
//! The question gets a connection of its own, at the time when a second connection for requests is
//! made: then another process is probably free. php-cgi and flup report the number of their
//! processes. php-fpm reports no number; libfcgi and libsendoff report 1, which is the answering
//! process. In these cases the number is found by trial (`connections.rs`). Go's `net/http/fcgi`
//! reports that requests may share connections (`shared/`), and no number.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::BytesMut;
use sendoff_fastcgi::record::{Header, Kind};
use sendoff_fastcgi::{Decoder, RecordPart, params};
use tokio::io::Interest;
use tokio::time::{Instant, timeout};

use super::peer::Peer;
use super::stream::Stream;

/// An application that does not know the question occupies a process for this long, once.
const PATIENCE: Duration = Duration::from_millis(500);

/// The pause before an application that has answered is asked again: it may have been restarted
/// with other settings.
const AGAIN: Duration = Duration::from_secs(60);

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 4096;

const MAX_CONNS: &[u8] = b"FCGI_MAX_CONNS";
const MAX_REQS: &[u8] = b"FCGI_MAX_REQS";
const MPXS_CONNS: &[u8] = b"FCGI_MPXS_CONNS";

/// The values that an application has reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Values {
    /// The most connections at a time. `None`: it was not reported, or the answer is about one
    /// process.
    pub(super) connections: Option<NonZeroUsize>,
    /// The most requests at a time on all connections together, if it was reported and connections
    /// may be shared.
    pub(super) requests: Option<NonZeroUsize>,
    /// True if several requests may share a connection.
    pub(super) multiplexes: bool,
}

/// State of the question for an application's values.
///
/// ```text
///  NotYet ── asked ──▶ Asked ── answers ──▶ Answered ── a minute later ──▶ NotYet
///                        └───── does not ──▶ (Asked, for ever)
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Asking {
    #[default]
    NotYet,
    Asked,
    Answered(Instant),
}

impl Asking {
    /// True if it is time to ask; the application then counts as asked.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_due = match *self {
            Self::NotYet => true,
            Self::Asked => false,
            Self::Answered(at) => now.duration_since(at) > AGAIN,
        };
        if is_due {
            *self = Self::Asked;
        }
        is_due
    }
}

/// Asks the application for its values.
///
/// # Errors
/// The application has not answered.
pub(super) async fn ask(peer: &Peer) -> io::Result<Values> {
    let stream = timeout(PATIENCE, peer.connect()).await??;
    timeout(PATIENCE, exchange(&stream)).await?
}

async fn exchange(stream: &Stream) -> io::Result<Values> {
    let mut question = Vec::new();
    for name in [MAX_CONNS, MAX_REQS, MPXS_CONNS] {
        params::encode(&mut question, name, b"");
    }
    let len = u16::try_from(question.len()).unwrap_or_default();
    let wire = [&Header::new(Kind::GET_VALUES, 0, len).encode(), &question[..]].concat();
    stream.ready(Interest::WRITABLE).await?;
    // A new connection takes this small request at once.
    if stream.try_write(&wire)? < wire.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let (mut decoder, mut received) = (Decoder::default(), BytesMut::new());
    let mut descriptors = VecDeque::new();
    let broken = |_| io::Error::from(io::ErrorKind::InvalidData);
    while received.len() <= MAX_ANSWER {
        received.reserve(MAX_ANSWER);
        match stream.try_read(&mut received, &mut descriptors) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.ready(Interest::READABLE).await?;
            }
            Err(error) => return Err(error),
        }
        match decoder.next(&mut received).map_err(broken)? {
            None => {}
            Some(RecordPart::Record { kind: Kind::GET_VALUES_RESULT, content, .. }) => {
                return Ok(said(&content));
            }
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn said(content: &[u8]) -> Values {
    let mut values = Values::default();
    for (name, value) in params::decode(content).flatten() {
        let number = || std::str::from_utf8(value).ok()?.parse().ok();
        match name {
            MAX_CONNS => values.connections = number(),
            MAX_REQS => values.requests = number(),
            MPXS_CONNS => values.multiplexes = value == b"1",
            _ => {}
        }
    }
    if !values.multiplexes {
        // The value 1 describes only the process that answers.
        values.connections = values.connections.filter(|number| number.get() > 1);
        values.requests = None;
    }
    values
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;

    use super::*;

    /// The values that result from an application's answer of these bytes.
    fn answered(answer: Vec<u8>) -> io::Result<Values> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut question = [0; 8 + 6 + MAX_CONNS.len() + MAX_REQS.len() + MPXS_CONNS.len()];
            stream.read_exact(&mut question).unwrap();
            stream.write_all(&answer).unwrap();
            question
        });
        let address = format!("unix:{}", path.display()).parse().unwrap();
        let peer = Arc::new(Peer::new(address, None, PATIENCE));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said = runtime.block_on(ask(&peer));
        let question = served.join().unwrap();
        assert_eq!(question[..8], [1, 9, 0, 0, 0, 48, 0, 0]);
        said
    }

    fn result(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut content = Vec::new();
        pairs.iter().for_each(|(name, value)| params::encode(&mut content, name, value));
        let len = content.len().try_into().unwrap();
        [&Header::new(Kind::GET_VALUES_RESULT, 0, len).encode(), &content[..]].concat()
    }

    #[test]
    fn the_number_is_taken_if_it_is_that_of_all_processes() {
        let of = |text: &'static [u8]| {
            answered(result(&[(MPXS_CONNS, b"0"), (MAX_CONNS, text)])).unwrap().connections
        };
        assert_eq!(of(b"3"), NonZeroUsize::new(3));
        for nothing in [&b"1"[..], b"0", b"", b"many", b"-3"] {
            assert_eq!(of(nothing), None);
        }
        assert_eq!(answered(result(&[])).unwrap(), Values::default());
    }

    #[test]
    fn connections_are_shared_only_if_the_application_says_so() {
        let of = |multiplexes: &'static [u8]| {
            let all = [(MAX_CONNS, &b"1"[..]), (MAX_REQS, b"50"), (MPXS_CONNS, multiplexes)];
            answered(result(&all)).unwrap()
        };
        let (connections, requests) = (NonZeroUsize::new(1), NonZeroUsize::new(50));
        assert_eq!(of(b"1"), Values { connections, requests, multiplexes: true });
        for no in [&b"0"[..], b"", b"yes", b"11"] {
            assert_eq!(of(no), Values::default());
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error_in_time() {
        let wrong = [b"HTTP/1.1 400\r\n\r\n".to_vec(), vec![1, 10], vec![1; 10_000], Vec::new()];
        for wrong in wrong {
            answered(wrong).unwrap_err();
        }
    }

    #[test]
    fn one_that_does_not_answer_is_asked_once_others_every_minute() {
        let now = Instant::now();
        let mut asking = Asking::default();
        assert!(asking.begin(now) && !asking.begin(now + AGAIN * 10));
        asking = Asking::Answered(now);
        assert!(!asking.begin(now + AGAIN) && asking.begin(now + AGAIN * 2));
    }
}
