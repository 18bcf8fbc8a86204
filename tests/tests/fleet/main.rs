//! Several nodes act as one by an engine that they share (docs/fleet.md): a real Redis or Valkey.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod away;
mod certificates;
mod chaos;
mod limits;
mod purges;
mod records;
mod tickets;

use std::fs;
use std::net::SocketAddr;

use sendoff_tests::{Client, Request, Response, Server, Site, wait};
use serde_json::Value;

/// Counts its runs. Its query may name fields of the response.
const PAGE: &str = r"<?php
foreach ((array) ($_GET['head'] ?? []) as $field) header($field, false);
file_put_contents(__DIR__ . '/../runs', '.', FILE_APPEND);
echo 'run ', strlen(file_get_contents(__DIR__ . '/../runs'));
";

/// A node of the fleet `shop`.
struct Node {
    site: Site,
    server: Server,
}

impl Node {
    fn start(engine: &str) -> Self {
        Self::with(Site::with("page.php", PAGE), engine, "")
    }

    /// `keys`: further keys of `[fleet]`.
    fn with(site: Site, engine: &str, keys: &str) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), site, engine, keys)
    }

    fn at(addr: SocketAddr, site: Site, engine: &str, keys: &str) -> Self {
        let text = format!(
            "listen = '{addr}'\nthreads = 2\npage_cache_folder = 'pages'\n\
             [fleet]\nname = 'shop'\nengine = '{engine}'\n{keys}\n[[pool]]\nworkers = 1\n\
             [[site]]\nname = 'shop'\nroot = 'root'\npurge_from = '127.0.0.1'\npage_cache = '10m'\n\
             [[site.route]]\npath = '/metrics'\nmetrics = true\nallow_from = '127.0.0.1'\n"
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server = Server::try_run_with(&config, site.root(), 1, 2);
        Self { site, server: server.unwrap_or_else(|failed| panic!("{failed:#?}")) }
    }

    /// Two nodes that the engine serves.
    fn two(engines: [&str; 2]) -> [Self; 2] {
        let nodes = engines.map(Self::start);
        nodes.iter().for_each(Self::await_engine);
        nodes
    }

    /// Ends the node, and starts it again after `between`. Pages of another port are others.
    fn restart(self, engine: &str, between: impl FnOnce()) -> Self {
        let Self { site, server } = self;
        let addr = server.clear_addr();
        drop(server);
        between();
        Self::at(addr, site, engine, "")
    }

    /// Makes the node keep a page, and returns its text.
    fn keep(&self, target: &str) -> String {
        self.keep_for(&Request::get(target))
    }

    fn keep_for(&self, request: &Request) -> String {
        let kept = || Some(self.server.ask(request)).filter(is_hit);
        wait::for_some("a kept page", kept).text()
    }

    /// True if the node has a page with this text.
    fn keeps(&self, target: &str, text: &str) -> bool {
        let response = self.server.get(target);
        is_hit(&response) && response.text() == text
    }

    fn purge(&self, target: &str) {
        let response = self.server.ask(&Request::new("PURGE", target));
        assert_eq!(response.status(), 200, "{}", response.text());
    }

    /// The member `fleet` of `sendoff status --json`.
    fn status(&self) -> Value {
        let text = self.server.command(&["status", "--json"]).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["fleet"].clone()
    }

    fn figure(&self, name: &str) -> u64 {
        self.status()[name].as_u64().unwrap()
    }

    fn await_engine(&self) {
        assert!(self.await_status(|status| status["why"].is_null()), "{}", self.status());
    }

    fn await_away(&self) {
        assert!(self.await_status(|status| status["why"].is_string()), "{}", self.status());
    }

    fn await_status(&self, is_so: impl Fn(&Value) -> bool) -> bool {
        wait::until(sendoff_tests::LIMIT, || is_so(&self.status()))
    }

    fn log_lines(&self, text: &str) -> usize {
        self.server.log().lines().filter(|line| line.contains(text)).count()
    }

    /// The number of files that tell of unsent purges, and of those that are not empty.
    fn notes(&self) -> (usize, usize) {
        let files = fs::read_dir(self.site.outside("pages")).unwrap().flatten();
        let notes = files.filter(|file| {
            let name = file.file_name().into_string().unwrap();
            name.starts_with("fleet.unsent.") && !name.ends_with(".new")
        });
        let lens = notes.filter_map(|note| Some(note.metadata().ok()?.len()));
        lens.fold((0, 0), |(all, unsent), len| (all + 1, unsent + usize::from(len > 0)))
    }

    fn bodies(&self) -> usize {
        let files = fs::read_dir(self.site.outside("pages")).unwrap();
        let names = files.map(|file| file.unwrap().file_name());
        names.filter(|name| name.as_encoded_bytes().ends_with(b".body")).count()
    }
}

fn is_hit(response: &Response) -> bool {
    response.header("Cache-Status").is_some_and(|status| status.starts_with("sendoff; hit"))
}

/// A client that has to wait for nothing.
fn connect(node: &Node) -> Client {
    node.server.connect()
}
