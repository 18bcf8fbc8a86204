//! The sending direction: bytes given to the socket, records made of them by the kernel, and the
//! end.
//!
//! # The end of a connection
//! When a socket is full, the kernel takes bytes for one more record, encrypts them, and keeps them
//! outside of TCP until there is room. `close(2)` drops them, and `shutdown(2)` ends the stream
//! before them. So neither may be called before TCP has everything:
//!
//! ```text
//!  bytes that TCP has been given since the handshake  =  bytes that were sent  +  records × what a record adds
//! ```
//!
//! The kernel reports the first number (`TCP_INFO`) and the number of records (`TLS_TX`). A record
//! that is still open also makes the two sides differ.
//!
//! # A borrower
//! The socket is lent while both sides are equal, so no record is open and none waits. The same
//! numbers then give the bytes that a borrower has written: exactly, once TCP has everything;
//! before that, a lower bound (the bytes that TCP has beyond the expected ones) and an upper bound
//! (the capacity of the new records). A record that the borrower has left open (`MSG_MORE`) is in
//! neither number, and the next bytes would be added to it; so it is closed first.
//!
//! A sender holds a lock of the kernel (`tx_lock`), also while it waits for room in the socket. A
//! process that has the socket may wait there, and then other senders wait for the lock, even with
//! `MSG_DONTWAIT`. Sends on a socket that was lent are therefore interrupted after `MOST_LOCKED`,
//! and the connection ends: an honest borrower does not wait, and does not write while the front
//! does. (Linux allows the interruption since 6.3.)

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

/// Most bytes that a record carries.
const RECORD: u64 = 1 << 14;

/// Pauses between two checks whether TCP has everything: the first one, and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const MOST_BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Longest time that another process may hold the lock of the sending direction. An honest one
/// never holds it.
const MOST_LOCKED: Duration = Duration::from_millis(1);

/// Progress of the end of the sending direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseProgress {
    /// Sending goes on.
    Open,
    /// The connection ends without close_notify, so that the client notices the cut.
    Cut,
    /// close_notify is to be sent, but the socket was full.
    Owed,
    /// close_notify was sent; TCP may not have it yet.
    Told,
    /// TCP has everything, including the end of the stream.
    Over,
}

/// A socket whose sending direction the kernel encrypts.
pub struct KtlsSocket {
    pub(super) tcp: Tcp,
    keys: Keys,
    /// Bytes sent in the handshake.
    before: u64,
    /// Bytes of alerts.
    alerts: u64,
    /// Upper bound of the records that these keys have encrypted.
    records: u64,
    /// The last send was accepted completely, and no further bytes were announced.
    is_whole: bool,
    end: CloseProgress,
}

impl KtlsSocket {
    /// Gives the keys to the kernel.
    ///
    /// # Errors
    /// The kernel refuses the keys; the connection is lost.
    pub(super) fn new(tcp: Tcp, keys: Keys) -> io::Result<Self> {
        ktls::attach(tcp.socket())?;
        ktls::encrypt(tcp.socket(), CryptoInfo::new(keys.info()))?;
        let before = tcp.sent();
        let (records, alerts, is_whole, end) = (keys.first, 0, true, CloseProgress::Open);
        Ok(Self { tcp, keys, before, alerts, records, is_whole, end })
    }

    /// Bytes sent since the handshake.
    pub(super) fn sent(&self) -> u64 {
        self.tcp.sent() - self.before
    }

