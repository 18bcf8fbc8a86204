//! The example site in Chromium, over HTTP/2 and HTTP/3; a WebSocket.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command};

use sendoff_tests::{
    Authority, LIMIT, Progress, Request, Server, Site, dies_with_us, repository, wait,
};
use serde_json::{Value, json};

/// A headless browser, driven by the DevTools protocol over two pipes.
struct Browser {
    process: Child,
    commands: File,
    messages: BufReader<File>,
    /// The session of the only page.
    session: Option<String>,
    number: u64,
    /// Messages that nothing was waiting for.
    events: VecDeque<Value>,
}

impl Browser {
    fn start(site: &Site) -> Self {
        Self::start_with(site, &["--disable-quic"])
    }

    fn start_with(site: &Site, options: &[&str]) -> Self {
        let (commands, messages) = (site.outside("commands"), site.outside("messages"));
        for pipe in [&commands, &messages] {
            assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }
        let process = dies_with_us("sh".as_ref(), "KILL")
            .arg("-c")
            .arg(
                "in=$0 out=$1 profile=$2; shift 2; exec chromium --headless --no-sandbox --disable-gpu \
                 --ignore-certificate-errors --user-data-dir=\"$profile\" --remote-debugging-pipe \"$@\" \
                 3<\"$in\" 4>\"$out\" 2>\"$profile.log\"",
            )
            .args([&commands, &messages, &site.outside("profile")])
            .args(options)
            .env("HOME", site.outside(""))
            .spawn()
            .unwrap();
        let commands = File::options().write(true).open(commands).unwrap();
        let messages = BufReader::new(File::open(messages).unwrap());
        let mut browser =
            Self { process, commands, messages, session: None, number: 0, events: VecDeque::new() };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method and returns its result.
    #[track_caller]
    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.number += 1;
        let number = self.number;
        let mut message = json!({ "id": number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.receive();
            if answer["id"] == json!(number) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.events.push_back(answer);
        }
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.messages.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "Chromium has ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Loads a page, and returns the events of errors.
    fn open(&mut self, url: &str) -> Vec<Value> {
        self.call("Page.navigate", &json!({ "url": url }));
        let mut events = Vec::new();
        loop {
            let event = self.events.pop_front().unwrap_or_else(|| self.receive());
            let is_loaded = event["method"] == "Page.loadEventFired";
            events.push(event);
            if is_loaded {
                break;
            }
        }
        // Collects the events that came in between.
        self.evaluate("1");
        events.extend(self.events.drain(..));
        events.retain(|event| {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" | "Network.loadingFailed" => true,
                "Runtime.consoleAPICalled" => params["type"] == "error",
                "Log.entryAdded" => params["entry"]["level"] == "error",
                _ => false,
            }
        });
        events
    }

    /// The value of a JavaScript expression in the page, awaited.
    #[track_caller]
    fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", &params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The script that finds what WCAG forbids (`tools/axe`).
fn axe() -> String {
    let printed = Command::new(repository::root().join("tools/axe")).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    fs::read_to_string(String::from_utf8(printed.stdout).unwrap().trim_end()).unwrap()
}

/// The rules of WCAG 2.2, levels A and AA, that the page breaks, each with the first element that
/// breaks it.
const BROKEN_RULES: &str = "(async () => {
    const levels = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
    const { violations, passes } = await axe.run({ runOnly: levels });
    if (passes.length < 10) return ['only ' + passes.length + ' rules were tried'];
    return violations.map(({ id, help, nodes }) => id + ': ' + help + ': ' + nodes[0].html);
})()";

/// A copy, because its scripts write beside themselves.
fn example() -> Site {
    let site = Site::new();
    let from = repository::root().join("examples/site");
    let copied = Command::new("cp").arg("-r").arg(from.join(".")).arg(site.root()).status();
    assert!(copied.unwrap().success());
    site
}

/// The checksum of the response that a page gets when it fetches `URL`.
const FETCH: &str = "(async () => {
    const body = await (await fetch('URL')).arrayBuffer();
    const sum = await crypto.subtle.digest('SHA-256', body);
    return Array.from(new Uint8Array(sum), byte => byte.toString(16).padStart(2, '0')).join('');
})()";

