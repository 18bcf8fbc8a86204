//! The sending direction: what the socket was given, what the kernel has made of it, and how it ends.
//!
//! # The end of a connection
//! When a socket is full, the kernel takes bytes of one more record, encrypts them, and keeps them outside of TCP until there is room.
//! `close(2)` drops them, and `shutdown(2)` ends the stream before them. So neither may be called before TCP has everything:
//!
//! ```text
//!  bytes that TCP has been given since the handshake  =  bytes that were sent  +  records × what a record adds
//! ```
//!
//! The kernel tells the first (`TCP_INFO`) and the number of records (`TLS_TX`); a record that is still open makes the sides differ, too.
//!
//! # A borrower
//! The socket is lent while the sides are equal, so no record is open and none waits. What a borrower has written since then follows from the
//! same numbers: exactly, once TCP has everything; before that, it is at least what TCP has beyond what is known, and at most what as
//! many records can carry. A record that the borrower has left open (`MSG_MORE`) is in neither number, and would take in what is written
//! next; so it is closed first.
//!
//! Who sends holds a lock (`tx_lock`), also while waiting for room in the socket, and a process that has the socket may wait. The other senders wait
//! for the lock then, `MSG_DONTWAIT` or not. So what is sent on a socket that was lent is interrupted, and the connection ends: an honest
//! borrower does not wait, and does not write when the front does. (Linux lets it be interrupted since 6.3.)

use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::time::Duration;

use rustls::AlertDescription;
use sendoff_sys::bounded::within;
use sendoff_sys::ktls::{self, CryptoInfo};
use sendoff_sys::tcp;
use tokio::time::{Instant, sleep};

use super::super::{Tcp, Transport};
use super::keys::Keys;

/// Content types of records (RFC 8446 §5.1), and levels of alerts (§6).
const APPLICATION_DATA: u8 = 23;
const ALERT: u8 = 21;
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// Bytes of an alert.
const ALERT_LEN: u64 = 2;

/// Bytes that a record carries at most.
const RECORD: u64 = 1 << 14;

/// The pause before TCP is asked again whether it has everything: the first one, and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const MOST_BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How long another process may hold the lock of the sending direction. An honest one never does.
const MOST_LOCKED: Duration = Duration::from_millis(1);

/// How far the end of the sending direction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is open.
    Open,
    /// The client must not take the end of the connection for one in good order.
    Cut,
    /// The client is to be told, but the socket was full.
    Owed,
    /// The client has been told; TCP may not have it yet.
    Told,
    /// TCP has everything and its own end.
    Over,
}

/// A socket whose sending direction the kernel encrypts.
pub struct Line {
    pub(super) tcp: Tcp,
    keys: Keys,
    /// Bytes of the handshake.
    before: u64,
    /// Bytes of alerts.
    alerts: u64,
    /// A bound on the number of records that these keys have encrypted.
    records: u64,
    /// The last send was taken as a whole, and nothing had been announced to follow it.
    is_whole: bool,
    end: End,
}

impl Line {
    /// Gives the keys to the kernel.
    ///
    /// # Errors
    /// The kernel does not take them; the connection is lost.
    pub(super) fn new(tcp: Tcp, keys: Keys) -> io::Result<Self> {
        ktls::attach(tcp.socket())?;
        ktls::encrypt(tcp.socket(), CryptoInfo::new(keys.info()))?;
        let before = tcp.sent();
        let (records, alerts, is_whole, end) = (keys.first, 0, true, End::Open);
        Ok(Self { tcp, keys, before, alerts, records, is_whole, end })
    }

    /// Bytes that were sent since the handshake.
    pub(super) fn sent(&self) -> u64 {
        self.tcp.sent() - self.before
    }

    /// Sends `len` bytes in pieces by `send`. `more`: further bytes follow at once.
    ///
    /// # Errors
    /// Those of `send`; the keys have encrypted as much as they may.
    pub(super) fn send(
        &mut self,
        len: usize,
        more: bool,
        send: impl FnOnce(&mut Tcp) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // Two more than whole records: the end of a record that was begun before, and the rest at the end.
        let records = self.records.saturating_add(len as u64 / RECORD + 2);
        if records >= self.keys.limit {
            return Err(io::Error::other("the connection's keys are used up"));
        }
        let sent = unlocked(self.tcp.was_lent(), || send(&mut self.tcp));
        self.is_whole = !more && sent.as_ref().is_ok_and(|&n| n == len);
        if let Ok(n) = sent {
            self.records += n as u64 / RECORD + 2;
        }
        sent
    }

    /// Gets ready to be lent. Returns the number of the borrower's first record; `None`: TCP does not have everything yet, or the keys should
    /// not be used for much longer.
    pub(super) fn lend(&mut self) -> Option<u64> {
        let (next, expected) = self.expected().ok()?;
        if self.end != End::Open || tcp::written(self.tcp.socket()).ok()? != expected {
            return None;
        }
        self.records = next;
        if self.is_worn() {
            return None;
        }
        self.tcp.note_lent().ok()?;
        // What a borrower leaves behind when it dies is the beginning of a response.
        self.is_whole = false;
        Some(next)
    }

