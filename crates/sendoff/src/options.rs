//! The command line.

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sendoff_config::units::{positive_time, size, time};
use sendoff_config::{Accel, Attachment, MAX_THREADS};
use sendoff_control::ServerSelection;
use sendoff_setting_values::{
    App, Client, Ending, FileName, Free, LineFormat, Listen, MimeType, ParamName, PhpProgram,
    Prefix, Scope, Status, Symlinks, Template, UrlPath, Word,
};

/// Sends pages from PHP without the copies.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Socket to the server whose listeners `serve` or `run` takes over; `upgrade` sets it
    /// (inherited descriptor).
    #[arg(long, value_name = "N", hide = true, global = true)]
    pub(crate) take_over_fd: Option<RawFd>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a folder: static files and PHP. No configuration is needed.
    Serve(Box<Serve>),
    /// Serve the sites of a configuration file.
    Run(Run),
    /// Check a configuration file: report every error and its place.
    Check(Check),
    /// Write the configuration file for the sites of another server: nginx.conf or apache2.conf
    /// with their includes, a file of Debian's sites-available, a Caddyfile, or the JSON document
    /// of NGINX Unit. A comment stands at each directive that has no equal; the exit status is then
    /// 3.
    Convert(Convert),
    /// Show how a running server on this machine answers a request: where each piece of the
    /// response comes from, how it is sent, and why it was copied. The server really carries out
    /// the request.
    Explain(Explain),
    /// Show the state of a running server.
    Status(StatusOf),
    /// Remove pages from the page cache of a running server: one page, all pages below an address,
    /// or all. A page that an application is generating at that moment is not stored.
    Purge(Purge),
    /// Make a running server read its configuration again, like SIGHUP. The command returns when
    /// the new configuration is in use; if the configuration has an error, nothing changes.
    Reload(Control),
    /// Make a running server open its logs again after they were renamed, like SIGUSR1.
    Reopen(Control),
    /// Replace a running server by the program file that is installed now, at the path that the
    /// server was started from. The new server takes over the listeners; the old one finishes its
    /// open responses and ends. If the new server does not become ready, nothing changes.
    Upgrade(Control),
    /// End a running server, like SIGTERM: open responses may finish.
    Stop(Stop),
    /// Write the manual pages and the shell completions, for packages.
    #[command(hide = true)]
    Generate(Generate),
    /// The process that speaks HTTP; `serve` starts it.
    #[command(hide = true)]
    Front(Inherited),
    /// The process that obtains certificates; `serve` starts it.
    #[command(hide = true)]
    Acme(OfAcme),
    /// The process that keeps the processes of a program; `run` starts it.
    #[command(hide = true)]
    Program(OfProgram),
}

/// The configuration file, unless the command line names another one.
const CONFIG: &str = "/etc/sendoff/sendoff.toml";

/// The options that name the configuration file.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigFile {
    /// The configuration file (docs/config.md), same as `--config`.
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The configuration file (docs/config.md).
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
}

