//! Pages that include fragments (docs/esi.md): each part is kept by itself, and every client gets
//! its own whole page.

use std::fs;

use sendoff_tests::{Request, Response, Server, Site, processes, repository, wait};

use crate::is_hit;

/// Asks for assembly. The page itself is kept for ten minutes.
pub(super) const KEPT: &str = "<?php header('Surrogate-Control: content=\"ESI/1.0\"'); header('Cache-Control: max-age=600'); ?>";

/// Asks for assembly, and is made for each request.
const FRESH: &str = "<?php header('Surrogate-Control: content=\"ESI/1.0\"'); ?>";

/// A fragment that counts its runs, names its user, and answers as its query demands.
pub(super) const FRAGMENT: &str = r"<?php
$name = $_GET['name'] ?? 'x';
file_put_contents(__DIR__ . '/../runs-' . $name, '.', FILE_APPEND);
foreach ((array) ($_GET['h'] ?? []) as $field) header($field, false);
http_response_code((int) ($_GET['status'] ?? 200));
if (isset($_GET['dies'])) { echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9); }
if (isset($_GET['sleeps'])) sleep(60);
echo '(', $name, ' run ', strlen(file_get_contents(__DIR__ . '/../runs-' . $name)), ' user ', $_COOKIE['user'] ?? '-',
    str_repeat('x', (int) ($_GET['size'] ?? 0)), ')';
";

/// A fragment that is kept.
const MENU: &str = "<esi:include src='/fragment.php?name=menu&h[]=Cache-Control:+max-age=600'/>";

/// A fragment of each client.
const CART: &str = "<esi:include src='/fragment.php?name=cart'/>";

pub(super) struct Assembling {
    pub(super) site: Site,
    pub(super) server: Server,
}

impl Assembling {
    fn start(pages: &[(&str, &str)]) -> Self {
        Self::with(pages, "")
    }

    /// `lines` are about the site.
    pub(super) fn with(pages: &[(&str, &str)], lines: &str) -> Self {
        let site = Site::with("fragment.php", FRAGMENT);
        for (name, text) in pages {
            site.write(name, text);
        }
        Self::serve(site, lines)
    }

    fn serve(site: Site, lines: &str) -> Self {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\ntrusted_proxies = ['127.0.0.1']\npage_cache_folder = 'pages'\n[[pool]]\nworkers = 3\n\
             [[site]]\nroot = 'root'\nesi = true\npage_cache = 'http'\n{lines}\n"
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server = Server::try_run(&config, site.root(), 3);
        let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
        Self { site, server }
    }

    pub(super) fn runs(&self, name: &str) -> usize {
        fs::read(self.site.outside(&format!("runs-{name}"))).map_or(0, |runs| runs.len())
    }

    /// The page, whose markup no client sees.
    pub(super) fn get(&self, target: &str, cookie: &str) -> Response {
        let request = Request::get(target);
        let response = self.server.ask(&match cookie {
            "" => request,
            cookie => request.header("Cookie", cookie),
        });
        assert!(!response.text().contains("<esi:"), "{}", response.text());
        assert_eq!(response.header("Surrogate-Control"), None);
        response
    }

    fn text(&self, target: &str) -> String {
        let response = self.get(target, "");
        assert_eq!(response.status(), 200, "{}", self.server.log());
        let text = response.text();
        assert_eq!(response.header("Content-Length"), Some(&*text.len().to_string()));
        text
    }

    /// Waits until the page itself comes from the cache.
    fn keep(&self, target: &str) -> String {
        wait::for_some("a kept page", || Some(self.get(target, "")).filter(is_hit)).text()
    }
}

