//! From the command line to the sections of a configuration file.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use sendoff_config::{Accel, Attachment};
use sendoff_setting_values::{
    AppAddress, At, CertificateFrom, Compress, Count, FilePath, Free, FrontController, Htaccess,
    IniSettings, List, Listen, LogPath, Map, Matching, Number, Place, PositiveTime, Prefix, Scope,
    Size, Time, UrlPath, Word, Yes,
};
use sendoff_settings::keys::{Auth, Pool, Route, Site, Tls, Top};
use sendoff_settings::{Inline, Sections, Short};

use crate::failure::Failure;
use crate::options::{Serve, WorkerCount};

/// The environment variable with the filter for the log.
const LOG: &str = "SENDOFF_LOG";

/// The port of TLS unless the command line names one.
const TLS_PORT: u16 = 8443;

/// The filter for the log of all processes: from the environment if the variable is set, else from
/// the file.
pub(crate) fn log_filter(of_file: String) -> String {
    std::env::var(LOG).unwrap_or(of_file)
}

/// The sections of the configuration file that is equivalent to a command line.
///
/// # Errors
/// The value of an option is invalid.
pub(crate) fn sections(serve: &Serve) -> Result<Top, Failure> {
    let mut top = Top::empty(Place::Option("serve"));
    let mut listen = serve.listen.clone();
    listen.extend(tls_addresses(serve));
    for address in &mut listen {
        address.proxy_protocol |= serve.proxy_protocol;
    }
    top.listen = At::option("--listen", list("--listen", listen));
    top.user = serve.user.clone().map(|user| At::option("--user", Free(user)));
    top.threads = serve.threads.map(|n| At::option("--threads", Number(n.into())));
    top.access_log = match &serve.access_log {
        Some(path) if path == Path::new("-") => Some(At::option("--access-log", LogPath::Stdout)),
        Some(path) => {
            let At { value, place } = file("--access-log", path)?;
            Some(At { value: LogPath::File(value), place })
        }
        None => None,
    };
    let format = serve.access_log_format.clone();
    top.access_log_format = At::option("--access-log-format", format);
    top.request_id = At::option("--request-id", serve.request_id);
    top.trust_unix = At::option("--trust-unix", serve.trust_unix);
    top.proxy_field = At::option("--proxy-field", serve.proxy_field.into());
    top.trusted_proxies = given("--trust-proxy", &serve.trust_proxy);
    top.max_body = At::option("--max-body", Size(serve.max_body));
    top.head_timeout = At::option("--head-timeout", PositiveTime(serve.head_timeout));
    top.body_timeout = At::option("--body-timeout", PositiveTime(serve.body_timeout));
    top.idle_timeout = At::option("--idle-timeout", PositiveTime(serve.idle_timeout));
    top.send_timeout = At::option("--send-timeout", PositiveTime(serve.send_timeout));
    top.shutdown_timeout = At::option("--shutdown-timeout", Time(serve.shutdown_timeout));
    let pool = pool(serve)?;
    if pool != Pool::empty(Place::Default) {
        top.pool = At::default(Sections(vec![pool]));
    }
    top.site = At::default(Sections(vec![site(serve)?]));
    Ok(top)
}

/// Addresses that are served by TLS.
fn tls_addresses(serve: &Serve) -> Vec<Listen> {
    let mut addresses = serve.tls_listen.clone();
    let is_wanted = serve.tls || serve.tls_cert.is_some();
    if addresses.is_empty() && is_wanted {
        addresses.push(Listen::tcp(Ipv4Addr::LOCALHOST.into(), TLS_PORT));
    }
    for address in &mut addresses {
        address.tls = true;
    }
    addresses
}

fn tls(serve: &Serve) -> Result<Option<At<Short<Tls>>>, Failure> {
    if !serve.listen.iter().any(|address| address.tls) && tls_addresses(serve).is_empty() {
        return Ok(None);
    }
    let mut tls = Tls::empty(Place::Option("--tls"));
    tls.certificate = Some(match &serve.tls_cert {
        Some(path) => {
            let FilePath(path) = file("--tls-cert", path)?.value;
            At::option("--tls-cert", CertificateFrom::File(path))
        }
        None => At::option("--tls", CertificateFrom::SelfSigned),
    });
    tls.key = serve.tls_key.as_deref().map(|path| file("--tls-key", path)).transpose()?;
    Ok(Some(At::option("--tls", Short(tls))))
}