impl ConfigFile {
    /// The path of the file, from the argument or from the option.
    pub(crate) fn path(&self) -> &Path {
        self.file.as_deref().unwrap_or(&self.config)
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print the configuration as one file: included files and the rules of applications are
    /// inserted in their places.
    #[arg(long, conflicts_with = "schema")]
    pub(crate) print: bool,
    /// Print the JSON schema of configuration files, for editors; check nothing.
    #[arg(long)]
    pub(crate) schema: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Convert {
    /// Configuration file of the other server.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The other server. Without this option, the name and the text of the file tell it.
    #[arg(long, value_name = "SERVER")]
    pub(crate) from: Option<OtherServer>,
}

/// A server whose configuration `convert` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OtherServer {
    Apache,
    Caddy,
    Nginx,
    Unit,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Explain {
    /// URL to request; its port selects the server, which the same user must have started.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Field to add to the request, such as `Cookie: a=b`. May be repeated.
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
}

/// The options that select a server. The same user must have started it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Control {
    /// Select the server that listens on this address or port [default: the only running server].
    #[arg(long, value_name = "ADDR|PORT")]
    pub(crate) listen: Option<String>,
    /// Select the server that was started with this configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Control socket of the server.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["listen", "config"])]
    pub(crate) socket: Option<PathBuf>,
}

impl Control {
    /// The selection that the options express.
    pub(crate) fn selection(&self) -> ServerSelection<'_> {
        ServerSelection {
            listen: self.listen.as_deref(),
            config: self.config.as_deref(),
            socket: self.socket.as_deref(),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StatusOf {
    #[command(flatten)]
    pub(crate) control: Control,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the state every second, until interrupted.
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(crate) control: Control,
    /// Address of the page, such as `https://example.org/blog/`; with `*` at its end, all addresses
    /// that begin so. The command covers http and https, and all ports. If several servers run, the
    /// port of the URL selects one.
    #[arg(value_name = "URL", required_unless_present_any = ["all", "warm"], conflicts_with = "all")]
    pub(crate) url: Option<String>,
    /// Remove all pages.
    #[arg(long)]
    pub(crate) all: bool,
    /// Remove nothing: make the pages of the sitemaps of sites with `warm` that are missing or old.
    /// After a purge of all pages, or of pages of such a site, this happens by itself.
    #[arg(long, conflicts_with_all = ["url", "all", "json"])]
    pub(crate) warm: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Generate {
    /// Folder to write to; it is created if it is missing.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) control: Control,
    /// Cut off open responses, like SIGINT.
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    /// Folder of the site.
    #[arg(default_value = ".")]
    pub(crate) root: PathBuf,
    /// Address to listen on: `8080` for every address of the machine, `localhost:8080`, `[::1]:80`,
    /// or `unix:/PATH`, optionally followed by mode=0660, owner=NAME and group=NAME. Port 0 picks a
    /// free port. May be repeated.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = word::<Listen>)]
    pub(crate) listen: Vec<Listen>,
    /// Also serve by TLS: with --tls-cert and --tls-key, or with a self-signed certificate that the
    /// server makes once and keeps.
    #[arg(long)]
    pub(crate) tls: bool,
    /// Address to serve by TLS at, as for --listen [default with --tls: 127.0.0.1:8443]. May be
    /// repeated.
    #[arg(long, value_name = "ADDR", value_parser = word::<Listen>)]
    pub(crate) tls_listen: Vec<Listen>,
    /// Certificate in PEM, followed by its issuers' certificates (fullchain.pem).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Each connection begins with a PROXY protocol header, version 1 or 2, which names the client.
    #[arg(long)]
    pub(crate) proxy_protocol: bool,
    /// Number of event loops that speak HTTP [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_THREADS)))]
    pub(crate) threads: Option<u8>,
    /// Number of PHP workers, and so of requests that scripts process at the same time. `auto`: the
    /// server starts a worker for each request that would have to wait, while memory and processor
    /// time are available.
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub(crate) workers: WorkerCount,
    /// Idle time after which `--workers auto` ends a worker.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_time)]
    pub(crate) worker_idle_timeout: Duration,
    /// User to run as, if started by root [default: the owner of ROOT, or www-data if root owns it]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Stock PHP program that hosts the PHP workers: a version, such as `8.2`, or the path of a
    /// program, such as /usr/sbin/php-fpm; `libphp` for sendoff-php [default: the newest that is
    /// installed with its module, or sendoff-php]
    #[arg(long, value_name = "VERSION|FILE|libphp", value_parser = word::<PhpProgram>)]
    pub(crate) php: Option<PhpProgram>,
    /// Run no PHP scripts, and need no PHP: scripts beneath ROOT are refused.
    #[arg(long, conflicts_with_all = ["php", "php_worker"])]
    pub(crate) no_php: bool,
    /// PHP setting that overrides php.ini, such as `memory_limit=256M`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) php_ini: Vec<String>,
    /// PHP script that boots the application once in each worker and receives its requests through
    /// sendoff_handle_request(), such as public/index.php of Symfony. Other scripts run as usual.
    #[arg(long, value_name = "FILE")]
    pub(crate) php_worker: Option<PathBuf>,
    /// With --php-worker: boot the workers again when a source file of the application changes, in
    /// the folder with its composer.json or else in the folder of FILE. For developers.
    #[arg(long, requires = "php_worker")]
    pub(crate) watch: bool,
    /// Number of requests after which a worker is replaced; 0: never.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_requests: u64,
    /// Time for which a script may send nothing; 0: no limit. After that time the script counts as
    /// stuck: its client gets a 504, its PHP backtrace is logged and its worker is replaced.
    /// Without a limit a few scripts that wait forever would occupy all workers. A script that
    /// keeps sending may run for any time (unlike with php-fpm's request_terminate_timeout), and so
    /// may the code after fastcgi_finish_request().
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = time)]
    pub(crate) request_timeout: Duration,
    /// Time from SIGTERM until the server has ended: open responses may finish, then connections
    /// and scripts are cut off. A second signal ends the server at once.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) shutdown_timeout: Duration,
    /// Transport of responses from the workers to the client.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Delivery::Auto)]
    pub(crate) delivery: Delivery,
    /// Protection of a file's contents from the moment at which the script reads it until it is
    /// sent: a lease on the file, or a copy.
    #[arg(long, value_enum, default_value_t = Snapshot::Lease)]
    pub(crate) snapshot: Snapshot,
    /// FastCGI application that answers instead of the workers:
    /// `.php=unix:/run/php/php8.2-fpm.sock` for all files with this ending,
    /// `/app=tcp:127.0.0.1:9000` for all paths below a prefix. May be repeated.
    #[arg(long, value_name = "MATCH=ADDRESS")]
    pub(crate) fastcgi: Vec<Attachment>,
    /// Time for which a FastCGI application may send nothing while it has a request.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time)]
    pub(crate) fastcgi_timeout: Duration,
    /// Folder outside ROOT whose files applications may name in X-Sendfile. May be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) sendfile_from: Vec<PathBuf>,
    /// Folder that X-Accel-Redirect refers to by URIs that begin with PREFIX [default: files below
    /// ROOT]. May be repeated.
    #[arg(long, value_name = "/PREFIX=DIR")]
    pub(crate) accel: Vec<Accel>,
    #[arg(long, value_name = "NAME", value_parser = word::<App>, help = about_app())]
    pub(crate) app: Option<App>,
    /// Network of proxies that are trusted to name the client (X-Forwarded-For and the like). May
    /// be repeated.
    #[arg(long, value_name = "CIDR", value_parser = word::<Client>)]
    pub(crate) trust_proxy: Vec<Client>,
    /// Trust every process that connects to a UNIX socket as a proxy that names the client.
    #[arg(long)]
    pub(crate) trust_unix: bool,
    /// Request field in which trusted proxies name the client. X-Forwarded-For includes -Proto,
    /// -Host and -Port.
    #[arg(
        long,
        value_name = "FIELD",
        value_enum,
        ignore_case = true,
        default_value = "X-Forwarded-For"
    )]
    pub(crate) proxy_field: ProxyField,
    /// Format of a line in the access log: combined, json, or a text with variables such as
    /// `$remote_addr "$request" $status`.
    #[arg(long, value_name = "FORMAT", default_value = "combined", value_parser = word::<LineFormat>)]
    pub(crate) access_log_format: LineFormat,
    /// Give each request an id: REQUEST_ID for scripts, $request_id in the access log, and in log
    /// lines about the request. The X-Request-Id of a trusted proxy is used if there is one.
    #[arg(long)]
    pub(crate) request_id: bool,
    /// Path to refuse, with everything below it. May be repeated.
    #[arg(long, value_name = "PATH", value_parser = word::<Prefix>)]
    pub(crate) deny: Vec<Prefix>,
    /// Folder outside ROOT that is served at a path of the site. May be repeated.
    #[arg(long, value_name = "/PREFIX=DIR", value_parser = pair::<Prefix>)]
    pub(crate) alias: Vec<(Prefix, PathBuf)>,
    /// Script that may run, or folder of such scripts if it ends with a slash; all other scripts
    /// are refused. May be repeated.
    #[arg(long, value_name = "PATH", value_parser = word::<UrlPath>)]
    pub(crate) php_only: Vec<UrlPath>,
    /// Refuse to run a script if PHP's user may write to the root, to a folder above it, or to the
    /// script itself.
    #[arg(long)]
    pub(crate) no_scripts_in_writable_folders: bool,
    /// Name (`composer.json`) or ending (`*.sql`) of files that are served although such files are
    /// refused by default. May be repeated.
    #[arg(long, value_name = "NAME", value_parser = word::<FileName>)]
    pub(crate) serve: Vec<FileName>,
    /// Permitted targets of symbolic links: only inside ROOT (inside), files that belong to the
    /// owner of the link (owner), or any file (any).
    #[arg(long, value_name = "WHERE", default_value = "owner", value_parser = word::<Symlinks>)]
    pub(crate) symlinks: Symlinks,
    /// Name of the index file of a folder [default: index.php, index.html]. May be repeated.
    #[arg(long, value_name = "NAME", value_parser = word::<FileName>)]
    pub(crate) index: Vec<FileName>,
    /// Script for paths without a file: `off`, `nearest` (the nearest index.php above the path),
    /// `/SCRIPT`, or `/FOLDER=/SCRIPT` [default: /index.php]. May be repeated with folders.
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) front_controller: Vec<String>,
    /// Page of the site for an error status, such as `404=/404.html`. May be repeated.
    #[arg(long, value_name = "STATUS=PATH", value_parser = words::<Status, UrlPath>)]
    pub(crate) error_page: Vec<(Status, UrlPath)>,
    /// Media type of a file name ending, such as `mjs=text/javascript`. May be repeated.
    #[arg(long, value_name = "EXT=TYPE", value_parser = words::<Ending, MimeType>)]
    pub(crate) media_type: Vec<(Ending, MimeType)>,
    /// Parameter for scripts, such as `APP_ENV=production`. May be repeated.
    #[arg(long, value_name = "NAME=TEXT", value_parser = words::<ParamName, Template>)]
    pub(crate) param: Vec<(ParamName, Template)>,
    /// Path that requires a name and a password, and the file that contains them (htpasswd). May be
    /// repeated.
    #[arg(long, value_name = "/PREFIX=FILE", value_parser = pair::<Prefix>)]
    pub(crate) auth: Vec<(Prefix, PathBuf)>,
    /// Answer every request with 503 while this file exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) maintenance: Option<PathBuf>,
    /// Value of SERVER_SOFTWARE for scripts.
    #[arg(long, value_name = "TEXT", value_parser = word::<Free>)]
    pub(crate) server_software: Option<Free>,
    /// Allow .htaccess files every directive, as in Apache [default: obey them where one lies]
    #[arg(long, overrides_with = "no_htaccess")]
    pub(crate) htaccess: bool,
    /// Do not obey .htaccess files.
    #[arg(long, overrides_with = "htaccess")]
    pub(crate) no_htaccess: bool,
    /// Compress responses for clients that accept it.
    #[arg(long)]
    pub(crate) compress: bool,
    /// Print the configuration file that is equivalent to this command line, and serve nothing.
    #[arg(long)]
    pub(crate) print_config: bool,
    /// File of the access log; `-` is standard output [default: no access log]
    #[arg(long, value_name = "PATH|-")]
    pub(crate) access_log: Option<PathBuf>,
    /// Folder outside ROOT that symbolic links may lead to. May be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) follow_symlinks_into: Vec<PathBuf>,
    /// Maximum size of a request body: bytes, or with a unit as in 64K, 100M, 1G.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub(crate) max_body: u64,
    /// Time within which a client must send a request head.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_time)]
    pub(crate) head_timeout: Duration,
    /// Time for which a client may pause within a request body.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time)]
    pub(crate) body_timeout: Duration,
    /// Time for which a connection may be idle between requests.
    #[arg(long, value_name = "TIME", default_value = "75s", value_parser = positive_time)]
    pub(crate) idle_timeout: Duration,
    /// Time for which a client may accept no byte of its response.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time)]
    pub(crate) send_timeout: Duration,
}

