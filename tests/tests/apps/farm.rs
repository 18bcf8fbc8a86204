//! One application behind four servers at once: Sendoff with the preset of the application, Sendoff with its `.htaccess` files,
//! nginx with php-fpm, and Apache with PHP as its module. All four read the same folders and the same database.

use std::path::PathBuf;

use sendoff_tests::{Apache, Client, Fpm, Request, Response, Server, Site, Stock};

/// The host that all requests name.
pub(crate) const HOST: &str = "example.test";

/// How the servers are told about an application.
#[derive(Default)]
pub(crate) struct Rules {
    /// The folder that the site shows.
    pub(crate) root: PathBuf,
    /// Keys and routes of `[[site]]` with the preset.
    pub(crate) preset: String,
    /// Keys and routes of `[[site]]` with `htaccess = true`.
    pub(crate) htaccess: String,
    /// Lines of nginx's `server`. `{php}` stands for the lines that run a script.
    pub(crate) nginx: String,
    /// Lines of Apache's configuration.
    pub(crate) apache: String,
    /// php.ini settings for all, names and values.
    pub(crate) ini: Vec<(&'static str, String)>,
}

/// The servers.
pub(crate) struct Farm {
    preset: Server,
    htaccess: Server,
    nginx: Stock,
    apache: Apache,
    _fpm: Fpm,
}

/// One of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Sendoff with the preset.
    Preset,
    /// Sendoff with `.htaccess` files.
    Htaccess,
    /// nginx and php-fpm.
    Nginx,
    /// Apache and its PHP module.
    Apache,
}

impl Farm {
    /// Starts all.
    pub(crate) fn start(site: &Site, rules: &Rules) -> Self {
        let root = &rules.root;
        let settings: Vec<_> =
            rules.ini.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        let fpm = Fpm::start_with(site.root(), "", &settings);
        let php = format!(
            "include /etc/nginx/snippets/fastcgi-php.conf;\nfastcgi_pass {};",
            fpm.address()
        );
        let flags: String = rules
            .ini
            .iter()
            .map(|(name, value)| format!("php_admin_value {name} \"{value}\"\n"))
            .collect();
        let types = std::fs::read_to_string("/etc/mime.types").unwrap();
        Self {
            preset: ours(site, rules, "preset.toml", &rules.preset),
            htaccess: ours(site, rules, "htaccess.toml", &rules.htaccess),
            nginx: Stock::nginx(
                root,
                "",
                &format!("port_in_redirect off;\n{}", rules.nginx.replace("{php}", &php)),
            ),
            apache: Apache::start(
                &[(HOST.to_owned(), root.clone())],
                &types,
                &format!("{flags}{}", rules.apache),
            ),
            _fpm: fpm,
        }
    }

    /// Asks one of them.
    pub(crate) fn ask(&self, peer: Peer, request: &Request) -> Response {
        let addr = match peer {
            Peer::Preset => self.preset.addr(),
            Peer::Htaccess => self.htaccess.addr(),
            Peer::Nginx => self.nginx.addr(),
            Peer::Apache => self.apache.addr(),
        };
        Client::connect(addr).ask(request)
    }

    /// What the servers have logged.
    pub(crate) fn logs(&self) -> String {
        format!(
            "--- preset\n{}\n--- .htaccess\n{}\n--- nginx\n{}\n--- Apache\n{}",
            self.preset.log(),
            self.htaccess.log(),
            self.nginx.log(),
            self.apache.log()
        )
    }
}

fn ours(site: &Site, rules: &Rules, name: &str, text: &str) -> Server {
    let ini: String =
        rules.ini.iter().map(|(name, value)| format!("\"{name}\" = '{value}'\n")).collect();
    let config = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\nuser = 'www-data'\n[[pool]]\nworkers = 2\n[pool.php_ini]\n{ini}\
         [[site]]\nroot = '{}'\n{text}",
        rules.root.display()
    );
    let config = site.write_at(site.outside(name), config);
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}