const UPLOAD: &str = "(async () => {
    const form = new FormData();
    form.append('file', new Blob([new Uint8Array(3000000).fill(65)]), 'large.txt');
    const response = await fetch('URL', { method: 'POST', body: form });
    return response.status + ' ' + (await response.text()).length;
})()";

/// The open page of the example site gets whole downloads, one and many at a time, and its upload
/// arrives.
fn assert_transfers(browser: &mut Browser, site: &Site, server: &Server) {
    for how in ["readfile", "echo"] {
        let path = format!("/download.php?how={how}");
        let whole = site.write_at(site.outside("download"), &server.get(&path).body);
        assert_eq!(fs::metadata(&whole).unwrap().len(), 5 << 20);
        let sum = Command::new("sha256sum").arg(&whole).output().unwrap();
        let sum = String::from_utf8(sum.stdout).unwrap()[..64].to_owned();
        let fetch = FETCH.replace("URL", &path);
        assert_eq!(browser.evaluate(&fetch), sum.as_str(), "{how}");
        let many = format!("Promise.all(Array.from({{ length: 20 }}, () => {fetch}))");
        assert_eq!(browser.evaluate(&many), json!(vec![sum; 20]), "{how}");
    }
    let answered = browser.evaluate(&UPLOAD.replace("URL", "/upload.php"));
    assert!(answered.as_str().unwrap().starts_with("200 "), "{answered}");
}

#[test]
#[ignore = "heavy: make test-heavy; Chromium"]
fn the_example_site_over_http_2() {
    let _progress = Progress::new(0, "pages in Chromium");
    let site = example();
    let server = Server::start(site.root(), &["--tls-listen", "127.0.0.1:0"]);
    let base = format!("https://localhost:{}", server.tls_addr().unwrap().port());
    let mut browser = Browser::start(&site);
    let (mut open, mut seen) = (VecDeque::from([format!("{base}/")]), BTreeSet::new());
    while let Some(url) = open.pop_front() {
        if !seen.insert(url.clone()) {
            continue;
        }
        let wrong = browser.open(&url);
        assert!(wrong.is_empty(), "{url}: {wrong:#?}");
        // The page, and the files that belong to it.
        let protocols = browser.evaluate(
            "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
                .map(entry => entry.nextHopProtocol)",
        );
        let protocols = protocols.as_array().unwrap();
        assert!(
            !protocols.is_empty() && protocols.iter().all(|one| one == "h2"),
            "{url}: {protocols:?}"
        );
        assert!(browser.evaluate("document.title.length > 0").as_bool().unwrap(), "{url}");
        let links = browser.evaluate(
            "Array.from(document.links).filter(link => link.host == location.host).map(link => link.href.split('#')[0])",
        );
        let links = links.as_array().unwrap().iter().map(|link| link.as_str().unwrap().to_owned());
        open.extend(links.filter(|link| !link.contains("?how=")));
    }
    assert!(seen.len() >= 4, "{seen:?}");
    assert_transfers(&mut browser, &site, &server);
    // The site has an error page for missing pages.
    browser.open(&format!("{base}/no/such/page"));
    assert_eq!(
        browser.evaluate("performance.getEntriesByType('navigation')[0].responseStatus"),
        404
    );
    let page = server.ask(&Request::get("/no/such/page"));
    assert_eq!(page.status(), 404);
    drop(browser);
}

/// The hash of a certificate's public key: Chromium speaks QUIC to no other unknown certificate.
const KEY_HASH: &str = "openssl x509 -in \"$0\" -noout -pubkey | openssl pkey -pubin -outform der | \
    openssl dgst -sha256 -binary | base64";

#[test]
#[ignore = "heavy: make test-heavy; Chromium"]
fn the_example_site_over_http_3() {
    let site = example();
    let keys = Authority::new().issue(&["site.test"], &site.outside("keys"), "site");
    let (chain, key) = (keys.chain.to_str().unwrap(), keys.key.to_str().unwrap());
    let options = ["--tls-listen", "127.0.0.1:0 h3", "--tls-cert", chain, "--tls-key", key];
    let server = Server::start(site.root(), &options);
    let host = format!("site.test:{}", server.tls_addr().unwrap().port());
    let hash = Command::new("sh").args(["-c", KEY_HASH, chain]).output().unwrap().stdout;
    let hash = String::from_utf8(hash).unwrap();
    let mut browser = Browser::start_with(
        &site,
        &[
            "--host-resolver-rules=MAP site.test 127.0.0.1",
            &format!("--ignore-certificate-errors-spki-list={}", hash.trim()),
            &format!("--origin-to-force-quic-on={host}"),
        ],
    );
    let wrong = browser.open(&format!("https://{host}/"));
    assert!(wrong.is_empty(), "{wrong:#?}");
    let protocol = "performance.getEntriesByType('navigation')[0].nextHopProtocol";
    assert_eq!(browser.evaluate(protocol), "h3");
    assert_transfers(&mut browser, &site, &server);
}