    /// Bytes that a borrower has written whose first record was to have the number `first`: the least and the most.
    pub(super) fn written_since(&self, first: u64) -> io::Result<RangeInclusive<u64>> {
        let close = || ktls::send_record(self.tcp.socket(), APPLICATION_DATA, &[]);
        match unlocked(true, close) {
            // The record is closed, and waits for room in the socket.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            closed => closed?,
        }
        let (next, expected) = self.expected()?;
        let records = next.checked_sub(first).ok_or(ErrorKind::InvalidData)?;
        let least = tcp::written(self.tcp.socket())?.saturating_sub(expected);
        Ok(least.max(records.min(1))..=records.saturating_mul(RECORD))
    }

    /// A borrower has given the socket back, after a number of bytes.
    pub(super) fn resume(&mut self, written: u64) {
        self.tcp.resume(written);
        self.records = self.expected().map_or(self.keys.limit, |(next, _)| next);
        self.is_whole = true;
    }

    /// Whether the keys have encrypted half of what they may.
    pub(super) fn is_worn(&self) -> bool {
        self.records >= self.keys.limit / 2
    }

    /// As after more records than the keys may encrypt.
    #[cfg(test)]
    pub(super) fn use_up(&mut self) {
        self.keys.limit = 0;
    }

    /// Tells the client that the connection is broken.
    pub(super) fn fail(&mut self, why: AlertDescription) {
        // It does not matter if it cannot be sent.
        let _ = self.alert(FATAL, why);
        self.cut();
    }

    /// The client must not take the end of the connection for one in good order.
    pub(super) fn cut(&mut self) {
        self.end = End::Cut;
    }

    /// Ends the sending direction: at once if TCP has everything, otherwise in [`settle`].
    pub(super) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = if self.is_whole { End::Owed } else { End::Cut };
        }
        self.proceed();
    }

    /// Goes as far towards the end as possible without waiting.
    fn proceed(&mut self) {
        if self.end == End::Owed {
            match self.alert(WARNING, AlertDescription::CloseNotify) {
                Ok(()) => self.end = End::Told,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The client has gone.
                Err(_) => self.end = End::Cut,
            }
        }
        if self.end == End::Told && self.is_settled().unwrap_or(true) {
            self.tcp.finish();
            self.end = End::Over;
        }
    }

    fn alert(&mut self, level: u8, description: AlertDescription) -> io::Result<()> {
        let alert = [level, description.into()];
        let send = || ktls::send_record(self.tcp.socket(), ALERT, &alert);
        unlocked(self.tcp.was_lent(), send)?;
        self.alerts += ALERT_LEN;
        Ok(())
    }

    /// Whether TCP has everything that was sent.
    fn is_settled(&self) -> io::Result<bool> {
        let (_, expected) = self.expected()?;
        Ok(tcp::written(self.tcp.socket())? >= expected)
    }

    /// The number of the next record, and how many bytes TCP has been given if it has everything that this process has sent.
    fn expected(&self) -> io::Result<(u64, u64)> {
        let (mut info, len) = self.keys.empty();
        ktls::sending_state(self.tcp.socket(), &mut info[..len])?;
        let next = Keys::next(&info[..len]);
        let records = next.saturating_sub(self.keys.first);
        Ok((next, self.tcp.sent() + self.alerts + records * self.keys.overhead))
    }
}

/// Makes a call that sends on a socket, which another process may have if it was lent.
///
/// # Errors
/// Those of the call; `ConnectionAborted`: another process holds the lock.
fn unlocked<T>(was_lent: bool, send: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if !was_lent {
        return send();
    }
    match within(MOST_LOCKED, send) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Err(io::Error::new(
            ErrorKind::ConnectionAborted,
            "a process that was lent the client's socket does not let go of it",
        )),
        sent => sent,
    }
}

/// Waits until TCP has everything, and ends the connection. `limit`: how long the client may take nothing.
pub async fn settle(line: &std::cell::RefCell<Line>, limit: Duration) {
    let (mut pause, mut last, mut since) = (FIRST_LOOK, None, Instant::now());
    line.borrow_mut().finish();
    while matches!(line.borrow().end, End::Owed | End::Told) {
        let written = tcp::written(line.borrow().tcp.socket()).ok();
        if last.replace(written) != Some(written) {
            since = Instant::now();
        } else if since.elapsed() > limit || line.borrow().tcp.is_gone() {
            return;
        }
        sleep(pause).await;
        pause = (2 * pause).min(MOST_BETWEEN_LOOKS);
        line.borrow_mut().proceed();
    }
}
