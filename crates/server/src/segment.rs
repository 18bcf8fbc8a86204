//! Pieces of a response body in the front's custody.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use bytes::Bytes;
use sendoff_sys::lease::{self, Lease};
use sendoff_sys::sock_diag::Connection;

/// A piece of a response body. Moving it moves the custody of its bytes.
#[derive(Debug, Clone)]
pub enum Segment {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of an open file.
    File(FileSegment),
}

impl Segment {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A range of an open file.
#[derive(Debug, Clone)]
pub struct FileSegment {
    /// The file.
    pub file: Rc<OpenFile>,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Bytes left to send.
    pub len: u64,
}

/// An open regular file whose ranges are being sent.
#[derive(Debug)]
pub struct OpenFile {
    descriptor: RefCell<Rc<OwnedFd>>,
    /// Set when a file that had to be copied could not be: its unsent ranges are lost.
    lost: Cell<bool>,
    /// For a file under a snapshot guard: the connections that `sendfile` gave pages of it to.
    recipients: Option<RefCell<HashMap<Connection, Recipient>>>,
    /// The guarded file was replaced by a copy, whose pages nobody changes.
    copied: Cell<bool>,
}

/// How far a connection is, in bytes since it was accepted.
#[derive(Debug)]
struct Recipient {
    /// Given to the socket up to now.
    sent: Rc<Cell<u64>>,
    /// Where the last page of the file ended among them.
    last_page: u64,
}

impl OpenFile {
    /// A file that nobody else changes, or whose changes nobody minds.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Rc<Self> {
        Rc::new(Self {
            descriptor: RefCell::new(Rc::new(descriptor)),
            lost: Cell::new(false),
            recipients: None,
            copied: Cell::new(false),
        })
    }

    /// A file handed over under a lease, which can be recalled.
    #[must_use]
    pub fn guarded(descriptor: OwnedFd) -> Rc<Self> {
        Rc::new(Self {
            descriptor: RefCell::new(Rc::new(descriptor)),
            lost: Cell::new(false),
            recipients: Some(RefCell::default()),
            copied: Cell::new(false),
        })
    }

    /// Whether it may be recalled.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.recipients.is_some()
    }

    /// Where to read from now; `None` if the contents are lost.
    #[must_use]
    pub fn descriptor(&self) -> Option<Rc<OwnedFd>> {
        self.look();
        (!self.lost.get()).then(|| Rc::clone(&self.descriptor.borrow()))
    }

    /// Whether what has been read of the file so far is what it was when it was handed over.
    #[must_use]
    pub fn is_as_it_was(&self) -> bool {
        self.look();
        !self.lost.get()
    }

    /// A lease that has ended without our saying so means that a writer may have been there: this process or the worker
    /// was stopped for longer than the other end, or the kernel, waits.
    fn look(&self) {
        let is_guarded = self.recipients.is_some() && !self.copied.get() && !self.lost.get();
        if is_guarded && lease::look(self.descriptor.borrow().as_fd()) == Lease::Ended {
            tracing::error!("the lease of a file has ended too early: its downloads are cut");
            self.lose();
        }
    }

    /// From now on every unsent range is read from `copy`, which has the same contents at the same offsets.
    pub fn replace(&self, copy: OwnedFd) {
        self.copied.set(true);
        *self.descriptor.borrow_mut() = Rc::new(copy);
    }

    /// Gives up the unsent ranges: whoever still wants them gets a cut connection rather than wrong bytes.
    pub fn lose(&self) {
        self.lost.set(true);
    }

    /// Remembers that pages of a guarded file were given to this connection, as the last of the bytes `sent` on it.
    pub fn sent_to(&self, connection: Connection, sent: &Rc<Cell<u64>>) {
        if let Some(recipients) = self.recipients.as_ref().filter(|_| !self.copied.get()) {
            let recipient = Recipient { sent: Rc::clone(sent), last_page: sent.get() };
            recipients.borrow_mut().insert(connection, recipient);
        }
    }

    /// Forgets the recipients that hold no pages of the file any more; returns how many are left. `in_flight` says how
    /// many of the bytes sent on a connection the kernel still has, or `None` if it cannot tell.
    pub fn settle(&self, in_flight: impl Fn(Connection) -> Option<u64>) -> usize {
        let Some(recipients) = &self.recipients else { return 0 };
        let mut recipients = recipients.borrow_mut();
        recipients.retain(|&connection, recipient| {
            let sent_since = recipient.sent.get() - recipient.last_page;
            in_flight(connection).is_none_or(|in_flight| in_flight > sent_since)
        });
        recipients.len()
    }

    /// How many connections may still hold pages of the file.
    #[must_use]
    pub fn recipients(&self) -> usize {
        self.recipients.as_ref().map_or(0, |recipients| recipients.borrow().len())
    }
}
