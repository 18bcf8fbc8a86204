//! The client's socket in a worker's hands, and back (`docs/handover.md` §7).

use std::io;
use std::os::fd::AsFd;

use http::Version;
use rustix::net::Shutdown;
use sendoff_fastcgi::direct::{Rest, Sent};
use sendoff_sys::tcp;
use tokio::net::TcpStream;

use super::client::Client;
use crate::response::Framing;
use crate::segment::Segment;

/// What is known of a socket that workers are lent.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// A worker has had it, and what the worker has left behind may still have it.
    ever: bool,
    /// Bytes to come that carry their framing already.
    framed: u64,
    /// With the last of them a chunk ends.
    open: bool,
    /// The client did not take the last response as fast as it came.
    slow: bool,
}

impl Lent {
    /// A response of the front begins.
    pub(super) fn begin(&mut self) {
        (self.framed, self.open, self.slow) = (0, false, false);
    }

    pub(super) fn framed(&self) -> u64 {
        self.framed
    }
}

impl Client {
    /// Notes that the client is slower than the application.
    pub(crate) fn is_slow(&mut self) {
        self.lent.slow = true;
    }

    /// Whether the client has taken all of its last response as fast as it came.
    pub(crate) fn kept_up(&self) -> bool {
        !self.lent.slow
    }

    /// Whether nothing is owed to the client, and it takes what it is sent.
    pub(crate) fn may_be_lent(&mut self) -> bool {
        self.queue().is_empty() && !self.lent.slow
    }

    /// The socket, for a worker to write to, if it may be lent.
    pub(crate) fn lend(&mut self, version: Version) -> bool {
        let may = self.may_be_lent();
        // On a kernel that counts in another way every worker would seem to lie.
        if may && (self.lent.ever || self.written() == Some(self.queue().sent())) {
            self.lent.ever = true;
            // If the worker dies nobody knows how it has framed what it wrote.
            let http_10 = version == Version::HTTP_10;
            self.frames(if http_10 { Framing::Close } else { Framing::Chunked });
            return true;
        }
        false
    }

    /// Bytes that the socket was given, by whomever; `None`: the kernel does not say.
    fn written(&self) -> Option<u64> {
        tcp::written(self.stream.as_fd()).ok()
    }

    /// Whether nobody else has written to the client.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.lent.ever || self.written() == Some(self.queue().sent())
    }

    /// Goes on where a worker has stopped. What follows are pieces of the body as ever, except for `sent.framed` bytes.
    ///
    /// # Errors
    /// What the worker says is not true: the kernel knows what the socket was given.
    pub(crate) fn resume(&mut self, sent: &Sent) -> io::Result<()> {
        let lie = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let before = self.queue().sent();
        let written = tcp::written(self.stream.as_fd())?;
        if before.checked_add(sent.wire) != Some(written) {
            return lie(format!(
                "it says that it wrote {} bytes to the client, it was {}",
                sent.wire,
                written.saturating_sub(before)
            ));
        }
        if sent.wire.saturating_add(sent.framed) < u64::from(sent.head) {
            return lie("the head of its response is not whole".to_owned());
        }
        let framing = match sent.rest {
            Rest::Length(left) => Framing::Length(left),
            Rest::Chunked { .. } => Framing::Chunked,
            Rest::Close => Framing::Close,
        };
        self.lent.framed = sent.framed;
        self.lent.open = sent.rest == Rest::Chunked { open: true };
        self.lent.slow = sent.framed > 0;
        self.frames(framing);
        self.was_sent(sent.wire, u64::from(sent.head));
        Ok(())
    }

    /// Queues what of a segment is framed already; returns the rest.
    pub(super) fn push_framed_already(&mut self, segment: Segment) -> io::Result<Option<Segment>> {
        if self.lent.framed == 0 {
            return Ok(Some(segment));
        }
        let Segment::Bytes(mut bytes) = segment else {
            let why = "a file in the middle of what a worker has framed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        };
        let now = usize::try_from(self.lent.framed).map_or(bytes.len(), |n| n.min(bytes.len()));
        self.lent.framed -= now as u64;
        self.push_raw(bytes.split_to(now))?;
        if self.lent.framed == 0
            && std::mem::take(&mut self.lent.open)
            && let Some(end) = Framing::Chunked.after_piece()
        {
            self.push_raw(end)?;
        }
        Ok((!bytes.is_empty()).then_some(Segment::Bytes(bytes)))
    }

    /// Ends the connection in a way that no client can take for the end of a response, whoever else has the socket: without
    /// a reset now it would come when the last of them closes it.
    pub(super) fn reset(&self) {
        let reset = if self.lent.ever {
            rustix::net::connect_unspec(&self.stream).map_err(io::Error::from)
        } else {
            self.stream.set_zero_linger()
        };
        // It fails on a connection that is gone.
        drop(reset);
    }
}

