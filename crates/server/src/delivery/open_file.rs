//! An open file whose ranges are being sent, and where its bytes come from at the moment.

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
    /// Whether a worker may still name it.
    is_known: Cell<bool>,
}

/// What belongs to a file that was handed over under a lease.
#[derive(Debug)]
struct Guard {
    identity: Identity,
    snapshots: Arc<Snapshots>,
}

#[derive(Debug)]
enum State {
    /// No other process changes it, or its changes do not matter: `sendfile` may take its pages.
    Final(Arc<OwnedFd>),
    /// Other processes change it once its lease has ended: its bytes are read, and the lease looked at behind that.
    Leased(Arc<OwnedFd>),
    /// A snapshot stands for it. The descriptor is kept as a witness (`snapshots.rs`) while the file is known.
    Shared { snapshot: Arc<Snapshot>, witness: Option<Arc<OwnedFd>> },
    /// Its unsent ranges are lost: responses that want them are cut. Says why.
    Lost(Rc<str>),
}

/// Where a range of a file is to be sent from.
#[derive(Debug)]
pub(crate) enum Source {
    /// By `sendfile`.
    Final(Arc<OwnedFd>),
    /// By reading and, if [`OpenFile::verify`] then agrees, sending what was read.
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

    /// A file handed over under a lease. `identity` is what `fstat` says of it.
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

    /// Whether it was handed over under a lease.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// An open descriptor with its contents; `None` if they are lost, or in memory.
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

    /// Its own descriptor, if nothing stands for it yet.
    pub(crate) fn own_descriptor(&self) -> Option<Arc<OwnedFd>> {
        match &*self.state.borrow() {
            State::Final(descriptor) | State::Leased(descriptor) => Some(Arc::clone(descriptor)),
            State::Shared { .. } | State::Lost(_) => None,
        }
    }

    /// Its contents, if they lie in memory.
    pub(crate) fn memory(&self) -> Option<Bytes> {
        match &*self.state.borrow() {
            State::Shared { snapshot, .. } => match &snapshot.contents {
                Contents::Memory(contents) => Some(contents.clone()),
                Contents::File(_) => None,
            },
            _ => None,
        }
    }

    /// Where to send a range from now.
    ///
    /// # Errors
    /// The contents are lost: the response must be cut. It is counted.
    pub(crate) fn source(&self) -> io::Result<Source> {
        match &*self.state.borrow() {
            State::Final(descriptor) => Ok(Source::Final(Arc::clone(descriptor))),
            State::Leased(descriptor) => Ok(Source::Leased(Arc::clone(descriptor))),
            State::Shared { snapshot, .. } => Ok(match &snapshot.contents {
                Contents::File(descriptor) => Source::Final(Arc::clone(descriptor)),
                Contents::Memory(contents) => Source::Memory(contents.clone()),
            }),
            State::Lost(why) => Err(self.cut(why)),
        }
    }

    /// To be called after reading and before what was read is used.
    ///
    /// # Errors
    /// The lease ended before: what was read may be a mixture, and the response must be cut. It is counted.
    pub(crate) fn verify(&self) -> io::Result<()> {
        self.look();
        match &*self.state.borrow() {
            State::Lost(why) => Err(self.cut(why)),
            State::Final(_) | State::Leased(_) | State::Shared { .. } => Ok(()),
        }
    }

    /// A lease that has ended without a `RECALL` means that another process may have written: this process or the worker was
    /// stopped for longer than the other end, or the kernel, waits.
    fn look(&self) {
        let has_ended = match &*self.state.borrow() {
            State::Leased(file) => lease::look(file.as_fd()) == Lease::Ended,
            State::Final(_) | State::Shared { .. } | State::Lost(_) => false,
        };
        if has_ended {
            self.lose("its lease ended before it was sent");
        }
    }

    /// What to cut a response with whose range is not in the file any more: `open(O_RDONLY|O_TRUNC)` breaks no lease, and
    /// a static file may be cut in any way.
    pub(crate) fn became_shorter(&self) -> io::Error {
        const WHY: &str = "it became shorter while it was sent";
        let error = self.cut(&format!("{}: {WHY}", self.name()));
        // Of a static file other responses may want what is still there.
        if self.guard.is_some() {
            self.lose(WHY);
        }
        error
    }

    /// Gives up the unsent ranges: a cut connection rather than wrong bytes.
    pub(crate) fn lose(&self, why: &str) {
        let why = format!("{}: {why}", self.name());
        if self.guard.is_some() {
            tracing::error!(
                "a handed-over file is lost, responses that want more of it are cut: {why}"
            );
        }
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

    /// From now on `snapshot` stands for it; with `is_witness` its own descriptor stays open while it is known.
    pub(crate) fn join(&self, snapshot: Arc<Snapshot>, is_witness: bool) {
        let mut state = self.state.borrow_mut();
        if let State::Leased(descriptor) | State::Final(descriptor) = &*state {
            let witness = (is_witness && self.is_known.get()).then(|| Arc::clone(descriptor));
            *state = State::Shared { snapshot, witness };
        }
    }

    /// The worker will not name it again, or has died. A descriptor that is only a witness is closed: with the last one of
    /// a worker that has died its lease ends.
    pub(crate) fn forget(&self) {
        self.is_known.set(false);
        if let State::Shared { witness, .. } = &mut *self.state.borrow_mut() {
            *witness = None;
        }
        if let Some(guard) = &self.guard {
            guard.snapshots.drop_if_stale(&guard.identity);
        }
    }

    /// The descriptor of a file that depends on its lease, and what is needed to copy it.
    pub(crate) fn leased(&self) -> Option<(Arc<OwnedFd>, Identity, &Arc<Snapshots>)> {
        let guard = self.guard.as_ref()?;
        match &*self.state.borrow() {
            State::Leased(file) => Some((Arc::clone(file), guard.identity, &guard.snapshots)),
            State::Final(_) | State::Shared { .. } | State::Lost(_) => None,
        }
    }

    /// A copy on disk stands for it from now on, if its lease did not end before the copy was made.
    pub(crate) fn replace(&self, copy: Arc<OwnedFd>) {
        self.look();
        let mut state = self.state.borrow_mut();
        if let State::Leased(_) = &*state {
            *state = State::Final(copy);
        }
    }
}
