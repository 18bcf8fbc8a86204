//! A machine with a few files, so that messages are the same everywhere.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sendoff_config::{Account, FileVersion, PhpApi, PhpBuild};
use sendoff_settings::{Chosen, FileKind, Machine};

/// The path of the configuration file.
pub(crate) const CONFIG: &str = "/etc/sendoff/sendoff.toml";

/// The configuration file, beside files that are always there.
pub(crate) struct Fake {
    /// The text of the file.
    pub(crate) config: String,
}

const FOLDERS: [&str; 8] = [
    "/",
    "/etc/sendoff",
    "/srv",
    "/srv/www",
    "/srv/blog",
    "/srv/www/uploads",
    "/usr/share/javascript",
    "/var/lib/files",
];

const FILES: [(&str, &str); 13] = [
    ("/etc/sendoff/fullchain.pem", ""),
    ("/etc/sendoff/privkey.pem", ""),
    ("/srv/www/index.php", ""),
    ("/srv/www/app.php", ""),
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"),
    (
        "/etc/sendoff/admins",
        "# comment\nada:$2y$05$zG6GKXi4lRaCysT0o/VgZOkfK.r.fpi96s..rGbo2uC.jAuaVdt3u\n\nbob:$apr1$D2..19Tx$kQZbO4N5dvk87kx2eAa2o/\ncy:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\ndee:$5$.XTWTkwyUtbR2bTk$GaquuSxQl7QEt1FlYUrReIiqah0DzC50QJNSQipemv9\n",
    ),
    ("/etc/sendoff/empty", "# nobody yet\n"),
    ("/etc/sendoff/plain", "ada:$1$x$y\nbob:secret\ncy:$1$z$z\nno colon\n"),
    ("/etc/sendoff/one.toml", "[[site]]\nroot = '/srv/blog'\nhosts = 'blog.test'\n"),
    ("/etc/sendoff/scalar.toml", "threads = 2\n"),
    ("/etc/sendoff/broken.toml", "[[site]]\nrot = '/srv/blog'\n"),
    ("/etc/sendoff/circle.toml", "include = 'circle.toml'\n"),
    ("/etc/sendoff/nobody.key", "\0"),
];

impl Machine for Fake {
    fn read(&self, path: &Path) -> io::Result<String> {
        if path == Path::new(CONFIG) {
            return Ok(self.config.clone());
        }
        let found = FILES.iter().find(|(name, _)| path == Path::new(name));
        match found {
            Some((name, _)) if name.ends_with(".key") => Err(io::Error::from_raw_os_error(13)),
            Some((_, text)) => Ok((*text).to_owned()),
            None => Err(io::Error::from_raw_os_error(2)),
        }
    }

    fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let pattern = pattern.to_str().ok_or("not UTF-8")?;
        if pattern.contains("***") {
            return Err("wildcards are either regular `*` or recursive `**`".to_owned());
        }
        let (start, end) = pattern.split_once('*').unwrap_or((pattern, ""));
        let matches = |name: &&str| match pattern.contains('*') {
            true => name.starts_with(start) && name.ends_with(end),
            false => *name == pattern,
        };
        Ok(FILES.iter().map(|(name, _)| *name).filter(matches).map(PathBuf::from).collect())
    }

    fn kind(&self, path: &Path) -> io::Result<FileKind> {
        if FOLDERS.iter().any(|name| path == Path::new(name)) {
            Ok(FileKind::Folder)
        } else if FILES.iter().any(|(name, _)| path == Path::new(name)) {
            Ok(FileKind::File)
        } else {
            Err(io::Error::from_raw_os_error(2))
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.kind(path).map(|_| path.to_owned())
    }

    fn account(&self, user: Option<&str>, _: &Path) -> Result<Chosen, String> {
        match user {
            None => Ok(Chosen { account: None, warning: None }),
            Some("www-data") => {
                let account = Some(Account { uid: 33, gid: 33 });
                Ok(Chosen { account, warning: None })
            }
            Some(name) => Err(format!("there is no user {name}")),
        }
    }

    fn user(&self, name: &str) -> Option<u32> {
        (name == "www-data").then_some(33)
    }

    fn group(&self, name: &str) -> Option<u32> {
        (name == "www-data").then_some(33)
    }

    fn may_append(&self, path: &Path) -> io::Result<()> {
        match path.parent().map(|folder| self.kind(folder)) {
            Some(Ok(FileKind::Folder)) if path.starts_with("/srv/blog") => {
                Err(io::Error::from_raw_os_error(13))
            }
            Some(Ok(FileKind::Folder)) => Ok(()),
            _ => Err(io::Error::other("the folder of the file does not exist")),
        }
    }

    fn may_run(&self, path: &Path) -> io::Result<()> {
        match path.to_str() {
            Some("/usr/bin/rackup" | "/srv/blog/bin/app" | "/usr/sbin/php-fpm8.2") => Ok(()),
            Some(path) if path.starts_with("/opt/") && path.ends_with("/bin/php") => Ok(()),
            Some("/srv/blog/app.py") => Err(io::Error::from_raw_os_error(13)),
            Some("/srv/blog") => Err(io::Error::from_raw_os_error(21)),
            _ => Err(io::Error::from_raw_os_error(2)),
        }
    }

    fn php_build(&self, path: &Path) -> io::Result<Option<PhpBuild>> {
        Ok(match path.to_str() {
            Some("/usr/sbin/php-fpm8.2") => PhpBuild::find(b"API20220829,NTS\0"),
            Some("/opt/zts/bin/php") => PhpBuild::find(b"API20220829,TS\0"),
            Some("/opt/debug/bin/php") => PhpBuild::find(b"API20220829,NTS,debug\0"),
            Some("/opt/old/bin/php") => PhpBuild::find(b"API20210902,NTS\0"),
            Some("/usr/bin/rackup") => None,
            _ => return Err(io::Error::from_raw_os_error(2)),
        })
    }

    fn file_version(&self, _: &Path) -> io::Result<FileVersion> {
        Ok(FileVersion::default())
    }

    fn country_database(&self, path: &Path) -> Result<(), String> {
        match path.to_str() {
            Some("/var/lib/GeoIP/GeoLite2-Country.mmdb") => Ok(()),
            Some(path) if path.ends_with(".mmdb") => {
                Err(format!("{path}: No such file or directory"))
            }
            _ => Err(format!("{} is not a database in MaxMind's format", path.display())),
        }
    }

    fn has_php_module(&self, _: PhpApi) -> bool {
        false
    }

    fn has_own_php(&self) -> bool {
        true
    }

    fn worker_group(&self, name: &str) -> Result<u32, String> {
        if name == "www-data" { Ok(33) } else { Err(format!("there is no group {name}")) }
    }

    fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        match host {
            "two.test" => Ok(vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]),
            _ => Err(io::Error::other("the name is not known")),
        }
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