/// A WebSocket server that sends each message back.
const WEBSOCKETS: &str = r"
import asyncio, os, sys, websockets
os.umask(0)
async def echo(socket):
    async for message in socket:
        await socket.send(message)
async def main():
    async with websockets.unix_serve(echo, sys.argv[1]):
        await asyncio.Future()
asyncio.run(main())
";

/// Messages there and back, then the end in order.
const ECHO: &str = "new Promise((resolve) => {
    const socket = new WebSocket(location.origin.replace('https', 'wss') + '/socket');
    let received = 0;
    socket.onopen = () => socket.send('x'.repeat(200000));
    socket.onmessage = ({ data }) => {
        received += data.length;
        if (received < 1000000) socket.send(data); else socket.close(1000);
    };
    socket.onclose = ({ code }) => resolve(code + ' ' + received);
})";

#[test]
#[ignore = "heavy: make test-heavy; Chromium"]
fn a_websocket_over_http_2() {
    let site = Site::with("index.html", "a page");
    let socket = site.outside("echo.sock");
    let script = site.write_at(site.outside("echo.py"), WEBSOCKETS);
    let mut echo =
        dies_with_us("/usr/bin/python3".as_ref(), "KILL").args([&script, &socket]).spawn().unwrap();
    let config = site.write_at(
        site.outside("sendoff.toml"),
        format!(
            "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\naccess_log = 'access.log'\n[[pool]]\nworkers = 1\n\
             [[site]]\nroot = 'root'\ntls = 'self-signed'\n\
             [[site.route]]\npath = '/socket'\nproxy = 'http://unix:{}'\n",
            socket.display()
        ),
    );
    let server = Server::try_run(&config, site.root(), 1).unwrap_or_else(|why| panic!("{why:#?}"));
    assert!(wait::until(LIMIT, || socket.exists()), "no echo");
    let mut browser = Browser::start(&site);
    browser.open(&format!("https://localhost:{}/", server.tls_addr().unwrap().port()));
    for _ in 0..3 {
        assert_eq!(browser.evaluate(ECHO), "1000 1000000");
    }
    drop(browser);
    let is_logged = || {
        let log = fs::read_to_string(site.outside("access.log")).unwrap_or_default();
        log.matches("\"CONNECT /socket HTTP/2.0\" 200").count() == 3
    };
    assert!(wait::until(LIMIT, is_logged), "not over HTTP/2");
    let _ = echo.kill();
    let _ = echo.wait();
}

#[test]
#[ignore = "heavy: make test-heavy; Chromium, npm"]
fn the_example_site_is_accessible_and_fits_phones() {
    let site = example();
    let server = Server::start(site.root(), &[]);
    let base = format!("http://{}", server.addr());
    // The list of responses has something to show.
    server.get("/download.php?how=echo");
    let axe = axe();
    let mut browser = Browser::start(&site);
    for (width, scheme) in [(375, "light"), (375, "dark"), (1280, "light"), (1280, "dark")] {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
        for path in ["/", "/download.php", "/upload.php", "/responses.php", "/no/such/page"] {
            let wrong = browser.open(&format!("{base}{path}"));
            assert!(wrong.is_empty() || path == "/no/such/page", "{path}: {wrong:#?}");
            // The page's explanation of itself is hidden at first.
            browser
                .evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
            browser.evaluate(&axe);
            let broken = browser.evaluate(BROKEN_RULES);
            assert_eq!(broken, json!([]), "{path} at {width} pixels, {scheme}");
            let page = browser.evaluate("document.documentElement.scrollWidth");
            let room = browser.evaluate("document.documentElement.clientWidth");
            assert_eq!(page, room, "{path} is wider than a window of {width} pixels");
        }
    }
}
