//! The lending of the client's socket for one response (docs/handover.md §7).

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::Poll;

use http::{Method, StatusCode, Version};
use sendoff_config::Party;
use sendoff_exchange::client::{Lender, Terms};
use sendoff_exchange::service::Service;
use sendoff_fastcgi::direct::Sent;
use sendoff_message::Fault;
use sendoff_message::response::Framing;
use sendoff_transport::Transport;

use super::exchange::{Exchange, State};
use super::framed::{Framed, framing_of};
use super::incoming::Unread;

/// The status in the access log if a borrower of the socket has cut the response: only the borrower
/// knew the status with which it began.
const BORROWER_FAILED: u16 = 502;

impl<T: Transport, S: Service> Exchange<'_, T, S> {
    /// Notes whose fault ends the response early. The default is the client's.
    pub(super) fn note_fault(&mut self, fault: Fault) {
        if fault != Fault::Client && matches!(self.state, State::Lent(_)) {
            let written = self.transport.written_elsewhere().map_or(0, |written| *written.start());
            self.unanswered = (BORROWER_FAILED, written);
        }
    }

    /// The client has closed its end. `Pending` if a borrower has written: the client may have
    /// received a complete response that the borrower has not reported yet.
    pub(super) fn gone(&self) -> Poll<()> {
        let may_be_complete = matches!(self.state, State::Lent(_)) && !self.is_untouched();
        if may_be_complete { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<T: Transport, S: Service> Lender for Exchange<'_, T, S> {
    fn may_lend(&self, party: Option<&Party>) -> bool {
        // A response to HEAD has no body, so there is nothing large to write.
        let has_all = matches!(self.unread, Unread::Nothing);
        (party.is_some() || !self.asked.keep_alive)
            && self.asked.method != Method::HEAD
            && !self.is_withheld
            && has_all
            && self.queue.is_empty()
            && *self.kept_up_before
    }

    fn lend(&mut self, party: Option<&Rc<Party>>) -> Option<Terms> {
        // Late bytes of an earlier borrower would be attributed to the next one.
        if !self.may_lend(party.map(|party| &**party)) || !self.is_untouched() {
            return None;
        }
        self.transport.lend()?;
        *self.lent_to = party.cloned();
        let http_10 = self.asked.version == Version::HTTP_10;
        *self.starting = None;
        self.state = State::Lent(if http_10 { Framing::Close } else { Framing::Chunked });
        Some(Terms { http_10, keep_alive: self.keep_alive })
    }

    fn socket(&mut self, borrower: &dyn fmt::Display) -> Option<BorrowedFd<'_>> {
        if !matches!(self.state, State::Lent(_)) {
            return None;
        }
        self.transport.note_borrower(borrower);
        self.transport.lend()
    }

    fn is_untouched(&self) -> bool {
        self.transport.written_elsewhere().is_ok_and(|written| *written.end() == 0)
    }

    fn resume(&mut self, status: StatusCode, sent: &Sent) -> io::Result<()> {
        let lie = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let written = self.transport.written_elsewhere()?;
        if !written.contains(&sent.wire) {
            return lie(format!(
                "it says that it wrote {} bytes to the client, it was {}",
                sent.wire,
                written.start()
            ));
        }
        if sent.wire.saturating_add(sent.framed) < u64::from(sent.head) {
            return lie("the head of its response is not whole".to_owned());
        }
        self.transport.resume(sent.wire);
        let head_len = u64::from(sent.head);
        self.framed = Framed::of(sent);
        self.kept_up = sent.framed == 0;
        self.body.copied = sent.wire.saturating_sub(head_len);
        self.notes.generated += self.body.copied;
        self.state = State::Begun { status, framing: framing_of(sent.rest), head_len };
        Ok(())
    }
}
