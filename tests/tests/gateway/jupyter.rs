//! JupyterLab as a folder of a site: pages, files, kernels and terminals.

use std::fs::{self, File};
use std::path::Path;
use std::process::Child;

use sendoff_tests::{Authority, LIMIT, Server, Site, pypi, wait};

const TOKEN: &str = "a-token-of-the-scenario";

/// JupyterLab on a free port, with all of its files in the site's folder.
struct Lab {
    child: Child,
    port: String,
}

impl Lab {
    fn start(packages: &Path, site: &Site) -> Self {
        let (home, folder) = (site.outside("home"), site.outside("notebooks"));
        for folder in [&home, &folder] {
            fs::create_dir(folder).unwrap();
        }
        let log = site.outside("jupyter.log");
        let output = File::create(&log).unwrap();
        let mut command = pypi::python(packages);
        command
            .args(["-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"])
            .args(["--ServerApp.base_url=/hub/ann/"])
            .arg("--ZMQChannelsWebsocketConnection.limit_rate=False")
            .arg(format!("--IdentityProvider.token={TOKEN}"))
            .arg(format!("--ServerApp.root_dir={}", folder.display()))
            .env("HOME", &home)
            .env("JUPYTER_PLATFORM_DIRS", "1")
            .env("JUPYTER_CONFIG_PATH", packages.join("etc/jupyter"))
            .env("JUPYTERLAB_DIR", packages.join("share/jupyter/lab"))
            .current_dir(&home)
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let child = command.spawn().unwrap();
        let said = || fs::read_to_string(&log).unwrap();
        let ready = wait::until(4 * LIMIT, || said().contains("http://127.0.0.1:"));
        assert!(ready, "{}", said());
        let said = said();
        let port = said.split("http://127.0.0.1:").nth(1).unwrap().split('/').next().unwrap();
        Self { child, port: port.to_owned() }
    }
}

impl Drop for Lab {
    /// Ends it by a signal that lets it end its kernels.
    fn drop(&mut self) {
        sendoff_tests::processes::signal(self.child.id(), rustix::process::Signal::TERM);
        let _ended = self.child.wait();
    }
}

#[test]
#[ignore = "heavy: fetches JupyterLab"]
fn a_jupyterlab_works_as_a_folder_of_a_site() {
    let packages = pypi::packages("jupyter");
    let site = Site::new();
    let lab = Lab::start(&packages, &site);
    let keys = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 2\nmax_body = '16M'\n[[pool]]\nworkers = 'ondemand'\n\
         [[site]]\nroot = 'root'\ntls = {{ certificate = '{}', key = '{}' }}\nhttps_redirect = false\n\
         [[site.route]]\nprefix = '/hub/ann'\nproxy = 'http://127.0.0.1:{}'\n",
        keys.chain.display(),
        keys.key.display(),
        lab.port,
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server =
        Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"));
    let direct = format!("http://127.0.0.1:{}/hub/ann/", lab.port);
    let clear = format!("http://{}/hub/ann/", server.clear_addr());
    let tls = format!("https://{}/hub/ann/", server.tls_addr().unwrap());
    let arguments = [TOKEN, &direct, &direct, &clear, &tls];
    let said = pypi::run(&packages, "tests/tests/gateway/jupyter_client.py", &arguments);
    assert_eq!(said, "all as expected\n");
}
