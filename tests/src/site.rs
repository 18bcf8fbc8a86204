//! A site in a temporary folder, owned by the workers' user.

use crate::wait;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A site's folder, which is removed when the value is dropped.
pub struct Site {
    folder: PathBuf,
    root: PathBuf,
    owner: Option<(u32, u32)>,
}

impl Site {
    /// An empty site. Started by root, it belongs to `www-data`, as on any Debian web server.
    ///
    /// # Panics
    /// If the folder cannot be made.
    #[allow(clippy::new_without_default, reason = "it makes a folder: nothing to do silently")]
    pub fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        // Servers run as other users and must read the site, whatever the umask of the tests is.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let name = format!(
            "sendoff-test-{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        let folder = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        // The root is a subfolder, so that scenarios can put files outside of it.
        let root = folder.join("root");
        fs::create_dir_all(&root).unwrap();
        let owner = if rustix::process::getuid().is_root() { www_data() } else { None };
        let site = Self { folder, root, owner };
        site.adopt(&site.folder);
        site.adopt(&site.root);
        site
    }

    /// A site with one script.
    pub fn with(name: &str, contents: &str) -> Self {
        let site = Self::new();
        site.write(name, contents);
        site
    }

    /// A site with a script that waits in the middle of its response until the named pipe `pipe` is
    /// released, a script that answers at once, and a file.
    pub fn waiting() -> Self {
        let site = Self::with(
            "wait.php",
            "<?php echo 'first '; ob_flush(); flush(); file_get_contents('pipe'); echo 'last';",
        );
        site.write("ok.php", "<?php echo 'ok';");
        site.write("a.txt", "static");
        site
    }

    /// The root of the site.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path inside the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A path outside the root, from where nothing may be served.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file in the root, with the folders it needs.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        self.write_at(self.path(name), contents)
    }

    /// Writes a file anywhere, with the folders it needs. The workers' user owns it.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_at(&self, path: PathBuf, contents: impl AsRef<[u8]>) -> PathBuf {
        self.folders(path.parent().unwrap());
        fs::write(&path, contents).unwrap();
        self.adopt(&path);
        path
    }

    /// Makes a folder in the root.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        self.folders(&path);
        path
    }

    fn folders(&self, path: &Path) {
        if !path.exists() {
            self.folders(path.parent().unwrap());
            fs::create_dir(path).unwrap();
            self.adopt(path);
        }
    }

    fn adopt(&self, path: &Path) {
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group)).unwrap();
        }
    }

    /// Gives a whole tree to the workers' user.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn adopt_all(&self, path: &Path) {
        self.adopt(path);
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap().path();
                if !entry.is_symlink() {
                    self.adopt_all(&entry);
                }
            }
        }
    }

    /// Makes a named pipe in the root.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn fifo(&self, name: &str) -> Fifo {
        let path = self.path(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        self.adopt(&path);
        Fifo(path)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::env::var_os("SENDOFF_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// A named pipe as a barrier between a script and its scenario: each end waits until the other
/// opens the pipe. It may be used again when the script is known to have passed the barrier.
pub struct Fifo(PathBuf);

impl Fifo {
    /// Waits until a script reads from the pipe (`file_get_contents`), and lets it go on.
    ///
    /// # Panics
    /// If none does within [`crate::LIMIT`].
    pub fn release(&self) {
        // Does not block, so that a script that has died fails the scenario instead of stopping it.
        let open = || self.open(OpenOptions::new().write(true)).ok();
        let mut pipe = wait::for_some("a script to read from a pipe", open);
        pipe.write_all(b"go").unwrap();
    }

    /// Waits until a script reads from the pipe. The script waits on until the file is closed.
    ///
    /// # Panics
    /// If none does within [`crate::LIMIT`].
    pub fn hold(&self) -> fs::File {
        wait::for_some("a script to read from a pipe", || {
            self.open(OpenOptions::new().write(true)).ok()
        })
    }

    /// True if a script reads from the pipe.
    pub fn has_reader(&self) -> bool {
        self.open(OpenOptions::new().write(true)).is_ok()
    }

    /// Waits until a script has written to the pipe (`file_put_contents`).
    ///
    /// # Panics
    /// If none does within [`crate::LIMIT`].
    pub fn await_script(&self) -> String {
        let mut pipe = self.open(OpenOptions::new().read(true)).unwrap();
        let mut text = String::new();
        wait::for_some("a script to write to a pipe", || {
            // The end of the file after some text means that the writer has closed the pipe.
            let ended = pipe.read_to_string(&mut text).is_ok();
            (ended && !text.is_empty()).then_some(())
        });
        text
    }

    fn open(&self, options: &mut OpenOptions) -> std::io::Result<fs::File> {
        let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        options.custom_flags(nonblock).open(&self.0)
    }
}

fn www_data() -> Option<(u32, u32)> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.starts_with("www-data:"))?;
    let mut fields = line.split(':').skip(2).map(|id| id.parse().ok());
    Some((fields.next()??, fields.next()??))
}

/// The owner's name, for configurations that need it: only if the tests run as root.
pub(crate) fn owner_name(root: &Path) -> Option<&'static str> {
    let owner = fs::metadata(root).ok()?.uid();
    (rustix::process::getuid().is_root() && www_data()?.0 == owner).then_some("www-data")
}

/// Writes `new` over the beginning of a file, without making it shorter.
pub fn overwrite(path: &Path, new: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(new, 0).unwrap();
}

/// The period of [`pattern`]: a prime, so no multiple of it below 256 MB is one of a page as well.
const PERIOD: usize = 65_521;

/// `length` bytes that depend on position and seed, so that a misplaced byte is noticed.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let once = length.min(PERIOD);
    let mut bytes = Vec::with_capacity(length.max(once + 8));
    while bytes.len() < once {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(once);
    // Copied, because this code is not optimized: a loop over megabytes was a fifth of some tests.
    while bytes.len() < length {
        bytes.extend_from_within(..bytes.len().min(length - bytes.len()));
    }
    bytes
}