    /// Sends `len` bytes by `send`. `more`: further bytes follow at once.
    ///
    /// # Errors
    /// The errors of `send`, or the keys have encrypted as many records as they may.
    pub(super) fn send(
        &mut self,
        len: usize,
        more: bool,
        send: impl FnOnce(&mut Tcp) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // Two more than the full records: the end of an open record, and the rest at the end.
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

    /// Prepares the socket for lending. Returns the number of the borrower's first record; `None`
    /// if TCP does not have everything yet, or if the keys should not be used for much longer.
    pub(super) fn lend(&mut self) -> Option<u64> {
        let (next, expected) = self.expected().ok()?;
        if self.end != CloseProgress::Open || tcp::written(self.tcp.socket()).ok()? != expected {
            return None;
        }
        self.records = next;
        if self.is_worn() {
            return None;
        }
        self.tcp.note_lent().ok()?;
        // A borrower that dies may leave a truncated response behind.
        self.is_whole = false;
        Some(next)
    }

    /// Smallest and largest number of bytes that a borrower may have written. `first`: the number
    /// of its first record.
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

    /// Notes that a borrower has given the socket back after `written` bytes.
    pub(super) fn resume(&mut self, written: u64) {
        self.tcp.resume(written);
        self.records = self.expected().map_or(self.keys.limit, |(next, _)| next);
        self.is_whole = true;
    }

    /// True if the keys have encrypted half of the records that they may.
    pub(super) fn is_worn(&self) -> bool {
        self.records >= self.keys.limit / 2
    }

    /// Marks the keys as used up.
    #[cfg(test)]
    pub(super) fn use_up(&mut self) {
        self.keys.limit = 0;
    }

    /// Sends the client a fatal alert and cuts the connection.
    pub(super) fn fail(&mut self, why: AlertDescription) {
        // A failure to send the alert changes nothing.
        let _ = self.alert(FATAL, why);
        self.cut();
    }

    /// Has the connection end without close_notify, so that the client notices the cut.
    pub(super) fn cut(&mut self) {
        self.end = CloseProgress::Cut;
    }

    /// Ends the sending direction: at once if TCP has everything, otherwise in [`settle`].
    pub(super) fn finish(&mut self) {
        if self.end == CloseProgress::Open {
            self.end = if self.is_whole { CloseProgress::Owed } else { CloseProgress::Cut };
        }
        self.proceed();
    }

    /// Proceeds towards the end as far as possible without waiting.
    fn proceed(&mut self) {
        if self.end == CloseProgress::Owed {
            match self.alert(WARNING, AlertDescription::CloseNotify) {
                Ok(()) => self.end = CloseProgress::Told,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The client has gone.
                Err(_) => self.end = CloseProgress::Cut,
            }
        }
        if self.end == CloseProgress::Told && self.is_settled().unwrap_or(true) {
            self.tcp.finish();
            self.end = CloseProgress::Over;
        }
    }

    fn alert(&mut self, level: u8, description: AlertDescription) -> io::Result<()> {
        let alert = [level, description.into()];
        let send = || ktls::send_record(self.tcp.socket(), ALERT, &alert);
        unlocked(self.tcp.was_lent(), send)?;
        self.alerts += ALERT_LEN;
        Ok(())
    }

    /// True if TCP has all bytes that were sent.
    fn is_settled(&self) -> io::Result<bool> {
        let (_, expected) = self.expected()?;
        Ok(tcp::written(self.tcp.socket())? >= expected)
    }

    /// The number of the next record, and the number of bytes that TCP has once it has everything
    /// that this process has sent.
    fn expected(&self) -> io::Result<(u64, u64)> {
        let (mut info, len) = self.keys.empty();
        ktls::sending_state(self.tcp.socket(), &mut info[..len])?;
        let next = Keys::next(&info[..len]);
        let records = next.saturating_sub(self.keys.first);
        Ok((next, self.tcp.sent() + self.alerts + records * self.keys.overhead))
    }
}

/// Makes a call that sends on a socket. If the socket was lent, the call is interrupted after
/// [`MOST_LOCKED`].
///
/// # Errors
/// The errors of the call; `ConnectionAborted`: another process holds the lock.
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

/// Waits until TCP has everything, and ends the connection. `limit`: longest time without progress
/// of the client.
pub async fn settle(ktls: &std::cell::RefCell<KtlsSocket>, limit: Duration) {
    let (mut pause, mut last, mut since) = (FIRST_LOOK, None, Instant::now());
    ktls.borrow_mut().finish();
    while matches!(ktls.borrow().end, CloseProgress::Owed | CloseProgress::Told) {
        let written = tcp::written(ktls.borrow().tcp.socket()).ok();
        if last.replace(written) != Some(written) {
            since = Instant::now();
        } else if since.elapsed() > limit || ktls.borrow().tcp.is_gone() {
            return;
        }
        sleep(pause).await;
        pause = (2 * pause).min(MOST_BETWEEN_LOOKS);
        ktls.borrow_mut().proceed();
    }
}