#[test]
fn a_kept_page_has_kept_and_fresh_fragments() {
    let page = format!("{KEPT}<h1>{MENU}</h1><p>{CART}</p>");
    let site = Assembling::start(&[("index.php", &page)]);
    let first = site.text("/");
    assert_eq!(first, "<h1>(menu run 1 user -)</h1><p>(cart run 1 user -)</p>");
    site.keep("/");
    let (menu, cart) = (site.runs("menu"), site.runs("cart"));
    let user = site.get("/", "user=ann");
    assert!(is_hit(&user));
    let expected =
        format!("<h1>(menu run {menu} user -)</h1><p>(cart run {} user ann)</p>", cart + 1);
    assert_eq!(user.text(), expected);
    assert_eq!((site.runs("menu"), site.runs("cart")), (menu, cart + 1));
}

#[test]
fn a_page_that_is_not_kept_has_fragments() {
    let page = format!("{FRESH}a{MENU}b{CART}c<esi:remove>d</esi:remove><!--esi e--><!-- f -->");
    let site = Assembling::start(&[("index.php", &page)]);
    assert_eq!(site.text("/"), "a(menu run 1 user -)b(cart run 1 user -)c e<!-- f -->");
    let again = wait::for_some("a kept fragment", || {
        let (before, text) = (site.runs("menu"), site.text("/"));
        (site.runs("menu") == before).then_some(text)
    });
    assert!(again.starts_with("a(menu run "), "{again}");
    // A form is answered with a page, too; its fragments are requested by GET.
    let form = site.server.ask(&Request::post("/", "text/plain", "x"));
    assert!(form.text().contains("(cart run "), "{}", form.text());
}

/// The fragment leaves as a range of the cache's file, the page around it in pieces.
#[test]
fn long_pages_and_fragments_arrive_exactly() {
    let text = "0123456789abcde\n".repeat(8 << 10);
    let include =
        "<esi:include src='/fragment.php?name=long&size=3000000&h[]=Cache-Control:+max-age=600'/>";
    let page = format!("{KEPT}{text}{include}{text}{include}{text}");
    let site = Assembling::start(&[("index.php", &page)]);
    let long = |run: &str| format!("(long run {run} user -{})", "x".repeat(3_000_000));
    let expected = |run: &str| {
        let long = long(run);
        format!("{text}{long}{text}{long}{text}")
    };
    wait::for_some("kept parts", || {
        let (before, response) = (site.runs("long"), site.get("/", ""));
        let is_kept = is_hit(&response) && site.runs("long") == before;
        is_kept.then(|| assert!(response.text() == expected(&before.to_string())))
    });
}

#[test]
fn only_an_application_asks_for_assembly() {
    let page = format!("a{CART}b");
    let echo = "<?php foreach (['Surrogate-Control', 'X-LiteSpeed-Cache-Control'] as $name) header($name . ': ' . ($_GET['c'] ?? 'x'));\n\
                echo $_SERVER['HTTP_SURROGATE_CAPABILITY'] ?? 'none', ' ', $_GET['b'] ?? '';";
    let site = Assembling::start(&[("plain.php", &page), ("echo.php", echo)]);
    for target in ["/plain.php", "/plain.php?a"] {
        let ask = Request::get(target)
            .header("Surrogate-Control", "content=\"ESI/1.0\"")
            .header("Surrogate-Capability", "client=\"ESI/1.0\"")
            .header("X-LiteSpeed-Cache-Control", "esi=on");
        assert_eq!(site.server.ask(&ask).text(), page);
    }
    // The word of a plugin counts only where plugins of LSCache are obeyed.
    let markup = "/echo.php?c=esi=on&b=%3Cesi:include+src=%22/fragment.php%22/%3E";
    assert!(site.server.get(markup).text().contains("<esi:include"));
    let ask = Request::get("/echo.php").header("Surrogate-Capability", "client=\"ESI/1.0\"");
    assert_eq!(site.server.ask(&ask).text(), "sendoff=\"ESI/1.0\" ");
    assert_eq!(site.runs("x") + site.runs("cart"), 0);
}

