//! A program on Go's `net/http/fcgi`, and a server that it is attached to.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use sendoff_tests::{LIMIT, Request, Server, Site, dies_with_us, wait};

/// The kind of socket on which the program listens.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    Unix,
    Tcp,
}

/// The program, built once for each run.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("helpers/multiplexing.go");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let new = folder.join(format!("multiplexing-{}", std::process::id()));
        // Debian's Go brings its libraries compiled; newer ones take a minute for them.
        let mut build = Command::new("/usr/bin/go");
        build.args(["build", "-o"]).args([&new, &source]).env("GO111MODULE", "off");
        assert!(build.status().unwrap().success(), "golang-go is installed");
        // A program that is being executed must not be overwritten.
        let program = folder.join("multiplexing");
        std::fs::rename(new, &program).unwrap();
        program
    })
}

/// A program that runs, and a server in front.
pub struct Attached {
    pub server: Server,
    pub site: Site,
    child: Child,
    names: AtomicU32,
}

impl Attached {
    /// With event loops of this number.
    pub fn start(way: Way, threads: &str) -> Self {
        Self::start_with(way, &["--threads", threads])
    }

    pub fn start_with(way: Way, options: &[&str]) -> Self {
        Self::start_by(way, |site, address| {
            let attached = format!("/app={address}");
            Server::start(site.root(), &[&["--fastcgi", &attached], options].concat())
        })
    }

    /// With bodies that are passed on while they arrive.
    pub fn start_streaming(way: Way) -> Self {
        Self::start_by(way, |site, address| {
            let config = format!(
                "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = 'root'\n\
                 fastcgi = {{ '/app' = '{address}' }}\n[[site.route]]\nstream_body = true\n"
            );
            let config = site.write_at(site.outside("sendoff.toml"), config);
            Server::try_run(&config, site.root(), 0).unwrap()
        })
    }

    fn start_by(way: Way, serve: impl FnOnce(&Site, &str) -> Server) -> Self {
        let site = Site::with("file.txt", "the file");
        let (listener, address): (OwnedFd, _) = match way {
            Way::Unix => {
                let path = site.outside("app.sock");
                let listener = UnixListener::bind(&path).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
                (listener.into(), format!("unix:{}", path.display()))
            }
            Way::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = format!("tcp:{}", listener.local_addr().unwrap());
                (listener.into(), address)
            }
        };
        let mut command = dies_with_us(program(), "KILL");
        let child = command.stdin(listener).stdout(Stdio::null()).spawn().unwrap();
        let server = serve(&site, &address);
        let attached = Self { server, site, child, names: AtomicU32::new(0) };
        attached.await_sharing();
        attached
    }

    /// A name that no other request has.
    pub fn name(&self) -> String {
        format!("n{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends `count` requests and returns the bodies, and the number of connections used. The
    /// program has all requests before it answers one.
    pub fn gather(&self, count: usize) -> (Vec<String>, usize) {
        let name = self.name();
        assert_eq!(self.server.page("/app/round"), "round");
        let mut clients: Vec<_> = (0..count).map(|_| self.server.connect()).collect();
        for (id, client) in clients.iter_mut().enumerate() {
            let target = format!("/app/gather?name={name}&n={count}&id={id}");
            client.send(Request::get(&target).bytes());
        }
        let bodies: Vec<_> =
            clients.iter_mut().map(|client| client.response("GET").text()).collect();
        let connections = bodies[0].split_once(' ').unwrap().1.parse().unwrap();
        let ids = bodies.iter().map(|body| body.split_once(' ').unwrap().0.to_owned());
        (ids.collect(), connections)
    }

    /// Waits until connections are shared: the server asks the program about sharing when it opens
    /// a second connection.
    fn await_sharing(&self) {
        assert!(wait::until(LIMIT, || self.gather(10).1 < 10), "no connection is shared");
    }

    /// Sends a request that is not answered before [`Self::release`], and waits until the program
    /// has received it.
    pub fn hold(&self, request: impl Fn(&str) -> Request) -> (sendoff_tests::Client, String) {
        let name = self.name();
        let mut client = self.server.connect();
        client.send(request(&format!("/app/hold?name={name}")).bytes());
        self.await_gathered(&name, 1);
        (client, name)
    }

    /// Waits until the program has counted `count` requests with this name. The request of this
    /// function does not count.
    pub fn await_gathered(&self, name: &str, count: usize) {
        let target = format!("/app/gather?name={name}&n={}", count + 1);
        self.server.get(&target).expect(200);
    }

    pub fn release(&self, name: &str) {
        assert_eq!(self.server.page(&format!("/app/release?name={name}")), "released");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the program.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
