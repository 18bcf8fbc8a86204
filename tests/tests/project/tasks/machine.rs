//! A machine for one task: its folders lie in a temporary one, its ports are free ones, and the
//! office has the address 127.0.0.2.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sendoff_tests::{Authority, Client, Request, Response, Server, Site, mmdb};

use super::page::{self, Task};

/// Folders of the page; the temporary machine has them beneath `machine`.
const FOLDERS: [&str; 5] = ["/var/", "/srv/", "/etc/", "/run/", "/usr/share/"];

/// Values of the page, and those that work on the machine of the tests.
const VALUES: [(&str, &str); 8] = [
    ("\"80\"", "\"127.0.0.1:0\""),
    ("\"80 ", "\"127.0.0.1:0 "),
    ("\"443 ", "\"127.0.0.1:0 "),
    ("\"8080\"", "\"127.0.0.2:0\""),
    ("10.0.0.0/8", "127.0.0.0/8"),
    ("173.245.48.0/20", "127.0.0.0/8"),
    ("192.0.2.0/24", "127.0.0.2/32"),
    ("group=www-data", "group=root"),
];

/// Programs that blocks name.
const PROGRAMS: [&str; 2] = ["/srv/shop/venv/bin/sendoff-python", "/srv/tracker/bin/rackup"];

/// `ada` with the password `secret`.
const USERS: &str = "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

/// The folder of most sites, and of routes that stand alone.
const EXAMPLE: &str = "/var/www/example";

pub(super) struct Machine {
    site: Site,
    task: Task,
    workers: usize,
    values: Vec<(String, String)>,
    authority: Authority,
}

impl Machine {
    /// With the files that the block of the task needs.
    ///
    /// # Panics
    /// If the page has no such heading.
    pub(super) fn of(heading: &str) -> Self {
        let task = page::tasks().into_iter().find(|task| task.heading == heading);
        let task = task.unwrap_or_else(|| panic!("docs/tasks.md has no task {heading:?}"));
        let values = VALUES.map(|(from, to)| (from.to_owned(), to.to_owned())).into();
        let machine =
            Self { site: Site::new(), task, workers: 1, values, authority: Authority::new() };
        machine.furnish();
        machine
    }

    fn furnish(&self) {
        for folder in
            self.task.toml.split('"').filter(|text| FOLDERS.iter().any(|f| text.starts_with(f)))
        {
            let is_file =
                folder.rsplit('/').next().unwrap().contains('.') || folder.ends_with("/admins");
            if !is_file && !PROGRAMS.contains(&folder) {
                self.write(&format!("{folder}/placeholder"), "");
            }
        }
        for folder in [EXAMPLE, "/var/log/sendoff", "/run/sendoff", "/srv/shop", "/srv/tracker"] {
            self.write(&format!("{folder}/placeholder"), "");
        }
        self.write("/etc/sendoff/admins", USERS);
        for program in PROGRAMS.iter().filter(|program| self.task.toml.contains(*program)) {
            let path = self.write(program, "#!/bin/sh\n");
            fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        if self.task.toml.contains("/etc/ssl/") {
            self.write("/etc/ssl/example/staff.pem", self.authority.pem());
            let made =
                self.authority.issue(&["example.org"], &self.path("/etc/ssl/example"), "made");
            fs::rename(made.chain, self.path("/etc/ssl/example/fullchain.pem")).unwrap();
            fs::rename(made.key, self.path("/etc/ssl/example/privkey.pem")).unwrap();
        }
        if let Some(database) = self.task.toml.split('"').find(|text| text.ends_with(".mmdb")) {
            let countries = [("127.0.0.2/32", "DE"), ("127.0.0.1/32", "US")];
            self.write(database, mmdb::countries("GeoLite2-Country", &countries));
        }
    }

    /// The folder beside which servers have their sockets.
    pub(super) fn root(&self) -> &Path {
        self.site.root()
    }

    /// The place of a path of the page.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.site.outside(&format!("machine{path}"))
    }

    pub(super) fn write(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        self.site.write_at(self.path(path), text)
    }