#[test]
fn without_the_key_markup_is_text() {
    let page = format!("{KEPT}a{CART}b");
    let site = Assembling::with(&[("index.php", &page)], "[[site.route]]\nesi = false\n");
    let response = site.server.get("/");
    assert_eq!(response.text(), format!("a{CART}b"));
    assert_eq!(response.header("Surrogate-Control"), Some("content=\"ESI/1.0\""));
}

#[test]
fn missing_fragments_have_substitutes() {
    let missing = "/fragment.php?status=404";
    for (markup, text) in [
        (format!("a<esi:include src='{missing}' onerror='continue'/>b"), Some("ab")),
        (format!("a<esi:include src='{missing}' alt='/other.php'/>b"), Some("aotherb")),
        (format!("a<esi:include src='{missing}' alt='{missing}' onerror='continue'/>b"), Some("ab")),
        ("a<esi:include src='/fragment.php?dies' onerror='continue'/>b".to_owned(), Some("ab")),
        ("a<esi:include src='/fragment.php?status=302' onerror='continue'/>b".to_owned(), Some("ab")),
        (
            format!("<esi:try><esi:attempt>a<esi:include src='{missing}'/></esi:attempt><esi:except>b<esi:include src='/other.php'/></esi:except></esi:try>c"),
            Some("botherc"),
        ),
        (
            "<esi:try><esi:attempt>a<esi:include src='/other.php'/></esi:attempt><esi:except>b</esi:except></esi:try>c".to_owned(),
            Some("aotherc"),
        ),
        (format!("a<esi:include src='{missing}'/>b"), None),
        ("a<esi:include src='/fragment.php?dies'/>b".to_owned(), None),
        ("a<esi:choose/>b".to_owned(), None),
        (format!("<esi:try><esi:attempt><esi:include src='{missing}'/></esi:attempt><esi:except><esi:include src='{missing}'/></esi:except></esi:try>"), None),
    ] {
        let page = format!("{KEPT}{markup}");
        let site = Assembling::start(&[("index.php", &page), ("other.php", "other")]);
        let response = site.get("/", "");
        match text {
            Some(text) => assert_eq!((response.status(), &*response.text()), (200, text), "{markup}"),
            None => assert_eq!(response.status(), 502, "{markup}"),
        }
    }
}

#[test]
fn fragments_come_from_the_host_of_the_page() {
    let other = Site::with(
        "fragment.php",
        "<?php file_put_contents(__DIR__ . '/../runs', '.'); echo 'foreign';",
    );
    let foreign = Server::start(other.root(), &[]);
    let page = format!(
        "{KEPT}a<esi:include src='http://{}/fragment.php' onerror='continue'/>b<esi:include src='//evil.test/x' onerror='continue'/>c\
         <esi:include src='fragment.php?name=near'/>d",
        foreign.addr()
    );
    let site = Assembling::start(&[("index.php", &page)]);
    let own = format!("{FRESH}<esi:include src='http://$(HTTP_HOST)/fragment.php?name=own'/>");
    site.site.write("own.php", own);
    assert_eq!(site.text("/"), "abc(near run 1 user -)d");
    assert!(!other.outside("runs").exists());
    site.server.await_log("only fragments of the page's own host");
    assert_eq!(site.text("/own.php"), "(own run 1 user -)");
}

#[test]
fn loops_and_bombs_end() {
    let itself = format!("{FRESH}x<esi:include src='/index.php' onerror='continue'/>");
    let site = Assembling::start(&[("index.php", &itself)]);
    assert_eq!(site.text("/"), "xxxxx");
    site.server.await_log("deep in one another");
    let twice = "<esi:include src='/twice.php' onerror='continue'/>".repeat(20);
    site.site.write("twice.php", format!("{FRESH}x{twice}"));
    let many = site.get("/twice.php", "");
    assert_eq!(many.text(), "x".repeat(257));
    site.server.await_log("more than 256 fragments");
    let heavy = "<esi:include src='/fragment.php?size=6000000' onerror='continue'/>".repeat(5);
    site.site.write("heavy.php", format!("{FRESH}{heavy}x"));
    let heavy = site.get("/heavy.php", "").text();
    assert!(heavy.len() < 16 << 20 && heavy.ends_with('x'), "{}", heavy.len());
    site.site.write("long.php", format!("{FRESH}<?php echo str_repeat('x', 17 << 20);"));
    assert_eq!(site.get("/long.php", "").status(), 502);
    // Other requests are answered as before.
    assert_eq!(site.text("/"), "xxxxx");
}