/// Help for `--app`, with all applications that have rules.
fn about_app() -> String {
    let (last, others) = App::CHOICES.split_last().expect("there are applications");
    format!("Application whose vendor's rules apply: {} or {last}", others.join(", "))
}

/// A value in the syntax of a configuration file.
fn word<T: Word>(text: &str) -> Result<T, String> {
    let folder = std::env::current_dir().map_err(|error| error.to_string())?;
    T::parse(text, &Scope { folder: &folder }).map_err(|wrong| match wrong.help {
        Some(help) => format!("{}: {help}", wrong.says),
        None => wrong.says,
    })
}

/// A value and a path, separated by `=`.
fn pair<T: Word>(text: &str) -> Result<(T, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("expected two values with = between them")?;
    match path {
        "" => Err("the path is missing".to_owned()),
        path => Ok((word(name)?, path.into())),
    }
}

/// Two values, separated by `=`.
fn words<A: Word, B: Word>(text: &str) -> Result<(A, B), String> {
    let (a, b) = text.split_once('=').ok_or("expected two values with = between them")?;
    Ok((word(a)?, word(b)?))
}

/// Number of PHP workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerCount {
    Fixed(u16),
    Auto,
}

impl FromStr for WorkerCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count @ 1..=1024) => Ok(Self::Fixed(count)),
            _ if text == "auto" => Ok(Self::Auto),
            _ => Err("neither a number from 1 to 1024 nor auto".to_owned()),
        }
    }
}

