//! A MariaDB of the test's own, in a temporary folder, that listens on a UNIX socket only.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sendoff_tests::{Site, dies_with_us, wait};

const SERVER: &str = "/usr/sbin/mariadbd";

/// A running database server. Its folder is beside the root of the site.
pub(crate) struct Database {
    folder: PathBuf,
    server: Child,
}

impl Database {
    /// Starts a server with an empty database and a user `app` with the password `secret` and all
    /// privileges.
    pub(crate) fn start(site: &Site) -> Self {
        assert!(
            Path::new(SERVER).exists(),
            "no {SERVER}; run: apt-get install mariadb-server-core mariadb-client-core"
        );
        let folder = site.outside("mariadb");
        fs::create_dir_all(&folder).unwrap();
        let data = format!("--datadir={}", folder.join("data").display());
        let log = || fs::File::create(folder.join("log")).unwrap();
        let installed = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=socket"])
            .args([
                "--user=root",
                "--innodb-log-file-size=4M",
                "--innodb-flush-log-at-trx-commit=0",
            ])
            .arg(&data)
            .stdout(log())
            .stderr(log())
            .status()
            .unwrap();
        assert!(installed.success(), "{}", fs::read_to_string(folder.join("log")).unwrap());
        let server = dies_with_us(Path::new(SERVER), "KILL")
            .args(["--no-defaults", "--user=root", "--skip-networking", "--skip-log-bin"])
            .args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M"])
            .arg("--innodb-flush-log-at-trx-commit=0")
            .arg(data)
            .arg(format!("--socket={}", folder.join("socket").display()))
            .arg(format!("--pid-file={}", folder.join("pid").display()))
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn()
            .unwrap();
        let database = Self { folder, server };
        wait::for_some("MariaDB", || UnixStream::connect(database.socket()).ok());
        database.run(
            "CREATE DATABASE app CHARACTER SET utf8mb4; \
             GRANT ALL ON *.* TO 'app'@'localhost' IDENTIFIED BY 'secret' WITH GRANT OPTION;",
        );
        database
    }

    /// The path of its UNIX socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Runs SQL statements.
    pub(crate) fn run(&self, statements: &str) {
        let mut client = Command::new("mariadb")
            .args(["--no-defaults", "--user=root"])
            .arg(format!("--socket={}", self.socket().display()))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        client.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
        assert!(client.wait().unwrap().success(), "{statements}");
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
