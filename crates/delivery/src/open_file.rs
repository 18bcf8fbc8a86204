//! An open file whose ranges are being sent, and the current source of its bytes.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use sendoff_sys::lease::{self, Lease};

use super::snapshots::{Contents, Identity, Snapshot, Snapshots};

/// An open regular file whose ranges are being sent.
///
/// ```text
///            join(), copied after a RECALL
///  Leased ─────────────────────────────────▶ Shared        Final (made as such)
///     └──▶ Lost: the lease has ended, or the file has become shorter
/// ```
#[derive(Debug)]
pub struct OpenFile {
    state: RefCell<State>,
    guard: Option<Guard>,
    /// True while a worker may still name the file in a `SEGMENT`.
    is_known: Cell<bool>,
}

/// The guard of a file that was handed over under a lease.
#[derive(Debug)]
struct Guard {
    identity: Identity,
    snapshots: Arc<Snapshots>,
}

#[derive(Debug)]
enum State {
    /// No process changes the file, or changes do not matter: `sendfile` may send its pages.
    Final(Arc<OwnedFd>),
    /// Other processes may change the file after its lease has ended: a range is read, then the
    /// lease is checked.
    Leased(Arc<OwnedFd>),
    /// The file is sent from a snapshot. While a worker may name the file, its descriptor stays
    /// open as a witness (`snapshots.rs`).
    Shared { snapshot: Arc<Snapshot>, witness: Option<Arc<OwnedFd>> },
    /// The unsent ranges are lost, for this reason: responses that need them are cut.
    Lost(Rc<str>),
}

/// The source of a range of a file.
#[derive(Debug)]
pub(crate) enum RangeSource {
    /// `sendfile` from this file.
    Final(Arc<OwnedFd>),
    /// A read, then [`OpenFile::verify`], then a send of the bytes read.
    Leased(Arc<OwnedFd>),
    /// From memory that holds the whole file.
    Memory(Bytes),
}