/// Descriptors that the front inherits from the supervisor.
#[derive(Debug, Clone, Args)]
pub(crate) struct Inherited {
    /// The configuration.
    #[arg(long)]
    pub(crate) config_fd: RawFd,
    /// The credentials of the sites.
    #[arg(long)]
    pub(crate) keys_fd: RawFd,
    /// Listeners: a list for each event loop, loops separated by `;`.
    #[arg(long)]
    pub(crate) listeners: String,
    /// The sockets on which the front receives workers, one for each pool, separated by `,`.
    #[arg(long)]
    pub(crate) pool_fds: String,
    /// The pipe on which the front reports that it is ready.
    #[arg(long)]
    pub(crate) ready_fd: RawFd,
    /// The socket for the supervisor's orders.
    #[arg(long)]
    pub(crate) orders_fd: RawFd,
    /// The file with the secret of `sendoff explain`.
    #[arg(long)]
    pub(crate) explain_fd: Option<RawFd>,
    /// The counters by which fragments of scripts are purged.
    #[arg(long)]
    pub(crate) purges_fd: Option<RawFd>,
}

/// Descriptors that the process that obtains certificates inherits from the supervisor.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfAcme {
    /// The configuration.
    #[arg(long)]
    pub(crate) config_fd: RawFd,
    /// The socket to the supervisor.
    #[arg(long)]
    pub(crate) supervisor_fd: RawFd,
    /// The secrets of a node of a fleet.
    #[arg(long)]
    pub(crate) keys_fd: RawFd,
}