fn pool(serve: &Serve) -> Result<Pool, Failure> {
    let mut pool = Pool::empty(Place::Default);
    let workers = match serve.workers {
        WorkerCount::Fixed(count) => Count::Fixed(count),
        WorkerCount::Auto => Count::Auto,
    };
    pool.workers = At::option("--workers", workers);
    pool.worker_idle_timeout =
        At::option("--worker-idle-timeout", PositiveTime(serve.worker_idle_timeout));
    pool.php = serve.php.clone().map(|program| At::option("--php", program));
    if let Some(script) = &serve.php_worker {
        pool.php_worker = Some(file("--php-worker", script)?);
        let watched: Vec<_> = if serve.watch { vec![project_of(script)?] } else { Vec::new() };
        pool.watch = given("--watch", &watched);
    }
    let mut settings = IniSettings::none();
    for setting in &serve.php_ini {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(Failure::Input(format!("--php-ini {setting}: expected KEY=VALUE")));
        };
        settings.add(name.trim(), value, Place::Option("--php-ini"));
    }
    pool.php_ini = At::option("--php-ini", settings);
    pool.max_requests = At::option("--max-requests", Number(serve.max_requests));
    pool.request_timeout = At::option("--request-timeout", Time(serve.request_timeout));
    pool.snapshot = At::option("--snapshot", serve.snapshot.into());
    Ok(pool)
}

/// The project folder of a worker script: the nearest folder above it with a `composer.json`, else
/// the script's own folder.
fn project_of(script: &Path) -> Result<FilePath, Failure> {
    let FilePath(script) = file("--php-worker", script)?.value;
    let folders = || script.ancestors().skip(1);
    let has_packages = |folder: &&Path| folder.join("composer.json").is_file();
    let folder = folders().find(has_packages).or_else(|| folders().next());
    Ok(FilePath(folder.unwrap_or(Path::new("/")).to_owned()))
}

fn site(serve: &Serve) -> Result<Site, Failure> {
    let mut site = Site::empty(Place::Option("serve"));
    let root = file("ROOT", &serve.root)?;
    if serve.no_php {
        site.php = At::option("--no-php", false);
    }
    if serve.htaccess {
        site.htaccess = At::option("--htaccess", Htaccess::On);
    } else if serve.no_htaccess {
        site.htaccess = At::option("--no-htaccess", Htaccess::Off);
    }
    site.root = Some(root);
    site.tls = tls(serve)?;
    // A command line offers both HTTP and HTTPS, so that both can be tried.
    site.https_redirect = site.tls.as_ref().map(|_| At::option("--tls", false));
    site.app = serve.app.map(|app| At::option("--app", app));
    if !serve.index.is_empty() {
        site.index = At::option("--index", list("--index", serve.index.clone()));
    }
    if let Some(controller) = front_controller(&serve.front_controller)? {
        site.front_controller = At::option("--front-controller", controller);
    }
    site.alias = files("--alias", &serve.alias)?;
    site.symlinks = At::option("--symlinks", serve.symlinks);
    let follow: Vec<_> = paths("--follow-symlinks-into", &serve.follow_symlinks_into)?;
    site.follow_symlinks_into = given("--follow-symlinks-into", &follow);
    site.php_only = given("--php-only", &serve.php_only);
    site.scripts_in_writable_folders =
        At::option("--no-scripts-in-writable-folders", !serve.no_scripts_in_writable_folders);
    site.serve = given("--serve", &serve.serve);
    site.media_types = map("--media-type", &serve.media_type);
    if serve.compress {
        site.compress = At::option("--compress", Compress::All);
    }
    site.error_pages = map("--error-page", &serve.error_page);
    let maintenance = serve.maintenance.as_deref();
    site.maintenance = maintenance.map(|path| file("--maintenance", path)).transpose()?;
    let software = serve.server_software.clone();
    site.server_software = software.map(|text| At::option("--server-software", text));
    site.fastcgi = attached(&serve.fastcgi)?;
    site.fastcgi_timeout = At::option("--fastcgi-timeout", PositiveTime(serve.fastcgi_timeout));
    let sendfile_from = paths("--sendfile-from", &serve.sendfile_from)?;
    site.sendfile_from = given("--sendfile-from", &sendfile_from);
    site.accel = accel(&serve.accel)?;
    site.delivery = At::option("--delivery", serve.delivery.into());
    site.route = At::default(Sections(routes(serve)?));
    Ok(site)
}