    /// With a file of the site in [`EXAMPLE`].
    pub(super) fn with(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        self.write(&format!("{EXAMPLE}/{name}"), text);
        self
    }

    /// With another value in the block.
    pub(super) fn with_value(mut self, from: &str, to: &str) -> Self {
        self.values.push((from.to_owned(), to.to_owned()));
        self
    }

    /// With this number of workers in all pools of the block.
    pub(super) fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The block in a whole configuration.
    pub(super) fn write_config(&self) -> PathBuf {
        let block = &self.task.toml;
        let begins = if block.starts_with('[') { Some(0) } else { block.find("\n[") };
        let (top, sections) = block.split_at(begins.unwrap_or(block.len()));
        let mut text = String::from(
            "threads = 1\nstate = \"/var/state\"\npage_cache_folder = \"/var/pages\"\n",
        );
        if !top.contains("listen =") {
            text += "listen = \"80\"\n";
        }
        text += top;
        if !sections.contains("[[pool]]") {
            text += "[[pool]]\nworkers = 1\n";
        }
        if !sections.contains("[[site]]\n") {
            text += &format!("[[site]]\nroot = \"{EXAMPLE}\"\n");
        }
        text += sections;
        let text = self.translated(&text);
        self.site.write_at(self.site.outside("sendoff.toml"), text)
    }

    fn translated(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.values {
            text = text.replace(from.as_str(), to);
        }
        let machine = self.site.outside("machine");
        for folder in FOLDERS {
            for before in ["\"", "unix:", " "] {
                let place = format!("{before}{}{folder}", machine.display());
                text = text.replace(&format!("{before}{folder}"), &place);
            }
        }
        text
    }

    pub(super) fn start(self) -> Running {
        let machine = self.with_value("tls = \"auto\"", "tls = \"self-signed\"");
        let config = machine.write_config();
        let server = Server::try_run(&config, machine.root(), machine.workers);
        let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
        Running { server, machine }
    }
}

/// A machine whose server runs.
pub(super) struct Running {
    pub(super) server: Server,
    pub(super) machine: Machine,
}

impl Running {
    /// The response to a request for a URL.
    pub(super) fn get(&self, url: &str) -> Response {
        self.ask(url, |request| request)
    }

    /// The same for a request that is made from `GET`.
    pub(super) fn ask(&self, url: &str, make: impl Fn(Request) -> Request) -> Response {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (host, path) = rest.split_at(rest.find('/').unwrap());
        let request = make(Request::get(path)).header("Host", host);
        let mut client = match scheme {
            "https" => Client::connect_tls(self.server.tls_addr().unwrap()),
            _ => Client::connect(self.server.clear_addr()),
        };
        client.ask(&request)
    }

    /// The response to a request from the office.
    pub(super) fn get_from_the_office(&self, path: &str) -> Response {
        let office = [127, 0, 0, 2].into();
        Client::connect_from(self.server.clear_addr(), office).ask(&Request::get(path))
    }

    /// Status and `Location`.
    pub(super) fn redirect(&self, url: &str) -> (u16, String) {
        let response = self.get(url);
        (response.status(), response.header("Location").unwrap_or_default().to_owned())
    }

    pub(super) fn status(&self, url: &str) -> u16 {
        self.get(url).status()
    }

    pub(super) fn text(&self, url: &str) -> String {
        self.get(url).text()
    }

    /// The output of the command on the page.
    pub(super) fn command(&self) -> String {
        self.curl(self.machine.task.shell.as_ref().expect("a command on the page"))
    }

    /// The output of commands; `curl` reaches the server by each host.
    pub(super) fn curl(&self, commands: &str) -> String {
        let clear = self.server.clear_addr();
        let tls = self.server.tls_addr().unwrap_or(clear);
        let script = format!(
            "curl() {{ command curl -q --noproxy '*' --max-time 30 --connect-to :80:{clear} --connect-to :443:{tls} \"$@\"; }}\n{}",
            self.machine.translated(commands)
        );
        let done = Command::new("sh").args(["-ec", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{script}\n{}\n{said}", done.status);
        String::from_utf8(done.stdout).unwrap().replace('\r', "")
    }
}
