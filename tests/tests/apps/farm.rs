//! One application behind four servers at once: Sendoff with the preset of the application, Sendoff
//! with its `.htaccess` files, nginx with php-fpm, and Apache with PHP as its module. All four read
//! the same folders and the same database.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sendoff_tests::{Apache, Client, Fpm, Request, Response, Server, Site, Stock};

/// The host that all requests name.
pub(crate) const HOST: &str = "example.test";

/// The part of Debian's apache2.conf that its packages count on.
pub(crate) const DEBIAN: &str = "<Directory />
Options FollowSymLinks
AllowOverride None
Require all denied
</Directory>
<Directory /usr/share>
AllowOverride None
Require all granted
</Directory>
";

/// An application's configuration for each of the servers.
#[derive(Default)]
pub(crate) struct Rules {
    /// The folder that the site shows.
    pub(crate) root: PathBuf,
    /// Keys and routes of `[[site]]` with the preset.
    pub(crate) preset: String,
    /// Keys and routes of `[[site]]` with `htaccess = true`.
    pub(crate) htaccess: String,
    /// The folder that nginx shows, if it is another one.
    pub(crate) nginx_root: Option<PathBuf>,
    /// Lines of nginx's `http`.
    pub(crate) nginx_http: String,
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

impl Peer {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Self; 4] = [Self::Preset, Self::Htaccess, Self::Nginx, Self::Apache];
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
            // As nginx, which knows no `.htaccess` files.
            preset: ours(
                site,
                rules,
                "preset.toml",
                &format!("htaccess = false\n{}", rules.preset),
            ),
            htaccess: ours(site, rules, "htaccess.toml", &rules.htaccess),
            nginx: Stock::nginx(
                rules.nginx_root.as_ref().unwrap_or(root),
                &rules.nginx_http,
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

    /// The logs of all servers.
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

/// Writes a file in the root of a site and dates it 1 January 2026: Apache's validators of files
/// younger than a second are weak.
pub(crate) fn write_old(site: &Site, name: &str, contents: impl AsRef<[u8]>) {
    let path = site.write(name, contents);
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    File::options().append(true).open(path).unwrap().set_modified(written).unwrap();
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
