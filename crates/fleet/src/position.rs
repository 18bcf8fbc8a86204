//! The last record that this node has read.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sendoff_report::seldom::Seldom;
use serde::{Deserialize, Serialize};

use crate::notes::Notes;

/// The file in the folder of kept pages.
const NAME: &str = "fleet";

/// Most bytes of the file.
const MAX_LEN: u64 = 4096;

/// The least time between two writes of the file, while records come one after the other.
const PAUSE: Duration = Duration::from_millis(100);

/// A place in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    /// The engine's names for its run and its history: they change when the engine starts, or another
    /// one has taken over, and records may be lost.
    pub(crate) run: String,
    pub(crate) stream: String,
    /// The last record that was read.
    pub(crate) last: String,
}

/// The place of this node, which outlives a change of its configuration; and its restart if it has
/// a folder.
#[derive(Debug)]
pub struct Positions {
    folder: Option<PathBuf>,
    notes: Option<Notes>,
    known: Mutex<Known>,
    said: Seldom,
}

#[derive(Debug, Default)]
struct Known {
    position: Option<Position>,
    /// The time of the last write.
    written: Option<Instant>,
    /// The file names `position`.
    is_saved: bool,
}

impl Positions {
    /// The place that a file in the folder of kept pages names.
    #[must_use]
    pub fn new(folder: Option<&Path>) -> Self {
        let position = folder.and_then(|folder| read(&folder.join(NAME)));
        let known = Known { position, written: None, is_saved: true };
        let (notes, folder) = (folder.map(Notes::new), folder.map(Path::to_owned));
        Self { folder, notes, known: Mutex::new(known), said: Seldom::new() }
    }

    pub(crate) fn get(&self) -> Option<Position> {
        self.lock().position.clone()
    }

    /// Notes the place. The records up to it must have been obeyed. The file may name an earlier
    /// place for a while: records that are obeyed twice do no harm.
    pub(crate) fn set(&self, position: Position) {
        let mut known = self.lock();
        (known.position, known.is_saved) = (Some(position), false);
        if known.written.is_none_or(|written| written.elapsed() >= PAUSE) {
            drop(known);
            self.save();
        }
    }

    /// Writes the place to the file, unless it is there.
    pub(crate) fn save(&self) {
        let mut known = self.lock();
        if known.is_saved {
            return;
        }
        (known.is_saved, known.written) = (true, Some(Instant::now()));
        let (Some(folder), Some(position)) = (&self.folder, known.position.clone()) else { return };
        drop(known);
        if let Err(error) = write(folder, &position)
            && self.said.is_due()
        {
            let folder = folder.display();
            tracing::warn!(%error, %folder, "the place in the fleet's stream cannot be kept");
        }
    }

    /// Begins to note whether purges wait. Returns true if an earlier process has ended with purges
    /// that it had not sent.
    pub(crate) fn begin_notes(&self) -> bool {
        self.with_notes(Notes::begin)
    }

    /// True if such a process may still run.
    pub(crate) fn has_predecessors(&self) -> bool {
        self.notes.as_ref().is_some_and(Notes::has_others)
    }

    /// True if one of them has ended meanwhile with purges that it had not sent.
    pub(crate) fn has_lost_purges(&self) -> bool {
        self.with_notes(Notes::look)
    }

    /// Notes that purges wait, or that all have been sent.
    pub fn note_unsent(&self, is_unsent: bool) {
        self.with_notes(|notes| notes.note(is_unsent));
    }

    fn with_notes<T: Default>(&self, call: impl FnOnce(&Notes) -> io::Result<T>) -> T {
        let done = self.notes.as_ref().map(call).transpose().inspect_err(|error| {
            if self.said.is_due() {
                tracing::warn!(%error, "purges that wait are lost if the server ends now");
            }
        });
        done.unwrap_or_default().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Option<Position> {
    let len = path.metadata().ok()?.len();
    let text = (len <= MAX_LEN).then(|| std::fs::read(path))?.ok()?;
    serde_json::from_slice(&text).ok()
}

/// Replaces the file: it is whole, whenever the process ends.
fn write(folder: &Path, position: &Position) -> io::Result<()> {
    // The page cache removes what is left of it.
    let mut file = tempfile::Builder::new().suffix(".new").tempfile_in(folder)?;
    file.write_all(&serde_json::to_vec(position)?)?;
    file.persist(folder.join(NAME))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let positions = Positions::new(Some(folder.path()));
        assert_eq!(positions.get(), None);
        let text = |text: &str| text.to_owned();
        let position =
            Position { run: text("run"), stream: text("shop:purges"), last: text("5-1") };
        let kept = || Positions::new(Some(folder.path())).get();
        positions.set(position.clone());
        assert_eq!(kept(), Some(position.clone()));
        let later = Position { last: text("6-1"), ..position.clone() };
        positions.set(later.clone());
        assert_eq!((kept(), positions.get()), (Some(position), Some(later.clone())));
        positions.save();
        assert_eq!(kept(), Some(later));
        for text in ["", "{", "{\"run\":\"a\"}", &"[".repeat(100_000)] {
            std::fs::write(folder.path().join(NAME), text).unwrap();
            assert_eq!(kept(), None);
        }
    }
}
