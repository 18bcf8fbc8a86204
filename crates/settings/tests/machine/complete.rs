//! A machine on which every file and folder exists.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sendoff_config::{Account, FileVersion, PhpApi, PhpBuild};
use sendoff_settings::{Chosen, FileKind, Machine};

/// Most components of a path that matches a pattern. A file can include itself under other names.
const DEPTH: usize = 6;

/// The machine, with the contents of its files.
pub(crate) struct Complete<R>(pub(crate) R);

impl<R: Fn(&Path) -> String> Machine for Complete<R> {
    fn read(&self, path: &Path) -> io::Result<String> {
        Ok(self.0(path))
    }

    fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let is_deep = pattern.components().count() > DEPTH;
        let name = pattern.to_string_lossy().replace('*', "a");
        Ok(if is_deep { Vec::new() } else { vec![name.into()] })
    }

    fn kind(&self, path: &Path) -> io::Result<FileKind> {
        match path.extension() {
            Some(ending) if ["php", "pem", "sh"].iter().any(|file| ending == *file) => {
                Ok(FileKind::File)
            }
            _ => Ok(FileKind::Folder),
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn account(&self, _: Option<&str>, _: &Path) -> Result<Chosen, String> {
        Ok(Chosen { account: Some(Account { uid: 33, gid: 33 }), warning: None })
    }

    fn user(&self, _: &str) -> Option<u32> {
        Some(33)
    }

    fn group(&self, _: &str) -> Option<u32> {
        Some(33)
    }

    fn may_run(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn php_build(&self, _: &Path) -> io::Result<Option<PhpBuild>> {
        Ok(PhpBuild::find(b"API20220829,NTS\0"))
    }

    fn file_version(&self, _: &Path) -> io::Result<FileVersion> {
        Ok(FileVersion::default())
    }

    fn country_database(&self, _: &Path) -> Result<(), String> {
        Ok(())
    }

    fn has_php_module(&self, _: PhpApi) -> bool {
        false
    }

    fn has_own_php(&self) -> bool {
        true
    }

    fn worker_group(&self, _: &str) -> Result<u32, String> {
        Ok(33)
    }

    fn may_append(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![[192, 0, 2, 1].into()])
    }

    fn has_ipv6(&self) -> bool {
        true
    }

    fn state_folder(&self) -> PathBuf {
        "/var/lib/sendoff".into()
    }

    fn cache_folder(&self) -> PathBuf {
        "/var/cache/sendoff".into()
    }

    fn cores(&self) -> usize {
        2
    }

    fn memory(&self) -> u64 {
        8 << 30
    }
}