/// Descriptors that the master of a program inherits from the supervisor.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfProgram {
    /// The number of the pool in the configuration.
    #[arg(long)]
    pub(crate) pool: usize,
    /// The configuration.
    #[arg(long)]
    pub(crate) config_fd: RawFd,
    /// The socket to the front.
    #[arg(long)]
    pub(crate) pool_fd: RawFd,
    /// The socket on which processes accept connections.
    #[arg(long)]
    pub(crate) listener_fd: RawFd,
    /// The inode of that socket (`O_PATH`).
    #[arg(long)]
    pub(crate) inode_fd: RawFd,
    /// The folder of the pool's control group, if it has one.
    #[arg(long)]
    pub(crate) group_fd: Option<RawFd>,
    /// The counters by which fragments are purged.
    #[arg(long)]
    pub(crate) purges_fd: Option<RawFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    /// The cheapest way for each response.
    Auto,
    /// Same as auto, but workers write every large response to the client themselves.
    Direct,
    /// Files are handed over; other bytes pass through the link.
    File,
    /// Files are handed over; other bytes are in memory shared with the workers.
    Region,
    /// Every byte passes through the link.
    Relay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Snapshot {
    Lease,
    Copy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProxyField {
    #[value(name = "X-Forwarded-For")]
    XForwardedFor,
    #[value(name = "Forwarded")]
    Forwarded,
}

impl From<ProxyField> for sendoff_setting_values::ProxyField {
    fn from(field: ProxyField) -> Self {
        match field {
            ProxyField::XForwardedFor => Self::XForwardedFor,
            ProxyField::Forwarded => Self::Forwarded,
        }
    }
}

impl From<Delivery> for sendoff_setting_values::Delivery {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Auto => Self::Auto,
            Delivery::Direct => Self::Direct,
            Delivery::File => Self::File,
            Delivery::Region => Self::Region,
            Delivery::Relay => Self::Relay,
        }
    }
}

