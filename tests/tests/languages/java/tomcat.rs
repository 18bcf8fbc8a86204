//! Debian's Tomcat 10 with our connector beside its own HTTP connector, on one web application.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, LIMIT, Request, Response, Site, processes, static_library, tomcat, wait,
};

/// The interfaces of servlets.
const SERVLETS: &str = "/usr/share/java/tomcat10-servlet-api.jar";

/// A running Tomcat.
pub struct Tomcat {
    child: Child,
    folder: Site,
    log: Arc<Mutex<String>>,
    http: SocketAddr,
    /// The socket that it was started with, and its folder.
    inherited: Option<(Site, PathBuf)>,
}

/// Runs a build step.
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{errors}");
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../languages/java").join(path)
}

/// A folder with the connector's jar and library, and the classes of the tests.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java");
        run(Command::new(source("build")).arg(static_library()).arg(&folder));
        let jars = folder.join("sendoff-tomcat.jar");
        let jars = format!("{SERVLETS}:{}", jars.display());
        run(Command::new("javac")
            .args(["--release", "17", "-cp", &jars, "-d"])
            .arg(folder.join("classes"))
            .args(
                ["Conformance", "FragmentPages"]
                    .map(|class| source(&format!("src/test/java/sendoff/tomcat/{class}.java"))),
            ));
        folder
    })
}

/// Adds Spring, its caches and a servlet that uses them to an application.
pub fn add_spring(application: &Path) {
    let (inside, libraries) = (application.join("WEB-INF"), application.join("WEB-INF/lib"));
    fs::create_dir_all(&libraries).unwrap();
    let connector = built().join("sendoff-tomcat.jar");
    run(Command::new(source("build-spring")).args([&connector, &libraries]));
    let mut jars = connector.display().to_string();
    for entry in fs::read_dir("/usr/share/java").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if ["spring", "commons-logging"].iter().any(|start| name.starts_with(start)) {
            jars += &format!(":{}", path.display());
            fs::copy(&path, libraries.join(name)).unwrap();
        }
    }
    jars += &format!(":{}", libraries.join("sendoff-spring.jar").display());
    run(Command::new("javac")
        .args(["--release", "17", "-cp", &format!("{jars}:{SERVLETS}"), "-d"])
        .arg(inside.join("classes"))
        .arg(source("spring/src/test/java/sendoff/spring/SpringPages.java")));
    let web = fs::read_to_string(inside.join("web.xml")).unwrap();
    let servlet = "<servlet><servlet-name>spring</servlet-name>
        <servlet-class>sendoff.spring.SpringPages</servlet-class></servlet>
        <servlet-mapping><servlet-name>spring</servlet-name>
        <url-pattern>/spring</url-pattern></servlet-mapping></web-app>";
    fs::write(inside.join("web.xml"), web.replace("</web-app>", servlet)).unwrap();
}

pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A command that starts Tomcat in a folder, with our connector in it and the servlets of the tests
/// in its application.
pub fn command(base: &Path, connectors: &str, options: &[&str]) -> Command {
    let command = tomcat(base, connectors, options);
    for name in ["sendoff-tomcat.jar", "libsendoff_tomcat.so"] {
        fs::copy(built().join(name), base.join("lib").join(name)).unwrap();
    }
    let application = base.join("webapps/ROOT");
    copy_tree(&built().join("classes"), &application.join("WEB-INF/classes"));
    fs::write(application.join("WEB-INF/web.xml"), include_str!("web.xml")).unwrap();
    command
}

impl Tomcat {
    /// Starts Tomcat on `fill`'s web application, with attributes of our connector and options of
    /// the virtual machine.
    pub fn start(attributes: &str, options: &[&str], fill: impl FnOnce(&Path)) -> Self {
        Self::start_with(Stdio::null(), attributes, options, fill)
    }

    /// The same with the listening socket as standard input.
    pub fn start_on(attributes: &str, fill: impl FnOnce(&Path)) -> Self {
        let folder = Site::new();
        let path = folder.root().join("inherited.sock");
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let stdin = Stdio::from(OwnedFd::from(listener));
        let mut tomcat = Self::start_with(stdin, &format!("path=\"fd:0\" {attributes}"), &[], fill);
        tomcat.inherited = Some((folder, path));
        tomcat
    }

    fn start_with(
        stdin: Stdio,
        attributes: &str,
        options: &[&str],
        fill: impl FnOnce(&Path),
    ) -> Self {
        let folder = Site::new();
        let base = folder.root();
        let socket = base.join("tomcat.sock");
        let path = if attributes.contains("path=") {
            String::new()
        } else {
            format!("path=\"{}\" pathPermissions=\"rw-rw-rw-\"", socket.display())
        };
        let connectors = format!(
            r#"<Connector protocol="HTTP/1.1" address="127.0.0.1" port="0"/>
            <Connector protocol="sendoff.tomcat.SendoffProtocol" {path} {attributes}/>"#
        );
        let mut command = command(base, &connectors, options);
        fill(&base.join("webapps/ROOT"));
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("java");
        let log = Arc::new(Mutex::new(String::new()));
        collect(&log, child.stdout.take().unwrap());
        collect(&log, child.stderr.take().unwrap());
        wait::until(4 * LIMIT, || {
            child.try_wait().unwrap().is_some() || log.lock().unwrap().contains("Server startup in")
        });
        let said = log.lock().unwrap().clone();
        let port = said.split("http-nio-127.0.0.1-auto-1-").nth(1);
        let port = port.and_then(|rest| rest.split('"').next()?.parse().ok());
        let http = SocketAddr::from(([127, 0, 0, 1], port.expect(&said)));
        Self { child, folder, log, http, inherited: None }
    }

    /// As `--fastcgi` wants it.
    pub fn attached(&self) -> String {
        let own = self.socket();
        let path = self.inherited.as_ref().map_or(&own, |(_, path)| path);
        format!("/=unix:{}", path.display())
    }

    /// The socket that it has made.
    pub fn socket(&self) -> PathBuf {
        self.folder.root().join("tomcat.sock")
    }

    /// A path in the folder of the web application.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.root().join("webapps/ROOT").join(name)
    }

    /// Ends it without notice.
    pub fn kill(&self) {
        processes::signal(self.child.id(), Signal::KILL);
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The response of Tomcat's own HTTP connector.
    pub fn ask(&self, request: &Request) -> Response {
        Client::connect(self.http).ask(request)
    }

    /// The same if the connection may break.
    pub fn try_ask(&self, request: &Request) -> Result<Response, Broken> {
        Client::connect(self.http).try_ask(request)
    }

    /// Ends it as an operator does, and returns whether it has ended by itself.
    pub fn stop(mut self) -> bool {
        processes::signal(self.child.id(), Signal::TERM);
        let mut ended = false;
        wait::until(LIMIT, || {
            ended = self.child.try_wait().unwrap().is_some();
            ended
        });
        ended
    }
}

impl Drop for Tomcat {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn collect(log: &Arc<Mutex<String>>, from: impl std::io::Read + Send + 'static) {
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    });
}
