//! `sendoff serve` as a child process, and the checks at its end.

use crate::child::{collect_into, dies_with_us, exit_status};
use crate::hosted;
use crate::{
    Client, Http2, LIMIT, Request, Response, Stock, multiplexed, processes, quic, secure, wait,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A server that did not become ready.
#[derive(Debug)]
pub struct Failed {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output, which should have been the ready line.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A running server.
pub struct Server {
    process: Option<Process>,
    stock: Option<Stock>,
    addr: SocketAddr,
}

struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
    log_reader: Option<JoinHandle<()>>,
    stdout: BufReader<std::process::ChildStdout>,
    ready_line: String,
    workers: usize,
    threads: usize,
    unix_sockets: usize,
    root: PathBuf,
    unchecked: bool,
}

impl Server {
    /// Starts `sendoff serve ROOT --listen 127.0.0.1:0` with options on top, and waits until it is
    /// ready. Unless the options say otherwise it has four workers and one event loop.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start(root: &Path, options: &[&str]) -> Self {
        if std::env::var("SENDOFF_TEST_PEER").is_ok_and(|peer| peer == "stock") {
            let stock = Stock::start(root, &ini_options(options));
            return Self { process: None, addr: stock.addr(), stock: Some(stock) };
        }
        match Self::try_start(root, options) {
            Ok(server) => server,
            Err(failed) => panic!("sendoff did not start: {failed:#?}"),
        }
    }

    /// As [`start`](Self::start), when it may fail.
    ///
    /// # Errors
    /// The server ended instead; its output.
    ///
    /// # Panics
    /// If it neither becomes ready nor ends.
    pub fn try_start(root: &Path, options: &[&str]) -> Result<Self, Failed> {
        Self::try_start_as(dies_with_us(&binary(), "KILL"), root, options)
    }

    /// As [`try_start`](Self::try_start), with at most `descriptors` open files in each process
    /// (`RLIMIT_NOFILE`).
    ///
    /// # Errors
    /// The server ended instead; its output.
    ///
    /// # Panics
    /// If it neither becomes ready nor ends.
    pub fn try_start_limited(
        root: &Path,
        options: &[&str],
        descriptors: u32,
    ) -> Result<Self, Failed> {
        let mut command = dies_with_us(Path::new("prlimit"), "KILL");
        command.arg(format!("--nofile={descriptors}:{descriptors}")).arg(binary());
        Self::try_start_as(command, root, options)
    }

    fn try_start_as(mut command: Command, root: &Path, options: &[&str]) -> Result<Self, Failed> {
        let mut arguments: Vec<&str> = Vec::new();
        for (name, value) in [("--listen", "127.0.0.1:0"), ("--workers", "4"), ("--threads", "1")] {
            if !options.contains(&name) {
                arguments.extend([name, value]);
            }
        }
        arguments.extend(options);
        let certificate = secure::is_wanted().then(|| {
            let folder = runtime_folder(root);
            secure::Authority::new().issue(&["localhost", "127.0.0.1"], &folder, "server")
        });
        // TLS at the same host: clients may be in a network that reaches no other address.
        let tcp = |listen: &&&str| listen.starts_with(|first: char| first.is_ascii_digit());
        let listen = arguments.iter().skip_while(|argument| **argument != "--listen").nth(1);
        let beside = listen.filter(tcp).and_then(|listen| listen.rsplit_once(':'));
        let h3 = if quic::is_wanted() { " h3" } else { "" };
        let beside = format!("{}:0{h3}", beside.map_or("127.0.0.1", |(host, _)| host));
        if let Some(secure::Certificate { chain, key }) = &certificate {
            let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
            arguments.extend(["--tls-listen", &beside, "--tls-cert", chain, "--tls-key", key]);
        }
        let count = |name: &str| {
            let place = arguments.iter().position(|argument| *argument == name).unwrap();
            let count = arguments[place + 1];
            // With `auto` the server starts two workers per core (`min_workers`). It refuses other
            // texts itself.
            if count == "auto" { 2 * cores() } else { count.parse::<usize>().unwrap_or(0) }
        };
        let workers = if has_workers(&arguments) { count("--workers") } else { 0 };
        command.arg("serve").arg(root).args(&arguments);
        if let Some(program) = hosted::program().filter(|_| !arguments.contains(&"--php")) {
            command.args(["--php", &program]);
        }
        let server = Self::launch(command, root, workers, count("--threads"))?;
        if let Some(addr) = server.tls_addr().filter(|_| quic::is_wanted()) {
            quic::PORTS.note(addr);
        }
        Ok(server)
    }

    /// Starts `sendoff run --config CONFIG`, and waits until it is ready. The file must say
    /// `threads = 1` and listen on 127.0.0.1; `workers` is the number that it starts with. `root`
    /// is the folder of one of its sites.
    ///
    /// # Errors
    /// The server ended instead; its output.
    ///
    /// # Panics
    /// If it neither becomes ready nor ends.
    pub fn try_run(config: &Path, root: &Path, workers: usize) -> Result<Self, Failed> {
        Self::try_run_with(config, root, workers, 1)
    }

    /// As [`try_run`](Self::try_run), with a number of threads of its own.
    ///
    /// # Errors
    /// The server ended instead; its output.
    ///
    /// # Panics
    /// If it neither becomes ready nor ends.
    pub fn try_run_with(
        config: &Path,
        root: &Path,
        workers: usize,
        threads: usize,
    ) -> Result<Self, Failed> {
        let mut command = dies_with_us(&binary(), "KILL");
        command.arg("run").arg("--config").arg(config);
        Self::launch(command, root, workers, threads)
    }

    /// As [`try_run`](Self::try_run), with stock PHP programs as hosts of the workers.
    ///
    /// # Errors
    /// The server ended instead; its output.
    ///
    /// # Panics
    /// If it neither becomes ready nor ends.
    pub fn try_run_hosted(config: &Path, root: &Path, workers: usize) -> Result<Self, Failed> {
        Self::try_run_of(dies_with_us(&hosted_binary(), "KILL"), config, root, workers)
    }

    /// As [`try_run`](Self::try_run), by a command that executes a certain build of `sendoff`.
    ///
    /// # Errors
    /// The server ended instead; its output.
    ///
    /// # Panics
    /// If it neither becomes ready nor ends.
    pub fn try_run_of(
        mut command: Command,
        config: &Path,
        root: &Path,
        workers: usize,
    ) -> Result<Self, Failed> {
        command.arg("run").arg("--config").arg(config);
        Self::launch(command, root, workers, 1)
    }

    /// As [`try_run`](Self::try_run), by a command that executes the command at its end.
    ///
    /// # Errors
    /// The server ended instead; its output.
    ///
    /// # Panics
    /// If it neither becomes ready nor ends.
    pub fn try_run_by(
        mut command: Command,
        config: &Path,
        root: &Path,
        workers: usize,
    ) -> Result<Self, Failed> {
        command.arg(binary()).arg("run").arg("--config").arg(config);
        Self::launch(command, root, workers, 1)
    }

    fn launch(
        mut command: Command,
        root: &Path,
        workers: usize,
        threads: usize,
    ) -> Result<Self, Failed> {
        let mut child = command
            .env("XDG_RUNTIME_DIR", runtime_folder(root))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("setpriv (util-linux) starts the server");
        let log = Arc::default();
        let log_reader = collect_into(&log, child.stderr.take().unwrap());
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready_line = String::new();
        stdout.read_line(&mut ready_line).unwrap();
        if ready_line.is_empty() {
            let status = exit_status(&mut child, "a server that closed its output");
            log_reader.join().unwrap();
            let stderr = log.lock().unwrap().clone();
            return Err(Failed { code: status.code(), stdout: ready_line, stderr });
        }
        let addr = address_in(&ready_line);
        let tls = tls_address_in(&ready_line);
        // It may have been the port of a server that has ended.
        secure::PORTS.forget(addr);
        if let Some(tls) = tls {
            secure::PORTS.note(tls);
        }
        if multiplexed::is_wanted() {
            multiplexed::PORTS.note(if secure::is_wanted() { tls.unwrap_or(addr) } else { addr });
        }
        let mut process = Process {
            child,
            log,
            log_reader: Some(log_reader),
            stdout,
            ready_line,
            workers,
            threads,
            unix_sockets: 0,
            root: root.to_owned(),
            unchecked: false,
        };
        process.unix_sockets = process.settled_unix_sockets(threads);
        Ok(Self { process: Some(process), stock: None, addr })
    }

    /// The address that clients of the scenario use: the TLS address if scenarios run over TLS.
    pub fn addr(&self) -> SocketAddr {
        let tls = secure::is_wanted().then(|| self.tls_addr()).flatten();
        tls.unwrap_or(self.addr)
    }

    /// The address for TLS, if the server has one.
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        tls_address_in(&self.process.as_ref()?.ready_line)
    }

    /// The address for connections in the clear.
    pub fn clear_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The line it printed when it was ready.
    pub fn ready_line(&self) -> &str {
        &self.process().ready_line
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.addr())
    }

    /// A new connection of HTTP/2 in the clear.
    pub fn http2(&self) -> Http2 {
        Http2::connect(self.addr)
    }

    /// One request on a connection of its own.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> Response {
        self.connect().ask(request)
    }

    /// `GET target` on a connection of its own.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.ask(&Request::get(target))
    }

    /// The body of `GET target`, which must succeed, as text.
    ///
    /// # Panics
    /// If it does not succeed.
    #[track_caller]
    pub fn page(&self, target: &str) -> String {
        let response = self.get(target);
        response.expect(200);
        response.text()
    }

    /// The output of `sendoff explain` for a target.
    ///
    /// # Errors
    /// Its standard error if it fails.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn explain(&self, target: &str, options: &[&str]) -> Result<String, String> {
        let done = self.explain_url(&format!("http://{}{target}", self.addr), options, &[]);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
    }

    /// The output of `sendoff explain` for a URL, with these environment variables.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn explain_url(&self, url: &str, options: &[&str], env: &[(&str, &Path)]) -> Output {
        Command::new(binary())
            .args(["explain", url])
            .args(options)
            .env("XDG_RUNTIME_DIR", runtime_folder(&self.process().root))
            .envs(env.iter().copied())
            .output()
            .unwrap()
    }

    /// The output of a command to the server, such as `sendoff status`.
    ///
    /// # Errors
    /// Its standard error if it fails.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn command(&self, arguments: &[&str]) -> Result<String, String> {
        let done = Command::new(binary())
            .args(arguments)
            .arg("--socket")
            .arg(self.control_socket())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
    }

    /// The path of its control socket.
    pub fn control_socket(&self) -> PathBuf {
        let folder = runtime_folder(&self.process().root).join("sendoff");
        folder.join(format!("{}.sock", self.pid()))
    }

    /// The secret that `sendoff explain` sends.
    ///
    /// # Panics
    /// If there is none.
    pub fn secret(&self) -> String {
        let folder = runtime_folder(&self.process().root).join("sendoff");
        std::fs::read_to_string(folder.join(self.addr.to_string())).unwrap()
    }

    /// Its standard error up to now.
    pub fn log(&self) -> String {
        match &self.process {
            Some(process) => process.log.lock().unwrap().clone(),
            None => self.stock.as_ref().unwrap().log(),
        }
    }

    /// Waits until the log contains a text.
    ///
    /// # Panics
    /// If it does not come.
    #[track_caller]
    pub fn await_log(&self, text: &str) {
        let came = wait::until(LIMIT, || self.log().contains(text));
        assert!(came, "{text:?} is not in the log:\n{}", self.log());
    }

    /// The supervisor's process id.
    pub fn pid(&self) -> u32 {
        self.process().child.id()
    }

    /// The front's process id.
    pub fn front(&self) -> u32 {
        self.process().front()
    }

    /// The PHP master's process id.
    pub fn php_master(&self) -> u32 {
        self.process().php_master()
    }

    /// The workers' process ids at this moment.
    pub fn workers(&self) -> Vec<u32> {
        let children =
            |pid| processes::children(pid).into_iter().filter(|child| processes::runs(*child));
        self.process().masters().into_iter().flat_map(children).collect()
    }

    /// Waits until each of these workers has been replaced.
    ///
    /// # Panics
    /// If that takes longer than [`LIMIT`].
    #[track_caller]
    pub fn await_replacement(&self, of: &[u32]) {
        let replaced = || {
            let now = self.workers();
            now.len() == of.len() && now.iter().all(|worker| !of.contains(worker))
        };
        assert!(wait::until(LIMIT, replaced), "{of:?} became {:?}", self.workers());
    }

    /// Waits until the server, whose processes have been killed, answers a request for `page` with
    /// `text`.
    ///
    /// # Panics
    /// If that takes longer than [`LIMIT`].
    #[track_caller]
    pub fn await_page(&self, page: &str, text: &str) {
        let answered = wait::until(LIMIT, || {
            let Ok(_) = TcpStream::connect(self.addr()) else { return false };
            let answer = self.connect().try_ask(&Request::get(page));
            answer.is_ok_and(|response| response.text() == text)
        });
        assert!(answered, "{}", self.log());
    }

    /// Expects that at the end `count` processes of FastCGI applications still have links to the
    /// front.
    ///
    /// # Panics
    /// If the server is not `sendoff`.
    pub fn expect_linked_processes(&mut self, count: usize) {
        let process = self.process.as_mut().unwrap();
        process.unix_sockets += count * 2 * process.threads;
    }

    /// Sends a signal to the supervisor.
    pub fn signal(&self, signal: Signal) {
        processes::signal(self.pid(), signal);
    }

    /// Waits until the supervisor ends, in any way. The only check afterwards is that no process is
    /// left.
    ///
    /// # Panics
    /// If it does not end, or its children outlive it.
    pub fn await_end(mut self) -> (ExitStatus, String) {
        let family = self.process().family();
        let process = self.process.as_mut().unwrap();
        process.unchecked = true;
        let status = exit_status(&mut process.child, "the supervisor");
        process.log_reader.take().unwrap().join().unwrap();
        await_end_of(&family);
        (status, self.log())
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("this scenario looks into sendoff itself")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.is_some() {
            multiplexed::PORTS.forget(self.addr());
            quic::PORTS.forget(self.addr());
        }
        let Some(process) = &mut self.process else { return };
        if process.unchecked {
            let _ = process.child.kill();
            let _ = process.child.wait();
        } else if std::thread::panicking() {
            let _ = process.child.kill();
            let _ = process.child.wait();
            eprintln!("--- the server's log ---\n{}", process.log.lock().unwrap());
        } else {
            process.finish();
        }
    }
}

