//! A Dovecot for the test, in a temporary folder: a mailbox for each name, all with the password
//! `secret`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use sendoff_tests::{Site, dies_with_us, wait};

const SERVER: &str = "/usr/sbin/dovecot";

/// A running IMAP server.
pub(crate) struct Mail {
    folder: PathBuf,
    addr: SocketAddr,
    server: Option<Child>,
}

impl Mail {
    /// Starts a server.
    pub(crate) fn start(site: &Site) -> Self {
        assert!(Path::new(SERVER).exists(), "no {SERVER}; run: apt-get install dovecot-imapd");
        let folder = site.outside("dovecot");
        fs::create_dir_all(&folder).unwrap();
        let mut mail = Self { folder, addr: ([127, 0, 0, 1], 0).into(), server: None };
        let started = (0..5).any(|_| mail.try_start());
        assert!(started, "Dovecot does not start:\n{}", mail.log());
        mail
    }

    fn try_start(&mut self) -> bool {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folder = self.folder.display();
        let file = self.folder.join("dovecot.conf");
        let text = format!(
            "base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = {host}
ssl = no
disable_plaintext_auth = no
login_greeting = {folder}
mail_location = maildir:{folder}/mail/%u
first_valid_uid = 1
auth_failure_delay = 0
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid=www-data gid=www-data home={folder}/mail/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
# No pauses after a wrong password.
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
",
            host = addr.ip(),
            port = addr.port()
        );
        fs::write(&file, text).unwrap();
        let log = fs::File::create(self.folder.join("stderr")).unwrap();
        let mut server = dies_with_us(Path::new(SERVER), "TERM")
            .args(["-F", "-c"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        // Another process may have taken the port before Dovecot bound it.
        let mut up = false;
        wait::until(sendoff_tests::LIMIT, || {
            up = TcpStream::connect(addr).is_ok_and(|stream| {
                let mut greeting = String::new();
                stream.set_read_timeout(Some(sendoff_tests::LIMIT)).unwrap();
                BufReader::new(stream).read_line(&mut greeting).is_ok()
                    && greeting.contains(&folder.to_string())
            });
            up || server.try_wait().unwrap().is_some()
        });
        if !up {
            let _ = server.kill();
            let _ = server.wait();
            return false;
        }
        (self.addr, self.server) = (addr, Some(server));
        true
    }

    /// The address on which it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Puts a message into a mailbox.
    pub(crate) fn deliver(&self, site: &Site, user: &str, name: &str, message: &str) {
        let mailbox = self.folder.join("mail").join(user);
        for folder in ["cur", "new", "tmp"] {
            fs::create_dir_all(mailbox.join(folder)).unwrap();
        }
        fs::write(mailbox.join("cur").join(format!("{name}:2,S")), message).unwrap();
        site.adopt_all(&self.folder.join("mail"));
    }

    /// Its log up to now.
    pub(crate) fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("stderr") + &read("log")
    }
}

impl Drop for Mail {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            sendoff_tests::processes::signal(server.id(), rustix::process::Signal::TERM);
            let _ = server.wait();
        }
        if std::thread::panicking() {
            println!("--- Dovecot\n{}", self.log());
        }
    }
}
