//! The static library for the C programs of these tests.

use std::path::PathBuf;

/// Cargo puts it next to the test programs, under a generated name; older builds may be there, too.
pub(crate) fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let entries = std::fs::read_dir(here.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let ours = entries.filter(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.starts_with("libsendoff_capi") && name.ends_with(".a")
    });
    ours.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap()).unwrap().path()
}