/// The routes for the options that concern only parts of the site.
fn routes(serve: &Serve) -> Result<Vec<Route>, Failure> {
    let mut routes = Vec::new();
    if let Some(params) = map("--param", &serve.param) {
        let mut route = Route::empty(Place::Option("--param"));
        route.params = Some(params);
        routes.push(route);
    }
    for prefix in &serve.deny {
        let mut route = beneath("--deny", prefix);
        route.deny = Some(At::option("--deny", Yes));
        routes.push(route);
    }
    for (prefix, path) in &serve.auth {
        let mut route = beneath("--auth", prefix);
        let mut auth = Auth::empty(Place::Option("--auth"));
        auth.users = Some(file("--auth", path)?);
        route.auth = Some(At::option("--auth", Inline(auth)));
        routes.push(route);
    }
    Ok(routes)
}

fn beneath(option: &'static str, prefix: &Prefix) -> Route {
    let mut route = Route::empty(Place::Option(option));
    route.prefix = Some(At::option(option, list(option, [prefix.clone()])));
    route
}

fn front_controller(texts: &[String]) -> Result<Option<FrontController>, Failure> {
    const OPTION: &str = "--front-controller";
    let scope = Scope { folder: Path::new("/") };
    let bad = |text: &str, why: &str| Failure::Input(format!("{OPTION} {text}: {why}"));
    let script = |text: &str| {
        UrlPath::parse(text, &scope)
            .map_err(|_| bad(text, "expected off, nearest, /SCRIPT or /FOLDER=/SCRIPT"))
    };
    let mut folders = Vec::new();
    for text in texts {
        let Some((folder, path)) = text.split_once('=') else {
            if texts.len() > 1 {
                return Err(bad(text, "of several, each needs a folder: /FOLDER=/SCRIPT"));
            }
            return Ok(Some(match &**text {
                "off" => FrontController::Off,
                "nearest" => FrontController::Nearest,
                text => FrontController::Script(script(text)?),
            }));
        };
        let folder = Prefix::parse(folder, &scope).map_err(|wrong| bad(text, &wrong.says))?;
        folders.push((At::option(OPTION, folder), At::option(OPTION, script(path)?)));
    }
    Ok((!folders.is_empty()).then_some(FrontController::Folders(Map(folders))))
}

/// Refuses several applications for the same requests: only one could answer.
fn attached(attachments: &[Attachment]) -> Result<Option<At<Map<Matching, AppAddress>>>, Failure> {
    for (number, Attachment { matching, .. }) in attachments.iter().enumerate() {
        if attachments[..number].iter().any(|earlier| earlier.matching == *matching) {
            let what = match matching {
                sendoff_config::Matching::Ending(text) => text.clone(),
                sendoff_config::Matching::Prefix(text) => format!("{text}/"),
                sendoff_config::Matching::Routes => continue,
            };
            return Err(Failure::Input(format!(
                "--fastcgi {what} is given twice: leave one out; requests are shared among hosts by [[upstream]] in a configuration file"
            )));
        }
    }

    let pairs: Vec<_> = attachments
        .iter()
        .filter_map(|Attachment { matching, address }| {
            let matching = match matching {
                sendoff_config::Matching::Ending(ending) => Matching::Ending(ending.clone()),
                sendoff_config::Matching::Prefix(prefix) => Matching::Prefix(prefix.clone()),
                sendoff_config::Matching::Routes => return None,
            };
            Some((matching, AppAddress(address.clone())))
        })
        .collect();
    Ok(map("--fastcgi", &pairs))
}

fn accel(accel: &[Accel]) -> Result<Option<At<Map<UrlPath, FilePath>>>, Failure> {
    let pairs: Vec<_> = accel
        .iter()
        .map(|Accel { prefix, folder }| (UrlPath(prefix.clone()), folder.clone()))
        .collect();
    files("--accel", &pairs)
}

/// A path of the command line, made absolute by the current folder.
fn file(option: &'static str, path: &Path) -> Result<At<FilePath>, Failure> {
    let path = std::path::absolute(path).map_err(Failure::input(path.display()))?;
    Ok(At::option(option, FilePath(path)))
}

fn paths(option: &'static str, paths: &[PathBuf]) -> Result<Vec<FilePath>, Failure> {
    paths.iter().map(|path| Ok(file(option, path)?.value)).collect()
}

fn list<T>(option: &'static str, values: impl IntoIterator<Item = T>) -> List<T> {
    List(values.into_iter().map(|value| At::option(option, value)).collect())
}

/// A list, if the option was given.
fn given<T: Clone>(option: &'static str, values: &[T]) -> Option<At<List<T>>> {
    (!values.is_empty()).then(|| At::option(option, list(option, values.iter().cloned())))
}