impl From<Snapshot> for sendoff_setting_values::Snapshot {
    fn from(snapshot: Snapshot) -> Self {
        match snapshot {
            Snapshot::Lease => Self::Lease,
            Snapshot::Copy => Self::Copy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_application() {
        use clap::CommandFactory;
        let mut command = Options::command();
        let help = command.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let all = about_app();
        assert!(App::CHOICES.iter().all(|app| all.contains(app)), "{all}");
        assert!(help.contains(&all), "{help}");
    }

    #[test]
    fn the_file_of_a_command_needs_no_option() {
        for command in ["run", "check"] {
            for (arguments, expected) in
                [(&[][..], CONFIG), (&["a.toml"], "a.toml"), (&["--config", "a.toml"], "a.toml")]
            {
                let line = ["sendoff", command].into_iter().chain(arguments.iter().copied());
                let file = match Options::try_parse_from(line).unwrap().command {
                    Command::Run(Run { file }) | Command::Check(Check { file, .. }) => file,
                    other => panic!("{other:?}"),
                };
                assert_eq!(file.path(), Path::new(expected));
            }
            let twice = ["sendoff", command, "a.toml", "--config", "b.toml"];
            assert!(Options::try_parse_from(twice).is_err());
        }
    }

    #[test]
    fn the_command_line_is_consistent_and_the_documented_options_are_there() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        let options = Options::try_parse_from([
            "sendoff",
            "serve",
            "/srv",
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "[::1]:80",
            "--threads",
            "2",
            "--workers",
            "3",
            "--user",
            "www-data",
            "--php-ini",
            "a=b",
            "--delivery",
            "auto",
            "--snapshot",
            "copy",
            "--fastcgi",
            "/app/=tcp:localhost:9000",
            "--sendfile-from",
            "/var/lib/app",
            "--accel",
            "/files=/var/lib/app",
            "--access-log",
            "-",
            "--head-timeout",
            "0.5",
            "--request-timeout",
            "2m",
            "--shutdown-timeout",
            "10",
        ]);
        let Command::Serve(serve) = options.unwrap().command else { panic!("expected serve") };
        assert_eq!((serve.listen.len(), serve.threads), (2, Some(2)));
        assert_eq!(serve.workers, WorkerCount::Fixed(3));
        assert_eq!(serve.head_timeout, Duration::from_millis(500));
        assert_eq!(serve.request_timeout, Duration::from_secs(120));
        assert_eq!(serve.shutdown_timeout, Duration::from_secs(10));
    }
}
