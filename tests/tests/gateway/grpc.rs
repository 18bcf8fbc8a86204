//! gRPC's own client and server, with the server between them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use sendoff_tests::{Authority, LIMIT, Server, Site, pypi, repository, wait};

use crate::hosts::balance;

/// The application, and its port.
struct Application(Child, String);

impl Application {
    fn start(packages: &Path) -> Self {
        let mut child = pypi::python(packages)
            .arg(repository::root().join("tests/tests/gateway/grpc_server.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self(child, port.trim().to_owned())
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the client's calls.
fn call(packages: &Path, arguments: &[&str]) {
    let said = pypi::run(packages, "tests/tests/gateway/grpc_client.py", arguments);
    assert_eq!(said, "all calls as expected\n");
}

#[test]
#[ignore = "heavy: fetches grpcio"]
fn calls_of_grpcio_come_through() {
    let packages = pypi::packages("grpcio");
    let (site, app) = (Site::new(), Application::start(&packages));
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"], &site.outside("keys"), "localhost");
    let roots = site.write_at(site.outside("roots.pem"), authority.pem());
    let roots = roots.to_str().unwrap();
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 2\nmax_body = '64M'\n[[pool]]\nworkers = 'ondemand'\n\
         [[site]]\nroot = 'root'\nhttps_redirect = false\n\
         tls = {{ certificate = '{}', key = '{}' }}\n[[site.route]]\nproxy = 'h2://127.0.0.1:{}'\n",
        certificate.chain.display(),
        certificate.key.display(),
        app.1
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server =
        Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"));
    call(&packages, &[&format!("127.0.0.1:{}", server.clear_addr().port())]);
    let tls = format!("localhost:{}", server.tls_addr().unwrap().port());
    call(&packages, &[&tls, roots]);
    // One server after the other, the inner one over TLS.
    let outer = Site::new();
    let config = outer.write_at(
        outer.outside("sendoff.toml"),
        format!(
            "listen = '127.0.0.1:0'\nmax_body = '64M'\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = 'root'\n\
             [[site.route]]\nproxy = {{ to = 'h2s://{tls}', roots = '{roots}' }}\n"
        ),
    );
    let server =
        Server::try_run(&config, outer.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"));
    call(&packages, &[&format!("127.0.0.1:{}", server.clear_addr().port())]);
}

#[test]
#[ignore = "heavy: fetches grpcio"]
fn the_health_service_of_a_grpcio_server_is_asked() {
    let (site, app) = (Site::new(), Application::start(&pypi::packages("grpcio")));
    for (service, state) in [("", "1 up"), ("test.Echo", "1 up"), ("other", "no service")] {
        let keys = format!("fails = 1\nprobe = {{ every = '50ms', grpc = '{service}' }}");
        let server = balance(&site, "h2", &[format!("127.0.0.1:{}", app.1)], &keys, "");
        let status = || server.command(&["status"]).unwrap();
        assert!(wait::until(LIMIT, || status().contains(state)), "{service}: {}", status());
    }
}