impl OpenFile {
    /// A file that no other process changes, or whose changes do not matter.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Rc<Self> {
        let state = RefCell::new(State::Final(Arc::new(descriptor)));
        Rc::new(Self { state, guard: None, is_known: Cell::new(true) })
    }

    /// As [`new`](Self::new), for a descriptor that has other users.
    #[must_use]
    pub fn shared(descriptor: Arc<OwnedFd>) -> Rc<Self> {
        let state = RefCell::new(State::Final(descriptor));
        Rc::new(Self { state, guard: None, is_known: Cell::new(true) })
    }

    /// A file handed over under a lease. `identity` is the result of `fstat`.
    #[must_use]
    pub fn guarded(
        descriptor: OwnedFd,
        identity: Identity,
        snapshots: &Arc<Snapshots>,
    ) -> Rc<Self> {
        let state = RefCell::new(State::Leased(Arc::new(descriptor)));
        let guard = Some(Guard { identity, snapshots: Arc::clone(snapshots) });
        Rc::new(Self { state, guard, is_known: Cell::new(true) })
    }

    /// True if it was handed over under a lease.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// The descriptor of the contents; `None` if the contents are lost or in memory.
    #[must_use]
    pub fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.look();
        match &*self.state.borrow() {
            State::Final(descriptor) | State::Leased(descriptor) => Some(Arc::clone(descriptor)),
            State::Shared { snapshot, .. } => match &snapshot.contents {
                Contents::File(descriptor) => Some(Arc::clone(descriptor)),
                Contents::Memory(_) => None,
            },
            State::Lost(_) => None,
        }
    }

    /// The file's own descriptor; `None` if it is sent from a snapshot or lost.
    pub fn own_descriptor(&self) -> Option<Arc<OwnedFd>> {
        match &*self.state.borrow() {
            State::Final(descriptor) | State::Leased(descriptor) => Some(Arc::clone(descriptor)),
            State::Shared { .. } | State::Lost(_) => None,
        }
    }

    /// The contents, if a snapshot has them in memory.
    pub fn memory(&self) -> Option<Bytes> {
        match &*self.state.borrow() {
            State::Shared { snapshot, .. } => match &snapshot.contents {
                Contents::Memory(contents) => Some(contents.clone()),
                Contents::File(_) => None,
            },
            _ => None,
        }
    }

    /// The current source of the file's bytes.
    ///
    /// # Errors
    /// The contents are lost: the response must be cut. The cut is counted.
    pub(crate) fn source(&self) -> io::Result<RangeSource> {
        match &*self.state.borrow() {
            State::Final(descriptor) => Ok(RangeSource::Final(Arc::clone(descriptor))),
            State::Leased(descriptor) => Ok(RangeSource::Leased(Arc::clone(descriptor))),
            State::Shared { snapshot, .. } => Ok(match &snapshot.contents {
                Contents::File(descriptor) => RangeSource::Final(Arc::clone(descriptor)),
                Contents::Memory(contents) => RangeSource::Memory(contents.clone()),
            }),
            State::Lost(why) => Err(self.cut(why)),
        }
    }

    /// Checks the lease. To be called after reading a range and before using the bytes.
    ///
    /// # Errors
    /// The lease has ended, so the bytes read may mix old and new contents: the response must be
    /// cut. The cut is counted.
    pub(crate) fn verify(&self) -> io::Result<()> {
        self.look();
        match &*self.state.borrow() {
            State::Lost(why) => Err(self.cut(why)),
            State::Final(_) | State::Leased(_) | State::Shared { .. } => Ok(()),
        }
    }

    /// Declares the file lost if its lease has ended without a `RECALL`. Another process may have
    /// written to it then, because this process or the worker was stopped for longer than its peer,
    /// or the kernel, waits.
    fn look(&self) {
        let has_ended = match &*self.state.borrow() {
            State::Leased(file) => lease::look(file.as_fd()) == Lease::Ended,
            State::Final(_) | State::Shared { .. } | State::Lost(_) => false,
        };
        if has_ended {
            self.lose("its lease ended before it was sent");
        }
    }

    /// The error with which a response is cut if the file has become too short for its range.
    /// `open(O_RDONLY|O_TRUNC)` breaks no lease, and a static file may be truncated at any time:
    /// other responses may need only ranges of it that still exist.
    pub(crate) fn became_shorter(&self) -> io::Error {
        const WHY: &str = "it became shorter while it was sent";
        let error = self.cut(&format!("{}: {WHY}", self.name()));
        self.lose(WHY);
        error
    }

    /// Gives up the unsent ranges of a file that only its lease protects, so that responses that
    /// need them are cut instead of sending wrong bytes. Has no effect on a copy. Two copies are
    /// made at the same time if a writer comes while the file is copied to be shared; the second
    /// may fail after the first has let the writer continue.
    pub fn lose(&self, why: &str) {
        if !matches!(*self.state.borrow(), State::Leased(_)) {
            return;
        }
        let why = format!("{}: {why}", self.name());
        tracing::error!(
            "a handed-over file is lost, responses that want more of it are cut: {why}"
        );
        *self.state.borrow_mut() = State::Lost(why.into());
    }

    fn cut(&self, why: &str) -> io::Error {
        if let Some(guard) = &self.guard {
            guard.snapshots.count_cut();
        }
        io::Error::new(io::ErrorKind::UnexpectedEof, format!("the response was cut: {why}"))
    }

    /// The name of the file, for the log.
    fn name(&self) -> String {
        let link = |file: Arc<OwnedFd>| format!("/proc/self/fd/{}", file.as_raw_fd());
        let path = self.own_descriptor().and_then(|file| std::fs::read_link(link(file)).ok());
        path.map_or_else(|| "a file".to_owned(), |path| path.display().to_string())
    }

    /// From now on the file is sent from `snapshot`. With `is_witness`, its own descriptor stays
    /// open while a worker may name the file.
    pub fn join(&self, snapshot: Arc<Snapshot>, is_witness: bool) {
        let mut state = self.state.borrow_mut();
        if let State::Leased(descriptor) | State::Final(descriptor) = &*state {
            let witness = (is_witness && self.is_known.get()).then(|| Arc::clone(descriptor));
            *state = State::Shared { snapshot, witness };
        }
    }

    /// To be called when the worker will not name the file again, or has died. Closes a descriptor
    /// that is only kept as a witness: the lease of a dead worker ends with its last descriptor.
    pub fn forget(&self) {
        self.is_known.set(false);
        if let State::Shared { witness, .. } = &mut *self.state.borrow_mut() {
            *witness = None;
        }
        if let Some(guard) = &self.guard {
            guard.snapshots.drop_if_stale(&guard.identity);
        }
    }

    /// The descriptor of a file that only its lease protects, with the data needed to copy it.
    pub fn leased(&self) -> Option<(Arc<OwnedFd>, Identity, &Arc<Snapshots>)> {
        let guard = self.guard.as_ref()?;
        match &*self.state.borrow() {
            State::Leased(file) => Some((Arc::clone(file), guard.identity, &guard.snapshots)),
            State::Final(_) | State::Shared { .. } | State::Lost(_) => None,
        }
    }

    /// From now on the file is sent from a copy on disk, unless its lease ended before the copy was
    /// complete.
    pub fn replace(&self, copy: Arc<OwnedFd>) {
        self.look();
        let mut state = self.state.borrow_mut();
        if let State::Leased(_) = &*state {
            *state = State::Final(copy);
        }
    }
}
