//! The sending side of a client's connection.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Version};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::lent::{Lent, hang_up};
use crate::delivery::{Progress, SendQueue};
use crate::explain::{Remark, Report};
use crate::response::{Framing, Head};
use crate::segment::Segment;

/// The two ends of a client's connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// A client and what it is owed.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) ends: Ends,
    queue: SendQueue,
    send_timeout: Duration,
    /// Since when the socket has taken nothing of what is owed.
    blocked_since: Option<Instant>,
    /// The framing of the response under way.
    framing: Framing,
    head_len: u64,
    sent: u64,
    /// Set while a response is explained: it goes here instead of to the client.
    pub(crate) report: Option<Box<Report>>,
    /// Body bytes of the response that came as bytes, not as files.
    generated: u64,
    pub(super) lent: Lent,
}

impl Drop for Client {
    fn drop(&mut self) {
        hang_up(&self.stream, &self.lent);
    }
}

/// What a response's framing depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) version: Version,
    /// Whether another request may follow on the connection.
    pub(crate) keep_alive: bool,
}

impl Client {
    pub(crate) fn new(stream: TcpStream, ends: Ends, send_timeout: Duration) -> Self {
        let framing = Framing::NoBody;
        Self {
            stream,
            ends,
            queue: SendQueue::default(),
            send_timeout,
            blocked_since: None,
            framing,
            head_len: 0,
            sent: 0,
            report: None,
            generated: 0,
            lent: Lent::default(),
        }
    }

    /// Queues a response head. Returns whether the connection can be kept open after the response.
    pub(crate) fn begin(
        &mut self,
        asked: Asked<'_>,
        status: StatusCode,
        reason: Option<&[u8]>,
        length: Option<u64>,
        fields: impl FnOnce(&mut Head<'_>),
    ) -> io::Result<bool> {
        self.framing = Framing::choose(asked.method, asked.version, status, length);
        let keep_alive = asked.keep_alive && self.framing != Framing::Close;
        if let Some(report) = &mut self.report {
            report.begin(status, length);
            return Ok(keep_alive);
        }
        let mut out = BytesMut::with_capacity(512);
        let mut head = Head::new(&mut out, status, reason);
        fields(&mut head);
        let length = length.filter(|_| status != StatusCode::NO_CONTENT);
        head.finish(self.framing, length, asked.version, keep_alive);
        self.head_len = out.len() as u64;
        (self.sent, self.generated) = (0, 0);
        self.lent.begin();
        self.queue.push_bytes(out.freeze())?;
        Ok(keep_alive)
    }

    pub(super) fn frames(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Somebody else has sent the first `wire` bytes of a response.
    pub(super) fn was_sent(&mut self, wire: u64, head_len: u64) {
        self.head_len = head_len;
        (self.sent, self.generated) = (0, wire.saturating_sub(head_len));
        self.queue.sent_elsewhere(wire);
    }

    pub(super) fn push_raw(&mut self, bytes: Bytes) -> io::Result<()> {
        self.generated += bytes.len() as u64;
        self.queue.push_bytes(bytes)
    }

    /// Queues a piece of the body. More than the announced length is cut off; returns whether it all fitted.
    pub(crate) fn push(&mut self, segment: Segment) -> io::Result<bool> {
        let Some(mut segment) = self.push_framed_already(segment)? else { return Ok(true) };
        let len = segment.len();
        if matches!(segment, Segment::Bytes(_)) {
            self.generated += len;
        }
        if self.framing == Framing::NoBody {
            return Ok(true);
        }
        let room = self.framing.take(len);
        if room == 0 {
            return Ok(len == 0);
        }
        match &mut segment {
            Segment::Bytes(bytes) => bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX)),
            Segment::File(file) => file.len = room,
        }
        self.push_framed(segment, room)?;
        Ok(room == len)
    }

    fn push_framed(&mut self, segment: Segment, len: u64) -> io::Result<()> {
        if let Some(report) = &mut self.report {
            report.segment(&segment, len);
            return Ok(());
        }
        if let Some(before) = self.framing.before_piece(len) {
            self.queue.push_bytes(before)?;
        }
        match segment {
            Segment::Bytes(bytes) => self.queue.push_bytes(bytes)?,
            Segment::File(file) => self.queue.push_file(file),
        }
        if let Some(after) = self.framing.after_piece() {
            self.queue.push_bytes(after)?;
        }
        Ok(())
    }

    /// Queues the end of the body. Returns the bytes that are missing of the announced length.
    pub(crate) fn end(&mut self) -> io::Result<u64> {
        if self.lent.framed() > 0 {
            return Ok(self.lent.framed());
        }
        if let Some(end) = self.framing.end().filter(|_| self.report.is_none()) {
            self.queue.push_bytes(end)?;
        }
        Ok(if let Framing::Length(left) = self.framing { left } else { 0 })
    }

    /// Says something about the segments that are pushed next, if somebody wants to know.
    pub(crate) fn remark(&mut self, remark: impl FnOnce() -> Remark) {
        if let Some(report) = &mut self.report {
            report.remark(remark());
        }
    }

    /// Whether the client can tell a cut response from a complete one by the framing alone.
    pub(crate) fn sees_a_cut(&self) -> bool {
        self.framing != Framing::Close
    }

    pub(crate) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// Sends what the socket takes now.
    pub(crate) fn send_now(&mut self) -> io::Result<Progress> {
        if self.report.is_some() {
            // Nothing is written to it until the end, so nothing else tells that it has gone.
            return if self.has_gone() {
                Err(io::ErrorKind::ConnectionAborted.into())
            } else {
                Ok(Progress::Done)
            };
        }
        let progress = self.queue.try_send(&self.stream);
        let sent = self.queue.take_sent();
        self.sent += sent;
        match progress {
            Ok(Progress::Blocked) if sent == 0 && self.blocked_since.is_some() => {}
            Ok(Progress::Blocked) => self.blocked_since = Some(Instant::now()),
            _ => self.blocked_since = None,
        }
        progress
    }

    fn has_gone(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = rustix::net::recv(&self.stream, &mut [0; 1][..], flags);
        !matches!(peeked, Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR))
    }

    /// Waits until the socket takes more. The client's time runs from when it took something last, however often somebody
    /// waits meanwhile.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        let deadline = self.blocked_since.unwrap_or_else(Instant::now) + self.send_timeout;
        match tokio::time::timeout_at(deadline, self.stream.writable()).await {
            Ok(ready) => ready,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")),
        }
    }

    /// Sends everything that is owed.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.send_now()? {
                Progress::Done => return Ok(()),
                Progress::Blocked => self.writable().await?,
                Progress::Yield => tokio::task::yield_now().await,
            }
        }
    }

    /// Queues a whole body of the announced length, and sends everything that is owed.
    pub(crate) async fn finish(
        &mut self,
        body: impl IntoIterator<Item = Segment>,
    ) -> io::Result<()> {
        for segment in body {
            self.push(segment)?;
        }
        self.end()?;
        self.flush().await
    }

    /// Sends bytes that are no part of a response: `100 Continue`.
    pub(crate) async fn send_interim(&mut self, bytes: &'static [u8]) -> io::Result<()> {
        self.queue.push_bytes(Bytes::from_static(bytes))?;
        self.flush().await
    }

    /// Body bytes of the last response, without those of files.
    pub(crate) fn generated(&self) -> u64 {
        self.generated
    }

    /// Body bytes sent of the last response, for the log.
    pub(crate) fn body_sent(&self) -> u64 {
        self.sent.saturating_sub(self.head_len)
    }
}
