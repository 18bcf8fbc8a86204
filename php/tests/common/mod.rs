//! A scripted front, and php-fpm to compare with.
#![allow(clippy::unwrap_used, reason = "a panic is a test's report")]
#![allow(dead_code, unreachable_pub, reason = "each test program is a crate and uses its part")]

pub mod cases;
pub mod fpm;
pub mod front;
pub mod link;
pub mod master;
pub mod site;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A script of the test suite.
pub fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(name).display().to_string()
}

/// A folder that is removed at the end of the test.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // Workers of other users read it, even if the umask of the tests' user is strict.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let path = std::env::temp_dir().join(format!("sendoff-php-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