/// The time in which a front gives back what a client has left behind, on a quiet machine.
const SETTLING: Duration = Duration::from_millis(300);

impl Process {
    fn masters(&self) -> Vec<u32> {
        let mut children = processes::children(self.child.id());
        children.retain(|child| processes::is_php(*child) && processes::runs(*child));
        children
    }

    fn php_master(&self) -> u32 {
        wait::for_some("the PHP master", || self.masters().first().copied())
    }

    fn front(&self) -> u32 {
        wait::for_some("the front", || {
            let mut children = processes::children(self.child.id()).into_iter();
            children.find(|child| is_front(*child) && processes::runs(*child))
        })
    }

    /// The supervisor and everything below it, each with its start time.
    fn family(&self) -> Vec<(u32, Option<u64>)> {
        let mut all = processes::descendants(self.child.id());
        all.push(self.child.id());
        all.into_iter().map(|pid| (pid, processes::started(pid))).collect()
    }

    /// The number of UNIX sockets of the front when all workers have arrived: per worker a link for
    /// each event loop, and a guard.
    fn settled_unix_sockets(&self, threads: usize) -> usize {
        let front = self.front();
        let least = self.workers * (threads + 1);
        let mut counts = [0, 0, 1];
        wait::until(LIMIT, || {
            counts.rotate_left(1);
            counts[2] = processes::unix_sockets(front);
            counts[0] >= least && counts[0] == counts[1] && counts[1] == counts[2]
        });
        counts[2]
    }

