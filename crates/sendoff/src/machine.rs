//! The requirements of a configuration on this machine.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use sendoff_config::{FileVersion, MAX_THREADS, PhpApi, PhpBuild};
use sendoff_settings::{Chosen, FileKind, Machine};
use sendoff_sys::process::{find_account, find_group};

use crate::account;
use crate::children::own_php_program;
use crate::{php_build, php_host};

/// The machine on which the program runs.
#[derive(Debug)]
pub(crate) struct ThisMachine;

/// The device and the number of a file or folder.
pub(crate) type Inode = (u64, u64);

/// The file or folder that is at a path now.
pub(crate) fn inode(path: &Path) -> Option<Inode> {
    fs::metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

/// Maximum size of a file in bytes: a configuration of thousands of sites has one or two million.
const LONGEST_FILE: u64 = 64 << 20;

impl Machine for ThisMachine {
    fn read(&self, path: &Path) -> io::Result<String> {
        // Opening a pipe would block until there is a writer.
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut text = String::new();
        let read = File::open(path)?.take(LONGEST_FILE + 1).read_to_string(&mut text)?;
        if read as u64 > LONGEST_FILE {
            return Err(io::Error::other("the file is too large"));
        }
        Ok(text)
    }

    fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let pattern = pattern.to_str().ok_or("not UTF-8")?;
        let paths = glob::glob(pattern).map_err(|error| error.msg.to_owned())?;
        paths.collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    fn kind(&self, path: &Path) -> io::Result<FileKind> {
        let data = path.metadata()?;
        Ok(if data.is_dir() {
            FileKind::Folder
        } else if data.is_file() {
            FileKind::File
        } else {
            FileKind::Other
        })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn account(&self, user: Option<&str>, root: &Path) -> Result<Chosen, String> {
        account::choose(user, root)
    }

    fn user(&self, name: &str) -> Option<u32> {
        find_account(name).map(|account| account.uid)
    }

    fn group(&self, name: &str) -> Option<u32> {
        find_group(name)
    }

    fn may_append(&self, path: &Path) -> io::Result<()> {
        match path.metadata() {
            Ok(data) if data.is_dir() => Err(io::Error::other("this is a folder")),
            Ok(_) => Ok(rustix::fs::access(path, Access::WRITE_OK)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                let missing = |_| io::Error::other("the folder of the file does not exist");
                folder.metadata().map_err(missing)?;
                Ok(rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
            }
            Err(error) => Err(error),
        }
    }

    fn may_run(&self, path: &Path) -> io::Result<()> {
        let data = path.metadata()?;
        if data.is_dir() {
            Err(io::ErrorKind::IsADirectory.into())
        } else if !data.is_file() {
            Err(io::Error::other("this is no file"))
        } else if data.mode() & 0o111 == 0 {
            Err(io::ErrorKind::PermissionDenied.into())
        } else {
            Ok(())
        }
    }

    fn php_build(&self, path: &Path) -> io::Result<Option<PhpBuild>> {
        php_build::of(path, self.file_version(path)?)
    }

    fn file_version(&self, path: &Path) -> io::Result<FileVersion> {
        let data = path.metadata()?;
        let seconds = data.mtime().saturating_mul(1_000_000_000);
        let changed = seconds.saturating_add(data.mtime_nsec());
        Ok(FileVersion { inode: data.ino(), size: data.size(), changed })
    }

    fn country_database(&self, path: &Path) -> Result<(), String> {
        sendoff_site::check_countries(path)
    }

    fn has_php_module(&self, api: PhpApi) -> bool {
        php_host::module(api).is_ok()
    }

    fn has_own_php(&self) -> bool {
        own_php_program().is_ok()
    }

    fn worker_group(&self, name: &str) -> Result<u32, String> {
        account::group(name)
    }

    fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let mut addresses: Vec<_> =
            (host, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
        addresses.dedup();
        Ok(addresses)
    }

    fn has_ipv6(&self) -> bool {
        fs::read("/proc/net/if_inet6").is_ok_and(|list| !list.is_empty())
    }

    fn state_folder(&self) -> PathBuf {
        own_folder("/var/lib", "XDG_STATE_HOME", ".local/state")
    }

    fn cache_folder(&self) -> PathBuf {
        own_folder("/var/cache", "XDG_CACHE_HOME", ".cache")
    }

    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS.into()))
    }

    fn memory(&self) -> u64 {
        let memory = rustix::system::sysinfo();
        memory.totalram.saturating_mul(memory.mem_unit.max(1).into())
    }
}

/// The server's folder: below `of_root` for root; for others, in the folder that the variable
/// `name` contains, or below the user's home.
fn own_folder(of_root: &str, name: &str, in_home: &str) -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return Path::new(of_root).join("sendoff");
    }
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = absolute(name).or_else(|| Some(absolute("HOME")?.join(in_home)));
    of_user.unwrap_or_else(std::env::temp_dir).join("sendoff")
}