/// A map, if the option was given. The first value of a key counts.
fn map<K: Clone + PartialEq, V: Clone>(
    option: &'static str,
    pairs: &[(K, V)],
) -> Option<At<Map<K, V>>> {
    let mut map: Vec<(At<K>, At<V>)> = Vec::new();
    for (key, value) in pairs {
        if map.iter().all(|(known, _)| known.value != *key) {
            map.push((At::option(option, key.clone()), At::option(option, value.clone())));
        }
    }
    (!map.is_empty()).then(|| At::option(option, Map(map)))
}

fn files<K: Clone + PartialEq>(
    option: &'static str,
    pairs: &[(K, PathBuf)],
) -> Result<Option<At<Map<K, FilePath>>>, Failure> {
    let mut resolved = Vec::new();
    for (key, path) in pairs {
        resolved.push((key.clone(), file(option, path)?.value));
    }
    Ok(map(option, &resolved))
}
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use sendoff_settings::Machine;

    use sendoff_config::{Config, PoolConfig};

    use super::*;
    use crate::machine::ThisMachine;
    use crate::options::{Command, Options};
    use crate::source::Resolved;

    fn config(options: &[&str]) -> Result<Config, Failure> {
        let line = ["sendoff", "serve", "/"].iter().chain(options);
        let Command::Serve(serve) = Options::try_parse_from(line).unwrap().command else {
            panic!("expected serve")
        };
        Resolved::from_options(&serve).map(|resolved| resolved.config)
    }

    #[test]
    fn without_options_every_value_has_its_default() {
        let config = config(&[]).unwrap();
        assert_eq!(config.shutdown_timeout, Duration::from_secs(30));
        assert_eq!(config.front.limits.max_body, 1 << 30);
        let seconds = |n| Duration::from_secs(n);
        let timeouts = config.front.timeouts;
        assert_eq!((timeouts.head, timeouts.body), (seconds(30), seconds(60)));
        assert_eq!((timeouts.idle, timeouts.send), (seconds(75), seconds(60)));
        let pool = &config.pools[config.sites[0].pool.unwrap()];
        assert_eq!(pool.request_timeout, Some(seconds(300)));
        let bounds = pool.bounds().unwrap();
        assert!(
            bounds.min == 2 * ThisMachine.cores()
                && bounds.max >= bounds.min
                && bounds.idle == seconds(30)
        );
        assert_eq!(config.sites.len(), 1);
    }

    #[test]
    fn workers_are_there_unless_an_application_takes_all_their_requests() {
        assert_eq!(config(&["--workers", "3"]).unwrap().pools[0].first_workers(), 3);
        for (attached, workers) in
            [(".php=unix:/x", 0), ("/=unix:/x", 0), (".pl=unix:/x", 4), ("/a=unix:/x", 4)]
        {
            let config = config(&["--workers", "4", "--fastcgi", attached]).unwrap();
            let found = config.pools.first().map_or(0, PoolConfig::first_workers);
            assert_eq!(found, workers, "{attached}");
            assert_eq!(config.sites[0].pool.is_some(), workers > 0, "{attached}");
        }
    }

    #[test]
    fn times_and_sizes_take_units_and_zero_means_no_deadline() {
        let options = ["--request-timeout", "0", "--head-timeout", "500ms", "--max-body", "64M"];
        let config = config(&options).unwrap();
        assert_eq!(config.pools[0].request_timeout, None);
        assert_eq!(config.front.timeouts.head, Duration::from_millis(500));
        assert_eq!(config.front.limits.max_body, 64 << 20);
    }

    #[test]
    fn the_longest_prefix_of_uris_comes_first_and_folders_must_exist() {
        let accel = config(&["--accel", "/a=/", "--accel", "/a/b=/proc/self/.."]).unwrap();
        let accel = &accel.sites[0].accel;
        assert_eq!((&*accel[0].prefix, &*accel[0].folder), ("/a/b", Path::new("/proc")));
        for missing in [["--accel", "/a=/nowhere"], ["--sendfile-from", "/proc/version"]] {
            assert!(matches!(config(&missing), Err(Failure::Input(_))), "{missing:?}");
        }
    }

    /// The configuration file that is equivalent to a command line.
    fn printed(options: &[&str]) -> String {
        let line = ["sendoff", "serve", "/"].iter().chain(options);
        let Command::Serve(serve) = Options::try_parse_from(line).unwrap().command else {
            panic!("expected serve")
        };
        sendoff_settings::print(&Resolved::from_options(&serve).unwrap().top)
    }

    #[test]
    fn a_command_line_and_the_file_that_it_stands_for_mean_the_same() {
        const OPTIONS: &[&[&str]] = &[
            &["--listen", "127.0.0.1:0", "--listen", "[::1]:80", "--listen", "unix:/run/a"],
            &["--listen", "unix:/run/a mode=0600", "--listen", "unix:/run/b b.sock proxy_protocol"],
            &["--listen", "8080", "--proxy-protocol", "--listen", "localhost:81"],
            &["--threads", "3"],
            &["--workers", "7", "--max-requests", "1000"],
            &["--worker-idle-timeout", "1500ms"],
            &["--php-ini", "a=1", "--php-ini", "a=2", "--php-ini", "b.c=\"x\\y\" 'z'"],
            &["--php-ini", "extension=a", "--php-ini", "extension=b"],
            &["--request-timeout", "0"],
            &["--shutdown-timeout", "0.25", "--head-timeout", "1h", "--body-timeout", "36h"],
            &["--idle-timeout", "90", "--send-timeout", "61s"],
            &["--delivery", "relay", "--snapshot", "copy"],
            &["--fastcgi", ".php=unix:/x", "--fastcgi", "/app/=tcp:localhost:9000"],
            &["--fastcgi", "/=unix:/x", "--fastcgi-timeout", "2m"],
            &["--sendfile-from", "/proc", "--sendfile-from", "/proc/self/.."],
            &["--accel", "/files/=/proc", "--accel", "/f=/"],
            &["--access-log", "-"],
            &["--access-log", "relative.log"],
            &["--follow-symlinks-into", "/nowhere yet", "--symlinks", "inside"],
            &["--max-body", "64M"],
            &["--max-body", "1000001"],
            &["--trust-proxy", "10.0.0.0/8", "--trust-proxy", "::1"],
            &["--deny", "/private", "--deny", "/x/y/"],
            &["--alias", "/javascript=/usr/share", "--alias", "/p=/proc"],
            &["--php-only", "/index.php", "--php-only", "/admin/"],
            &["--no-scripts-in-writable-folders", "--serve", "composer.json", "--serve", "*.sql"],
            &["--index", "default.html", "--index", "a.php"],
            &["--front-controller", "off"],
            &["--front-controller", "nearest"],
            &["--front-controller", "/app.php"],
            &["--front-controller", "/=/a.php", "--front-controller", "/b/=/b/a.php"],
            &["--error-page", "404=/404.html", "--media-type", "mjs=text/javascript"],
            &["--param", "A=b \"c\" $host $$", "--param", "B="],
            &["--auth", "/admin=/etc/passwd", "--maintenance", "/run/off"],
            &["--server-software", "Apache", "--htaccess"],
            &["--access-log-format", "$remote_addr \"$request\" $status", "--trust-unix"],
            &["--request-id", "--proxy-field", "forwarded"],
            &["--no-htaccess", "--app", "dokuwiki"],
            &["--no-php"],
            &["--tls"],
            &[
                "--tls-listen",
                "localhost:8444",
                "--tls-cert",
                "/etc/passwd",
                "--tls-key",
                "/etc/group",
            ],
            &["--compress"],
        ];
        /// Options that may be given once, or that exclude another option of their group.
        const ONCE: &[&str] =
            &["--max-body", "--front-controller", "--access-log", "--listen", "--fastcgi"];
        let mut lines: Vec<Vec<&str>> = OPTIONS.iter().map(|options| options.to_vec()).collect();
        for (number, first) in OPTIONS.iter().enumerate() {
            for second in &OPTIONS[number + 1..] {
                let twice = |option: &&str| ONCE.contains(option) && second.contains(option);
                if !first.iter().any(twice) {
                    lines.push([*first, *second].concat());
                }
            }
        }
        for line in &lines {
            let of_line = config(line).unwrap_or_else(|why| panic!("{line:?}: {why}"));
            let text = printed(line);
            let top = sendoff_settings::read_text(&text).unwrap_or_else(|| panic!("{text}"));
            let mut problems = sendoff_setting_values::Problems::default();
            let sources = sendoff_setting_values::Sources::default();
            let of_file = sendoff_settings::resolve(&top, &sources, &ThisMachine, &mut problems);
            let same = |config: Config| {
                let mut config = config;
                for route in config.sites.iter_mut().flat_map(|site| &mut site.routes) {
                    // The origin is the option, or the line of the file.
                    route.origin.clear();
                }
                config
            };
            assert_eq!(of_file.map(same), Some(same(of_line)), "{line:?}\n{text}");
        }
    }

    #[test]
    fn without_options_the_file_names_the_root_and_nothing_else() {
        let text = printed(&[]);
        let keys = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(keys.collect::<Vec<_>>(), ["[[site]]", "root = \"/\""]);
    }
}