    /// Ends the server and checks what must hold after every scenario.
    fn finish(&mut self) {
        // A front or master that the scenario has killed may still be starting again.
        let front = self.front();
        let mut left = Vec::new();
        let mut is_clean = || {
            left = self.leaks(front);
            left.is_empty()
        };
        // Applications keep idle connections for seconds; a request that none waits for has ended by
        // then.
        let clean = wait::until(SETTLING, &mut is_clean) || {
            processes::end_connections_to_applications(front);
            wait::until(LIMIT, &mut is_clean)
        };
        let family = self.family();
        processes::signal(self.child.id(), Signal::TERM);
        let status = exit_status(&mut self.child, "the supervisor after SIGTERM");
        await_end_of(&family);
        self.log_reader.take().unwrap().join().unwrap();
        let log = self.log.lock().unwrap().clone();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(clean, "the front did not give back: {left:#?}\n{log}");
        assert_eq!(status.code(), Some(0), "exit after SIGTERM: {status}\n{log}");
        assert_eq!(rest, "", "stdout is for the ready line only");
        assert!(!log.contains("panicked"), "a panic:\n{log}");
    }

    /// Descriptors that the front should not hold when it has no client.
    fn leaks(&self, front: u32) -> Vec<String> {
        let mut leaks = Vec::new();
        let connections = processes::connections(front);
        if connections > 0 {
            leaks.push(format!("{connections} connections"));
        }
        let unix = processes::unix_sockets(front);
        if unix > self.unix_sockets {
            leaks.push(format!("{unix} UNIX sockets, {} at the start", self.unix_sockets));
        }
        // Request bodies are in unlinked files. (Deleted files of the site may stay open in a
        // cache, and copies of held files stay in memory up to a limit.)
        let root = self.root.to_string_lossy();
        let is_body = |target: &String| {
            target.ends_with(" (deleted)")
                && !target.contains(&*root)
                && !target.starts_with(processes::BLOB)
                && !target.starts_with(processes::SNAPSHOT)
                && !target.starts_with(processes::PURGES)
                && !processes::RING.iter().any(|file| target.starts_with(file))
                // The listening socket of a pool with a program.
                && !target.ends_with(".pool (deleted)")
                // The journal of kept pages and the note of unsent purges, whose folder the
                // scenario may have removed before the server ends.
                && !target.ends_with("/purges (deleted)")
                && !target.contains("/fleet.unsent.")
        };
        leaks.extend(processes::descriptors(front).into_iter().filter(is_body));
        // The front keeps blobs as long as their worker does, which may be a process of php-fpm.
        let blobs = processes::blobs(front);
        if !blobs.is_empty() {
            let others = processes::descendants(std::process::id()).into_iter();
            let others = others.filter(|pid| *pid != front);
            let kept: Vec<_> = others.flat_map(processes::blobs).collect();
            let lost = blobs.iter().filter(|blob| !kept.contains(blob));
            leaks.extend(lost.map(|blob| format!("{blob:?}")));
        }
        leaks
    }
}

