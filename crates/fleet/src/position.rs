//! The last record that this node has read.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sendoff_report::seldom::Seldom;
use serde::{Deserialize, Serialize};

/// The file in the folder of kept pages.
const NAME: &str = "fleet";

/// Most bytes of the file.
const MAX_LEN: u64 = 4096;

/// A place in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    /// The engine's name for its run: it changes when the engine starts, and may have lost records.
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
    known: Mutex<Option<Position>>,
    said: Seldom,
}

impl Positions {
    /// The place that a file in the folder of kept pages names.
    #[must_use]
    pub fn new(folder: Option<&Path>) -> Self {
        let known = folder.and_then(|folder| read(&folder.join(NAME)));
        let folder = folder.map(Path::to_owned);
        Self { folder, known: Mutex::new(known), said: Seldom::new() }
    }

    pub(crate) fn get(&self) -> Option<Position> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the place. The records up to it must have been obeyed.
    pub(crate) fn set(&self, position: Position) {
        if let Some(folder) = &self.folder
            && let Err(error) = write(folder, &position)
            && self.said.is_due()
        {
            let folder = folder.display();
            tracing::warn!(%error, %folder, "the place in the fleet's stream cannot be kept");
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
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
        positions.set(position.clone());
        assert_eq!(Positions::new(Some(folder.path())).get(), Some(position));
        for text in ["", "{", "{\"run\":\"a\"}", &"[".repeat(100_000)] {
            std::fs::write(folder.path().join(NAME), text).unwrap();
            assert_eq!(Positions::new(Some(folder.path())).get(), None);
        }
    }
}
