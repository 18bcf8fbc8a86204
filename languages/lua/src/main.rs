//! `sendoff-lua`: a FastCGI application that answers with Lua scripts. The same scripts can run in
//! the server (`docs/lua.md`).
//!
//! ```text
//!  main ──▶ serve (threads, connections, the end) ──▶ request (parameters to a request)
//!                                                 ──▶ respond (runs the scripts, answers)
//! ```
//!
//! Each thread has a Lua state and serves one connection at a time. The threads share the sender of
//! files and the dictionary of the scripts.
#![forbid(unsafe_code)]

mod messages;
mod request;
mod respond;
mod serve;

use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use sendoff_lua_host::SharedByScripts;
use sendoff_sys::fragments::Fragments;
use sendoff_worker::listener;

/// Maximum number of connections in the backlog.
const BACKLOG: i32 = 512;

/// Answers FastCGI requests with Lua scripts written for lighttpd's mod_magnet.
#[derive(Debug, Parser)]
#[command(name = "sendoff-lua", version)]
struct Options {
    /// Address for web servers: `/path/of/socket` or `host:port` [default: descriptor 0, if it is a
    /// listening socket].
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<String>,

    /// Permissions of a UNIX socket.
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = mode)]
    socket_mode: u32,

    /// Maximum number of requests that are answered at a time.
    #[arg(long, value_name = "N", default_value_t = processors(), value_parser = threads)]
    threads: usize,

    /// Time limit for open requests after SIGTERM, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    stop_timeout: u64,

    /// Memory in MiB for fragments that the threads share, from 8 to 4096, unless the pool has some;
    /// 0: none.
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = fragments)]
    fragments: usize,

    /// Scripts that every request runs, in this order. Without them each request runs the script
    /// that the web server names in SCRIPT_FILENAME; its name must end in `.lua`.
    #[arg(value_name = "SCRIPT")]
    scripts: Vec<PathBuf>,
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "three octal digits are wanted, such as 660".to_owned())
}

fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1024).contains(number));
    number.ok_or_else(|| "a number from 1 to 1024 is wanted".to_owned())
}

fn fragments(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number == 0 || (8..=4096).contains(number));
    number.ok_or_else(|| "0, or a number from 8 to 4096 is wanted".to_owned())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            messages::say(&why);
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), String> {
    let listener = listen(&options)?;
    let mut scripts = Vec::new();
    for script in &options.scripts {
        let whole = script.canonicalize();
        scripts.push(whole.map_err(|error| format!("{}: {error}", script.display()))?);
    }
    messages::start();
    let stop_timeout = Duration::from_secs(options.stop_timeout);
    let shared = SharedByScripts::of_process(memory(options.fragments)?);
    serve::run(listener, options.threads, scripts, shared, stop_timeout)
}

/// The fragments of the pool, or memory of this size in MiB for fragments.
fn memory(mebibytes: usize) -> Result<Option<Fragments>, String> {
    let create = || (mebibytes > 0).then(|| Fragments::create(mebibytes << 20).map(|(own, _)| own));
    let fragments = Fragments::inherited().or_else(create).transpose();
    fragments.map_err(|error| format!("no fragments can be kept: {error}"))
}

/// The listening socket, opened or inherited.
fn listen(options: &Options) -> Result<OwnedFd, String> {
    let Some(address) = &options.bind else {
        let inherited = rustix::stdio::stdin();
        if !listener::is_listener(inherited) {
            return Err("descriptor 0 is no listening socket: --bind ADDRESS makes one".to_owned());
        }
        return inherited.try_clone_to_owned().map_err(|error| error.to_string());
    };
    let address = address.strip_prefix("unix:").unwrap_or(address);
    let failed = |error: io::Error| format!("cannot listen on {address}: {error}");
    let socket = listener::listen(address, BACKLOG).map_err(failed)?;
    let is_unix = PathBuf::from(address);
    if std::fs::symlink_metadata(&is_unix).is_ok() {
        let permissions = Permissions::from_mode(options.socket_mode);
        std::fs::set_permissions(&is_unix, permissions).map_err(failed)?;
    }
    Ok(socket)
}