fn is_front(pid: u32) -> bool {
    processes::program(pid) == "sendoff"
        && processes::arguments(pid).first().is_some_and(|title| title == "sendoff: front")
}

/// The folder of the server's secret: beside the root, inside the site's temporary folder.
fn runtime_folder(root: &Path) -> PathBuf {
    root.with_file_name("run")
}

/// The output of `sendoff` with these arguments, where servers of `root` leave their sockets.
///
/// # Errors
/// Its standard error if it fails.
///
/// # Panics
/// If it cannot be run.
pub fn sendoff(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(binary());
    command.args(arguments).env("XDG_RUNTIME_DIR", runtime_folder(root));
    let done = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
}

/// The build of `sendoff` to test. In a run with hosted PHP it is [`hosted_binary`].
pub fn binary() -> PathBuf {
    if hosted::program().is_some() { hosted_binary() } else { built() }
}

/// A build of `sendoff` with the module for stock PHP programs beside it, and without `sendoff-php`.
pub fn hosted_binary() -> PathBuf {
    hosted::binary(&built())
}

/// The newest build of `sendoff` with a `sendoff-php` beside it, in the target folder of the tests.
pub fn built() -> PathBuf {
    let us = std::env::current_exe().unwrap();
    let mut candidates: Vec<_> = us
        .ancestors()
        .flat_map(|folder| [folder.join("sendoff"), folder.join("release").join("sendoff")])
        .filter(|path| path.is_file() && path.with_file_name("sendoff-php").is_file())
        .collect();
    candidates.sort_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    candidates.pop().unwrap_or_else(|| {
        panic!("there is no sendoff with sendoff-php beside it to test; run: make build")
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// True if the server has PHP workers with these options.
fn has_workers(options: &[&str]) -> bool {
    !options.windows(2).any(|pair| {
        pair[0] == "--fastcgi" && (pair[1].starts_with(".php=") || pair[1].starts_with("/="))
    })
}

/// The value of every `--php-ini`.
fn ini_options<'a>(options: &[&'a str]) -> Vec<&'a str> {
    options.windows(2).filter(|pair| pair[0] == "--php-ini").map(|pair| pair[1]).collect()
}

fn tls_address_in(ready_line: &str) -> Option<SocketAddr> {
    let (_, rest) = ready_line.split_once("https://")?;
    Some(rest.split('/').next().unwrap().parse().expect(ready_line))
}

fn address_in(ready_line: &str) -> SocketAddr {
    let (_, rest) = ready_line.split_once("http://").expect(ready_line);
    rest.split('/').next().unwrap().parse().expect(ready_line)
}

/// Waits until none of the processes runs any more.
fn await_end_of(family: &[(u32, Option<u64>)]) {
    let mut left = Vec::new();
    wait::until(LIMIT, || {
        left = family
            .iter()
            .filter(|(pid, time)| {
                time.is_some() && processes::started(*pid) == *time && processes::runs(*pid)
            })
            .collect();
        left.is_empty()
    });
    assert!(left.is_empty(), "left behind: {left:?}");
}