#[test]
fn a_fragment_that_stalls_is_missing() {
    let page = format!("{KEPT}a<esi:include src='/fragment.php?sleeps' onerror='continue'/>b");
    let route = "[[site.route]]\npath = '/fragment.php'\nrequest_timeout = '1s'\n";
    let site = Assembling::with(&[("index.php", &page)], route);
    assert_eq!(site.text("/"), "ab");
    site.server.await_log("answered with 504");
}

#[test]
fn heads_describe_the_assembled_page() {
    let tag =
        "<?php header('ETag: \"a\"'); header('Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT'); ?>";
    let page = format!("{KEPT}{tag}a{MENU}b");
    let site = Assembling::start(&[("index.php", &page)]);
    site.keep("/");
    let whole = site.text("/");
    for (name, value) in [
        ("If-None-Match", "\"a\""),
        ("If-Modified-Since", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ("Range", "bytes=1-2"),
        ("Range", "bytes=100000-"),
    ] {
        for target in ["/", "/index.php?new"] {
            let ask = Request::get(target).header(name, value);
            let response = site.server.ask(&ask);
            assert_eq!(
                (response.status(), response.text()),
                (200, whole.clone()),
                "{name} {value}"
            );
            for gone in ["ETag", "Last-Modified", "Accept-Ranges", "Content-Range", "Age"] {
                assert_eq!(response.header(gone), None, "{name}");
            }
        }
    }
    let head = site.server.ask(&Request::new("HEAD", "/"));
    assert_eq!(
        (head.status(), head.header("Content-Length"), head.header("ETag")),
        (200, None, None)
    );
    assert!(head.body.is_empty());
}

#[test]
fn a_page_is_as_private_as_its_fragments() {
    let include = |field: &str| format!("<esi:include src='/fragment.php?h[]={field}'/>");
    let (cookie, short, private) = (
        include("Set-Cookie:+basket=1"),
        include("Cache-Control:+max-age=60"),
        include("Cache-Control:+private,+max-age=60"),
    );
    let site = Assembling::start(&[]);
    for (fragments, control) in [
        (short.clone(), "max-age=60"),
        (short.clone() + &private, "private, max-age=60"),
        (CART.to_owned(), "no-cache"),
        (cookie.clone(), "private, no-cache"),
        ("<esi:vars>$(HTTP_COOKIE{user})</esi:vars>".to_owned(), "private, no-cache"),
    ] {
        site.site.write("page.php", format!("{KEPT}{fragments}"));
        let target = format!("/page.php?{}", fragments.len());
        let response = site.get(&target, "user=ann");
        assert_eq!(response.header("Cache-Control"), Some(control), "{fragments}");
        let set = fragments.contains("Set-Cookie").then_some("basket=1");
        assert_eq!(response.header("Set-Cookie"), set);
    }
}

#[test]
fn words_of_a_request_are_no_markup() {
    let page = format!(
        "{KEPT}<esi:vars>hello $(HTTP_COOKIE{{who}}|'you')</esi:vars>, $(HTTP_HOST) <esi:include src='/fragment.php?name=$(QUERY_STRING{{n}})'/>"
    );
    let site = Assembling::start(&[("index.php", &page)]);
    let text = site.get("/?n=a", "who=<esi:include src='/fragment.php?name=evil'/>").text();
    assert!(!text.contains("<esi:"), "{text}");
    assert!(text.starts_with("hello &lt;"), "{text}");
    assert!(text.contains(", $(HTTP_HOST) (a run 1"), "{text}");
    assert_eq!(site.runs("evil"), 0);
}

/// A client chooses values in addresses, but not the files and parameters to which they lead.
#[test]
fn words_of_a_request_lead_to_no_other_fragment() {
    let page = format!(
        "{KEPT}<esi:include src='/user/$(QUERY_STRING{{id}})/card.txt' alt='/user/$(HTTP_COOKIE{{id}})/card.txt' onerror='continue'/>\
         |<esi:include src='/show.php?a=$(QUERY_STRING{{id}})&b=1'/>"
    );
    let site = Assembling::start(&[
        ("page.php", &page),
        ("show.php", "<?php echo $_GET['a'], ',', implode('-', array_keys($_GET));"),
        ("user/7/card.txt", "card"),
        ("user/a b+c;d/card.txt", "odd"),
        ("user/card.txt", "shared"),
        ("secret.txt", "secret"),
        ("secret/card.txt", "secret"),
    ]);
    for (query, cookie, text) in [
        ("id=7", "", "card|7,a-b"),
        ("id=a%20b%2Bc%3Bd", "", "odd|a b+c;d,a-b"),
        ("id=../secret.txt?", "", "|../secret.txt?,a-b"),
        ("id=..%2fsecret.txt%3f", "", "|../secret.txt?,a-b"),
        ("id=..%5csecret", "", "|..\\secret,a-b"),
        ("id=.", "", "|.,a-b"),
        ("id=%2e%2E", "", "|..,a-b"),
        ("id=..;x", "", "|..;x,a-b"),
        ("id=", "", "|,a-b"),
        ("id=x%26c=1", "", "|x&c=1,a-b"),
        ("id=x;c=1", "", "|x;c=1,a-b"),
        ("id=x", "id=7", "card|x,a-b"),
        ("id=x", "id=..", "|x,a-b"),
        ("id=x", "id=../secret", "|x,a-b"),
    ] {
        assert_eq!(
            site.get(&format!("/page.php?{query}"), cookie).text(),
            text,
            "{query} {cookie}"
        );
    }
    site.server.await_log("the value \"../secret.txt?\" would lead out of its part of the address");
}

#[test]
fn explain_says_what_a_page_is_made_of() {
    let page = format!(
        "{KEPT}{MENU}{CART}<esi:include src='/fragment.php?status=404' onerror='continue'/>"
    );
    let site = Assembling::start(&[("index.php", &page)]);
    let explained = wait::for_some("a kept fragment", || {
        site.get("/", "");
        Some(site.server.explain("/", &[]).unwrap()).filter(|text| text.contains("1 kept"))
    });
    assert!(explained.contains("ESI: made of 2 fragments, 1 kept, 1 made"), "{explained}");
    assert!(explained.contains("1 are missing and left out"), "{explained}");
}

#[test]
fn compressed_pages_are_compressed_once_and_whole() {
    let filler = "lorem ipsum dolor ".repeat(300);
    // The application compresses by itself if it may.
    let zipped = "<?php ini_set('zlib.output_compression', '1'); ?>";
    let page = format!("{zipped}{KEPT}{filler}{CART}{filler}");
    let site = Assembling::with(&[("index.php", &page)], "compress = true\n");
    let ask = Request::get("/").header("Accept-Encoding", "gzip");
    let response = site.server.ask(&ask);
    assert_eq!(response.header("Content-Encoding"), Some("gzip"));
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(&*response.body);
    std::io::Read::read_to_string(&mut decoder, &mut text).unwrap();
    assert_eq!(text, format!("{filler}(cart run 1 user -){filler}"));
}

/// An application behind `proxy` is told of ESI, too.
#[test]
fn applications_over_http_include_fragments() {
    let app = Site::with("fragment.php", FRAGMENT);
    let page = format!(
        "<?php if (($_SERVER['HTTP_SURROGATE_CAPABILITY'] ?? '') === 'sendoff=\"ESI/1.0\"') {{ ?>{KEPT}a{CART}b<?php }}"
    );
    app.write("index.php", page);
    let behind = Server::start(app.root(), &[]);
    let route = format!("[[site.route]]\nproxy = 'http://{}'\n", behind.clear_addr());
    let site = Assembling::with(&[], &route);
    assert_eq!(site.text("/"), "a(cart run 1 user -)b");
}

/// Fragments wait for the slowest one of their page: on disk, whatever their number of clients.
#[test]
fn fragments_that_wait_take_little_memory() {
    const CLIENTS: usize = 6;
    const FRAGMENTS: usize = 8;
    const BYTES: usize = 1 << 20;
    let app = Site::with("big.php", "<?php echo str_repeat($_GET['letter'], 1 << 20);");
    app.write(
        "slow.php",
        "<?php $folder = __DIR__ . '/..'; file_put_contents(\"$folder/waiting\", '.', FILE_APPEND);
         for ($i = 0; $i < 3000 && !file_exists(\"$folder/go\"); $i++) { usleep(10000); clearstatcache(); }",
    );
    let letters: String = ('a'..).take(FRAGMENTS).collect();
    let include = |letter| format!("<esi:include src='/big.php?letter={letter}'/>");
    let big: String = letters.chars().map(include).collect();
    app.write("index.php", format!("{FRESH}{big}<esi:include src='/slow.php'/>"));
    let workers = (CLIENTS + 2).to_string();
    let behind = Server::start(app.root(), &["--workers", &workers]);
    let route = format!("[[site.route]]\nproxy = 'http://{}'\n", behind.clear_addr());
    let site = Assembling::with(&[], &route);
    let front = site.server.front();
    let before = processes::private_memory(front);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| site.server.connect()).collect();
    for client in &mut clients {
        client.send(Request::get("/").bytes());
    }
    wait::for_some("all pages wait", || {
        let waiting = fs::read(app.outside("waiting")).unwrap_or_default();
        (waiting.len() == CLIENTS).then_some(())
    });
    let taken = processes::private_memory(front).saturating_sub(before);
    // All of them have 48 MiB.
    assert!(taken < 16 << 20, "{taken} bytes");
    app.write_at(app.outside("go"), "");
    let expected: String = letters.chars().map(|letter| letter.to_string().repeat(BYTES)).collect();
    for client in &mut clients {
        assert!(client.response("GET").text() == expected, "another page");
    }
}

/// The page and the scripts of docs/esi.md.
#[test]
fn the_example_of_the_documentation_works() {
    let text = fs::read_to_string(repository::root().join("docs/esi.md")).unwrap();
    let block = |language: &str, number: usize| {
        let fence = format!("```{language}\n");
        let mut blocks = text.split(&fence).skip(1);
        blocks.nth(number).unwrap().split("```").next().unwrap().to_owned()
    };
    let site = Site::new();
    site.write("index.php", block("php", 0));
    site.write("cart.php", block("php", 1));
    let root = format!("root = '{}'", site.root().display());
    let config = block("toml", 0).replace("root = \"/var/www/shop\"", &root);
    let top = "listen = '127.0.0.1:0'\npage_cache_folder = 'pages'\n";
    let config = site.write_at(site.outside("sendoff.toml"), format!("{top}{config}"));
    let server = Server::try_run(&config, site.root(), 1)
        .unwrap_or_else(|failed| panic!("{}", failed.stderr));
    let ask = |name: &str| {
        let request = Request::get("/")
            .header("Host", "shop.example.org")
            .header("Cookie", &format!("name={name}"));
        server.ask(&request)
    };
    for name in ["ann", "bob"] {
        let shop = ask(name);
        assert_eq!(shop.text(), format!("<h1>Shop</h1>\n<p>Cart of {name}</p>\n"));
        assert_eq!(shop.header("Cache-Control"), Some("private, no-cache"));
    }
    let kept = wait::for_some("a kept page", || Some(ask("eve")).filter(is_hit));
    assert_eq!(kept.text(), "<h1>Shop</h1>\n<p>Cart of eve</p>\n");
}

/// A plugin of LSCache: the page is for all, and names private fragments.
mod of_plugins {
    use super::*;
    use crate::lscache::PAGE;

    fn start(markup: &str, lines: &str) -> (Site, Server) {
        let site = Site::with("page.php", PAGE);
        let head = "<?php header('X-LiteSpeed-Cache-Control: public,max-age=600,esi=on'); header('X-LiteSpeed-Tag: front'); ?>";
        site.write("index.php", format!("{head}[{markup}]"));
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n[[pool]]\nworkers = 3\n\
             [[site]]\nroot = 'root'\npage_cache = 'lscache'\n{lines}\n"
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server = Server::try_run(&config, site.root(), 3);
        let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
        (site, server)
    }

    /// The parts between brackets.
    fn ask(server: &Server, cookie: &str) -> Response {
        let response = server.ask(&Request::get("/").header("Cookie", cookie));
        for name in ["Surrogate-Control", "X-LiteSpeed-Cache-Control", "X-LiteSpeed-Tag"] {
            assert_eq!(response.header(name), None);
        }
        response
    }

    const PRIVATE: &str = "<esi:include src='/page.php?c=private,max-age=600&t=cart' cache-control='private,no-vary' as-var='1' />";

    #[test]
    fn private_fragments_stay_with_their_owners() {
        let (_site, server) = start(PRIVATE, "esi = true");
        let kept = |cookie: &str| {
            let response = wait::for_some("kept parts", || {
                let (one, two) = (ask(&server, cookie), ask(&server, cookie));
                (is_hit(&one) && one.text() == two.text()).then_some(two)
            });
            assert_eq!(response.header("X-LiteSpeed-Cache"), Some("hit"));
            response.text()
        };
        let (ann, bob) = (kept("user=ann"), kept("user=bob"));
        assert!(ann.contains(" user ann ") && bob.contains(" user bob "), "{ann} {bob}");
        assert_eq!((kept("user=ann"), kept("user=bob")), (ann.clone(), bob));
        // A tag of the fragment, from its owner.
        let order =
            Request::get("/page.php?c=no-cache&p=private,cart").header("Cookie", "user=ann");
        server.ask(&order);
        assert_ne!(ask(&server, "user=ann").text(), ann);
        assert!(is_hit(&ask(&server, "user=ann")), "the page itself is kept");
    }

    #[test]
    fn plugins_are_told_of_esi_where_a_site_has_it() {
        let told = "<?php echo $_SERVER['X-LSCACHE'], ' ', $_SERVER['LSWS_EDITION'];";
        for (lines, expected) in [("esi = true", "on,esi LiteSpeed"), ("", "on Openlitespeed")] {
            let (site, server) = start(PRIVATE, lines);
            site.write("told.php", told);
            assert_eq!(server.get("/told.php").text(), expected);
        }
        let (_site, server) = start(PRIVATE, "");
        assert!(ask(&server, "a=b").text().contains("<esi:include"));
    }
}

/// Two fragments that wait for each other: one after the other, neither would come.
#[test]
fn fragments_are_made_at_the_same_time() {
    let meets = |own: &str, other: &str| {
        format!(
            "<?php touch(__DIR__ . '/../{own}'); $end = time() + 20;\n\
             while (!file_exists(__DIR__ . '/../{other}') && time() < $end) {{ usleep(1000); clearstatcache(); }}\n\
             echo file_exists(__DIR__ . '/../{other}') ? 'met' : 'alone';"
        )
    };
    let page = format!("{KEPT}<esi:include src='/a.php'/> <esi:include src='/b.php'/>");
    let pages = [("index.php", page), ("a.php", meets("a", "b")), ("b.php", meets("b", "a"))];
    let site = Assembling::start(&pages.each_ref().map(|(name, text)| (*name, &**text)));
    assert_eq!(site.text("/"), "met met");
}

/// The old page comes with its fragments while the new one is made.
#[test]
fn an_old_page_is_assembled_while_a_new_one_is_made() {
    let waits = "<?php if (is_file(__DIR__ . '/../wait')) file_get_contents(__DIR__ . '/pipe'); ?>";
    let head = "<?php header('Surrogate-Control: content=\"ESI/1.0\"'); header('Cache-Control: max-age=1, stale-while-revalidate=600'); ?>";
    let site = Assembling::start(&[("index.php", &format!("{waits}{head}a{MENU}b"))]);
    let pipe = site.site.fifo("pipe");
    let old = site.keep("/");
    site.site.write_at(site.site.outside("wait"), "");
    let stale = wait::for_some("an old page", || {
        let response = site.get("/", "");
        crate::status(&response).contains("detail=stale").then_some(response)
    });
    assert_eq!(stale.text(), old);
    // The script has waited meanwhile.
    pipe.release();
    fs::remove_file(site.site.outside("wait")).unwrap();
}

/// A page includes only what its client may see.
#[test]
fn denials_hold_for_fragments() {
    let page = format!(
        "{KEPT}a<esi:include src='/denied.php' onerror='continue'/>b<esi:include src='/asks.php' onerror='continue'/>c"
    );
    let secret = "<?php echo 'secret';";
    let site = Site::with("index.php", &page);
    site.write("denied.php", secret);
    site.write("asks.php", secret);
    let routes = "[[site.route]]\npath = '/denied.php'\ndeny = true\n\
                  [[site.route]]\npath = '/asks.php'\nallow_from = ['10.9.8.7']\n";
    let site = Assembling::serve(site, routes);
    assert_eq!(site.text("/"), "abc");
    let from = Request::get("/").header("X-Forwarded-For", "10.9.8.7");
    assert_eq!(site.server.ask(&from).text(), "absecretc");
}

/// Many clients at once: each gets its own fragments around the common page.
#[test]
fn no_client_gets_the_fragment_of_another() {
    let page = format!("{KEPT}{MENU}{CART}{MENU}{CART}");
    let site = Assembling::start(&[("index.php", &page)]);
    site.keep("/");
    std::thread::scope(|scope| {
        for user in 0..6 {
            let site = &site;
            scope.spawn(move || {
                for _ in 0..15 {
                    let text = site.get("/", &format!("user=user{user}")).text();
                    let own = text.matches(&format!(" user user{user})")).count();
                    assert_eq!((own, text.matches("(cart").count()), (2, 2), "{text}");
                }
            });
        }
    });
}

/// A client leaves while its fragment is made: others get theirs, and the page stays.
#[test]
fn a_client_may_leave_before_its_fragments_come() {
    let waits = "<?php file_get_contents(__DIR__ . '/pipe'); echo 'made';";
    let page = format!("{KEPT}a<esi:include src='/waits.php'/>b");
    let other = format!("{KEPT}c{CART}d");
    let pages = [("index.php", &*page), ("waits.php", waits), ("other.php", &*other)];
    let site = Assembling::start(&pages);
    let pipe = site.site.fifo("pipe");
    for _ in 0..4 {
        let mut client = site.server.connect();
        client.send(Request::get("/").bytes());
        let held = pipe.hold();
        drop(client);
        drop(held);
        assert!(site.text("/other.php").starts_with("c(cart run"));
    }
    let mut client = site.server.connect();
    client.send(Request::get("/").bytes());
    // Workers may still be about to read for clients that have left.
    let response = std::thread::scope(|scope| {
        let response = scope.spawn(|| client.response("GET"));
        wait::for_some("the page", || {
            // A script that reads goes on when the pipe is closed again.
            let _ = pipe.has_reader();
            response.is_finished().then_some(())
        });
        response.join().unwrap()
    });
    assert_eq!(response.text(), "amadeb");
}