/// What [`Client`] closes its socket with. If a child that a script has left behind still has it, that does not end the
/// connection.
pub(super) fn hang_up(stream: &TcpStream, lent: &Lent) {
    if lent.ever {
        // It fails on a connection that is gone.
        let _gone = rustix::net::shutdown(stream, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use bytes::Bytes;
    use http::Method;

    use super::*;
    use crate::connection::{Asked, Ends};
    use crate::segment::{FileSegment, OpenFile};

    /// Our end of a connection, what a worker has of it, and the other end.
    fn lent() -> (Client, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (ours, peer) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ends = Ends { local: ours.local_addr().unwrap(), peer };
        let of_worker = ours.try_clone().unwrap();
        let ours = tokio::net::TcpStream::from_std(ours).unwrap();
        let mut client = Client::new(ours, ends, Duration::from_secs(20));
        assert!(client.is_untouched() && client.lend(Version::HTTP_11) && client.is_untouched());
        (client, of_worker, theirs)
    }

    const SENT: Sent = Sent {
        wire: 9,
        head: 4,
        framed: 0,
        rest: Rest::Length(0),
        status: 200,
        gone: false,
        surplus: false,
    };

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test);
    }

    fn bytes(text: &'static str) -> Segment {
        Segment::Bytes(Bytes::from_static(text.as_bytes()))
    }

    /// Sends the whole response and reads what has arrived at the other end.
    async fn finish(mut client: Client, mut theirs: TcpStream) -> String {
        client.flush().await.unwrap();
        drop(client);
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_a_worker_says_it_has_written_must_be_true() {
        for lie in [
            Sent { wire: 8, ..SENT },
            Sent { wire: 10, ..SENT },
            Sent { wire: 0, ..SENT },
            Sent { wire: u64::MAX, ..SENT },
            Sent { head: 10, ..SENT },
            Sent { head: u32::MAX, framed: 5, ..SENT },
        ] {
            run(async {
                let (mut client, mut worker, _theirs) = lent();
                worker.write_all(b"headbody!").unwrap();
                assert!(!client.is_untouched());
                assert!(client.resume(&lie).is_err(), "{lie:?}");
            });
        }
    }

    #[test]
    fn the_front_goes_on_where_the_worker_has_stopped() {
        let chunked = Rest::Chunked { open: false };
        let open = Rest::Chunked { open: true };
        for (rest, framed, pieces, missing, expected) in [
            (Rest::Length(0), 0, &[][..], 0, ""),
            (Rest::Length(0), 0, &["surplus"], 0, ""),
            (Rest::Length(3), 0, &["abcd"], 0, "abc"),
            (Rest::Length(3), 0, &["a", "b"], 1, "ab"),
            (Rest::Length(3), 2, &["ab", "cde", "f"], 0, "abcde"),
            (Rest::Length(0), 2, &["a"], 1, "a"),
            (chunked, 0, &[], 0, "0\r\n\r\n"),
            (chunked, 2, &["\r\n", "new"], 0, "\r\n3\r\nnew\r\n0\r\n\r\n"),
            (open, 4, &["ol", "dynew", "er"], 0, "oldy\r\n3\r\nnew\r\n2\r\ner\r\n0\r\n\r\n"),
            (open, 4, &["ol"], 2, "ol"),
            (Rest::Close, 1, &["ab"], 0, "ab"),
        ] {
            run(async {
                let (mut client, mut worker, theirs) = lent();
                worker.write_all(b"headbody!").unwrap();
                client.resume(&Sent { rest, framed, ..SENT }).unwrap();
                for piece in pieces {
                    client.push(bytes(piece)).unwrap();
                }
                assert_eq!(client.end().unwrap(), missing, "{rest:?}");
                client.flush().await.unwrap();
                assert_eq!(client.body_sent(), 5 + expected.len() as u64);
                assert!(client.is_untouched(), "everything is accounted for");
                // The worker's copy is still open: the end comes all the same.
                let text = finish(client, theirs).await;
                assert_eq!(text, format!("headbody!{expected}"));
                drop(worker);
            });
        }
    }

    #[test]
    fn a_file_cannot_stand_inside_of_what_is_framed() {
        run(async {
            let (mut client, mut worker, _theirs) = lent();
            worker.write_all(b"headbody!").unwrap();
            client.resume(&Sent { framed: 5, ..SENT }).unwrap();
            let file = OpenFile::new(std::fs::File::open("/dev/null").unwrap().into());
            assert!(client.push(Segment::File(FileSegment { file, offset: 0, len: 5 })).is_err());
        });
    }

    #[test]
    fn nothing_is_lent_while_something_is_owed_or_the_client_is_slow() {
        run(async {
            let (mut client, mut worker, theirs) = lent();
            let asked = Asked { method: &Method::GET, version: Version::HTTP_11, keep_alive: true };
            client.begin(asked, http::StatusCode::OK, None, Some(1), |_| {}).unwrap();
            assert!(!client.lend(Version::HTTP_11), "its head is owed");
            client.finish([bytes("x")]).await.unwrap();
            assert!(client.lend(Version::HTTP_11));
            client.is_slow();
            assert!(!client.lend(Version::HTTP_11));
            client.begin(asked, http::StatusCode::OK, None, Some(0), |_| {}).unwrap();
            client.flush().await.unwrap();
            assert!(client.lend(Version::HTTP_11), "it has caught up");
            worker.write_all(b"headbody!").unwrap();
            client.resume(&Sent { framed: 1, ..SENT }).unwrap();
            client.push(bytes("!")).unwrap();
            client.flush().await.unwrap();
            assert!(!client.lend(Version::HTTP_11), "it did not take what was written");
            finish(client, theirs).await;
        });
    }

    /// The worker is alive and keeps the socket: no end may come that looks regular.
    #[test]
    fn a_reset_needs_nobody_elses_consent() {
        run(async {
            let (client, mut worker, mut theirs) = lent();
            worker.write_all(b"headbody!").unwrap();
            client.reset();
            drop(client);
            let mut all = Vec::new();
            let error = theirs.read_to_end(&mut all).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
    }
}
