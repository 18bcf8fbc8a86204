//! Databases of countries in MaxMind's format.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use maxminddb::{PathElement, Reader};
use sendoff_config::FileVersion;

/// The largest database: MaxMind's database of cities has 60 MiB, and the file is read into
/// memory.
const MAX_SIZE: u64 = 1 << 30;

type Database = Reader<Vec<u8>>;

/// A file and its version: inode, size, time of the last change.
type FileKey = (PathBuf, (u64, u64, i64));

/// Databases by their files. A database ends with the last site that uses it.
type InUse = HashMap<FileKey, Weak<Database>>;

/// The databases in use, which all event loops and sites share.
static IN_USE: Mutex<Option<InUse>> = Mutex::new(None);

/// A database.
#[derive(Clone)]
pub(super) struct Countries(Arc<Database>);

impl fmt::Debug for Countries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Countries({})", self.0.metadata().database_type)
    }
}

impl Countries {
    /// Reads a database, or takes it from another site or event loop that uses this version.
    ///
    /// # Errors
    /// It cannot be read, or is not such a database.
    pub(super) fn open(path: &Path, version: FileVersion) -> Result<Self, String> {
        let FileVersion { inode, size, changed } = version;
        let key: FileKey = (path.to_owned(), (inode, size, changed));
        // Other event loops wait: they need the same database.
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let in_use = in_use.get_or_insert_default();
        if let Some(known) = in_use.get(&key).and_then(Weak::upgrade) {
            return Ok(Self(known));
        }
        in_use.retain(|_, database| database.strong_count() > 0);
        let database = Arc::new(read(path)?);
        in_use.insert(key, Arc::downgrade(&database));
        Ok(Self(database))
    }

    /// The country of an address as two capital letters; empty if it is not known. A damaged part
    /// of the database knows no countries.
    pub(super) fn of(&self, address: IpAddr) -> String {
        let found = || {
            let found = self.0.lookup(address).ok()?;
            let code: Option<&str> = found.decode_path(&COUNTRY).ok()?;
            code.map(str::to_ascii_uppercase)
        };
        found().unwrap_or_default()
    }
}

/// The place of the country in the record of an address.
const COUNTRY: [PathElement<'static>; 2] =
    [PathElement::Key("country"), PathElement::Key("iso_code")];

fn read(path: &Path) -> Result<Database, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        let error = error.to_string();
        format!("{shown}: {}", error.split(" (os error").next().unwrap_or_default())
    };
    let data = path.metadata().map_err(failed)?;
    if !data.is_file() {
        return Err(format!("{shown} is not a file"));
    }
    if data.len() > MAX_SIZE {
        return Err(format!("{shown} is larger than 1 GiB"));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    let database = Reader::from_source(bytes).map_err(|error| broken(path, &error))?;
    Ok(database)
}

/// Checks that a file is a whole database of countries.
///
/// # Errors
/// A sentence: it cannot be read, is damaged, or has other records than countries.
pub fn check(path: &Path) -> Result<(), String> {
    let database = read(path)?;
    database.verify().map_err(|error| broken(path, &error))?;
    let kind = &database.metadata().database_type;
    let known = ["Country", "City", "Enterprise"];
    match known.iter().any(|known| kind.contains(known)) {
        true => Ok(()),
        false => Err(format!(
            "{} is a database of the type {kind:?}, whose records have no countries",
            path.display()
        )),
    }
}

fn broken(path: &Path, error: &maxminddb::MaxMindDbError) -> String {
    format!("{} is no database in MaxMind's format, or is damaged: {error}", path.display())
}
