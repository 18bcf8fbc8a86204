//! Kept pages of applications: users, carts, commenters and anonymous clients ask in random order,
//! and each gets the page that nginx and php-fpm, which keep no pages, show it.

use std::collections::BTreeMap;

use sendoff_tests::{Client, Fpm, LIMIT, Request, Response, Server, Site, Stock, wait};

use crate::database::Database;
use crate::farm::HOST;
use crate::walk::{bodies_differ, body};
use crate::{mediawiki, wordpress};

/// Requests in random order.
const STEPS: usize = 400;

/// The lowest number of steps that kept pages must answer, or the test would show nothing. Two of
/// eight clients get kept pages, at about half of the targets: the expected number is 54, and fewer
/// than 20 do not happen by chance.
const LEAST_HITS: usize = 20;

/// A client with cookies.
#[derive(Clone)]
pub(crate) struct Browser {
    pub(crate) name: &'static str,
    /// Values by names, with `;` and the path behind a name if the path is not `/`.
    pub(crate) cookies: BTreeMap<String, String>,
}

/// The name of a cookie and its path.
fn of_key(key: &str) -> (&str, &str) {
    key.split_once(';').unwrap_or((key, "/"))
}

impl Browser {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, cookies: BTreeMap::new() }
    }

    pub(crate) fn ask(
        &mut self,
        addr: std::net::SocketAddr,
        target: &str,
        request: Request,
    ) -> Response {
        // Cookies of longer paths come first (RFC 6265 §5.4).
        let mut sent: Vec<_> =
            self.cookies.iter().map(|(key, value)| (of_key(key), value)).collect();
        sent.retain(|((_, path), _)| target.starts_with(path));
        sent.sort_by_key(|((_, path), _)| std::cmp::Reverse(path.len()));
        let pairs: Vec<_> =
            sent.iter().map(|((name, _), value)| format!("{name}={value}")).collect();
        let request = request.header("Host", HOST);
        let request =
            if pairs.is_empty() { request } else { request.header("Cookie", &pairs.join("; ")) };
        let response = Client::connect(addr).ask(&request);
        for cookie in response.head.all("set-cookie") {
            let mut parts = cookie.split(';').map(str::trim);
            let (name, value) = parts.next().unwrap().split_once('=').unwrap();
            let lower = |part: &str| part.to_ascii_lowercase().starts_with("path=");
            let path = parts.find(|part| lower(part)).map_or("/", |part| &part[5..]);
            let key = if path == "/" { name.to_owned() } else { format!("{name};{path}") };
            if cookie.contains("Max-Age=0") || cookie.contains("-1970") {
                self.cookies.remove(&key);
            } else {
                self.cookies.insert(key, value.to_owned());
            }
        }
        response
    }

    pub(crate) fn get(&mut self, addr: std::net::SocketAddr, target: &str) -> Response {
        self.ask(addr, target, Request::get(target))
    }

    pub(crate) fn post(
        &mut self,
        addr: std::net::SocketAddr,
        target: &str,
        form: &str,
    ) -> Response {
        self.ask(addr, target, Request::post(target, "application/x-www-form-urlencoded", form))
    }
}

pub(crate) fn is_hit(response: &Response) -> bool {
    response.header("Cache-Status").is_some_and(|status| status.starts_with("sendoff; hit"))
}

/// Sendoff, which keeps pages, and nginx with php-fpm, which keeps none.
struct Pair {
    ours: Server,
    stock: Stock,
    _fpm: Fpm,
}

impl Pair {
    fn start(
        site: &Site,
        root: &std::path::Path,
        keys: &str,
        nginx: (&std::path::Path, &str),
    ) -> Self {
        let config = format!(
            "listen = '127.0.0.1:0'\nthreads = 2\nuser = 'www-data'\npage_cache_folder = '{}'\n[[pool]]\nworkers = 3\n\
             [[site]]\nroot = '{}'\n{keys}",
            site.outside("kept-pages").display(),
            root.display()
        );
        let config = site.write_at(site.outside("kept.toml"), config);
        let ours = Server::try_run_with(&config, site.root(), 3, 2)
            .unwrap_or_else(|failed| panic!("{}", failed.stderr));
        let fpm = Fpm::start(site.root(), "");
        let php = format!(
            "include /etc/nginx/snippets/fastcgi-php.conf;\nfastcgi_pass {};",
            fpm.address()
        );
        let lines = format!("port_in_redirect off;\n{}", nginx.1.replace("{php}", &php));
        Self { ours, stock: Stock::nginx(nginx.0, "", &lines), _fpm: fpm }
    }

    /// Makes browsers ask for targets in random order, and compares the pages of both servers.
    /// Returns the number of kept pages.
    fn compare(
        &self,
        browsers: &mut [Browser],
        targets: &[&str],
        volatile: &'static [(&str, &str)],
    ) -> usize {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut hits = 0;
        for step in 0..STEPS {
            let browser = &mut browsers[random.usize(..browsers.len())];
            let target = targets[random.usize(..targets.len())];
            let ours = browser.get(self.ours.addr(), target);
            let theirs = browser.get(self.stock.addr(), target);
            let place = format!("seed {seed}, step {step}: {} asks for {target}", browser.name);
            assert_eq!(ours.status(), theirs.status(), "{place}\n{}", self.ours.log());
            if let Some(why) = bodies_differ(&body(&ours, volatile), &body(&theirs, volatile)) {
                // A day may have begun between two answers.
                let [ours, theirs] =
                    [self.ours.addr(), self.stock.addr()].map(|addr| browser.get(addr, target));
                let still = bodies_differ(&body(&ours, volatile), &body(&theirs, volatile));
                assert!(still.is_none(), "{place}: {:?}\n{why}", ours.header("Cache-Status"));
            }
            let cookies = |response: &Response| response.head.all("set-cookie").count();
            assert_eq!(cookies(&ours) > 0, cookies(&theirs) > 0, "{place}");
            hits += usize::from(is_hit(&ours));
        }
        hits
    }
}

/// A plugin that shows the user of the request on each page, and behaves like `WooCommerce`: three
/// cookies mark a cart, which lies on the server, and its form has a nonce of the session.
const PLUGIN: &str = r#"<?php
function cart_of_session() {
    $id = $_COOKIE['wp_woocommerce_session_' . COOKIEHASH] ?? '';
    return preg_match('/^[a-z0-9]+$/', $id) ? get_transient("cart_$id") ?: '' : '';
}
// Two comments within 15 s come from the same address.
add_filter('comment_flood_filter', '__return_false', 99);
add_action('init', function () {
    if (!isset($_GET['add-to-cart'])) return;
    $id = bin2hex(random_bytes(8));
    set_transient("cart_$id", sanitize_text_field($_GET['add-to-cart']), 3600);
    setcookie('woocommerce_items_in_cart', '1', 0, '/');
    setcookie('woocommerce_cart_hash', md5($id), 0, '/');
    setcookie('wp_woocommerce_session_' . COOKIEHASH, $id, time() + 3600, '/');
});
add_action('wp_footer', function () {
    $commenter = wp_get_current_commenter();
    echo '<p id="for">user:', wp_get_current_user()->user_login ?: 'none', ' cart:', cart_of_session() ?: 'none',
        ' commenter:', $commenter['comment_author'] ?: 'none', '</p>';
    if (cart_of_session()) echo '<input name="cart_nonce" value="', wp_create_nonce('cart' . cart_of_session()), '">';
});
"#;

/// Users, posts with a password, drafts.
const CONTENT: &str = "require 'wp-load.php';
    wp_create_user('bob', 'correct horse', 'bob@example.test');
    wp_insert_post(['post_title' => 'Secret', 'post_name' => 'secret', 'post_content' => 'The treasure is here.', 'post_status' => 'publish',
        'post_password' => 'sesame', 'post_date' => '2026-03-02 12:00:00', 'post_date_gmt' => '2026-03-02 12:00:00', 'post_author' => 1]);
    echo wp_insert_post(['post_title' => 'Draft', 'post_content' => 'Not yet said.', 'post_status' => 'draft', 'post_author' => 1]);";

/// WordPress with the plugin and the contents above. Returns the number of the draft.
fn install_wordpress(site: &Site, database: &Database) -> String {
    wordpress::install(site, database);
    let root = site.outside("share/wordpress");
    site.write_at(root.join("wp-content/mu-plugins/marks.php"), PLUGIN);
    let made = std::process::Command::new("php")
        .current_dir(&root)
        .args(["-r", &format!("$_SERVER['HTTP_HOST'] = '{HOST}'; {CONTENT}")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

#[test]
#[ignore = "heavy: make test-heavy; random users ask a real site for a minute"]
fn wordpress_keeps_no_page_of_a_user_as_root() {
    let site = Site::new();
    let database = Database::start(&site);
    let draft = install_wordpress(&site, &database);
    let root = site.outside("share/wordpress");
    let keys = "app = 'wordpress'\n[[site.route]]\npage_cache = '10m, stale 1h, cookies'\n";
    let pair = Pair::start(&site, &root, keys, (&root, wordpress::NGINX));
    let at = pair.ours.addr();

    let mut browsers =
        ["anyone", "reader", "admin", "bob", "buyer", "other", "guest", "knows"].map(Browser::new);
    let [_, reader, admin, bob, buyer, other, guest, knows] = &mut browsers;
    // Cookies that say nothing.
    reader.cookies.insert("theme".to_owned(), "dark".to_owned());
    for (user, name) in [(&mut *admin, "admin"), (&mut *bob, "bob")] {
        let form = format!("log={name}&pwd=correct+horse&wp-submit=Log+In&testcookie=1");
        user.get(at, "/wp-login.php");
        assert_eq!(user.post(at, "/wp-login.php", &form).status(), 302, "{name}");
    }
    buyer.get(at, "/?add-to-cart=hammer");
    other.get(at, "/?add-to-cart=nails");
    let post = "/2026/hello-world/";
    let comment = "comment=Well+said.&author=Guest&email=guest%40example.test&comment_post_ID=1&wp-comment-cookies-consent=yes";
    assert_eq!(guest.post(at, "/wp-comments-post.php", comment).status(), 302);
    // A commenter without cookies is sent to an address that shows the comment.
    let comment = "comment=Ill+said.&author=Mute&email=mute%40example.test&comment_post_ID=1";
    let posted = Browser::new("mute").post(at, "/wp-comments-post.php", comment);
    let waiting = posted.header("location").unwrap().split('#').next().unwrap().to_owned();
    let waiting = waiting.strip_prefix(&format!("http://{HOST}")).unwrap();
    assert!(waiting.contains("unapproved="), "{waiting}");
    knows.post(at, "/wp-login.php?action=postpass", "post_password=sesame&Submit=Enter");
    assert!(knows.cookies.keys().any(|name| name.starts_with("wp-postpass")));

    // Each browser sees a text of its own, so empty pages would be noticed.
    for (browser, who) in browsers.iter_mut().zip([
        "user:none cart:none commenter:none",
        "user:none cart:none commenter:none",
        "user:admin cart:none commenter:none",
        "user:bob cart:none commenter:none",
        "user:none cart:hammer commenter:none",
        "user:none cart:nails commenter:none",
        "user:none cart:none commenter:Guest",
        "user:none cart:none commenter:none",
    ]) {
        for _ in 0..3 {
            let page = browser.get(at, post).text();
            let shown = page.split("<p id=\"for\">").nth(1).unwrap_or_else(|| panic!("{page}"));
            assert!(shown.starts_with(who), "{}: {shown}", browser.name);
        }
        let waits = browser.get(at, post).text().contains("awaiting moderation");
        assert_eq!(waits, browser.name == "guest", "{}", browser.name);
        let secret = browser.get(at, "/2026/secret/").text();
        assert_eq!(secret.contains("The treasure"), browser.name == "knows", "{}", browser.name);
        let preview = browser.get(at, &format!("/?p={draft}&preview=true")).text();
        assert_eq!(preview.contains("Not yet said"), browser.name == "admin", "{}", browser.name);
    }
    let preview = format!("/?p={draft}&preview=true");
    let targets = [
        "/",
        post,
        "/2026/secret/",
        "/sample-page/",
        "/category/uncategorized/",
        "/author/admin/",
        "/feed/",
        "/comments/feed/",
        "/?s=hello",
        "/wp-json/wp/v2/posts",
        "/wp-json/wp/v2/posts/1",
        "/wp-json/wp/v2/users/me",
        "/wp-admin/profile.php",
        "/no-such-page/",
        waiting,
        &preview,
    ];
    let hits = pair.compare(&mut browsers, &targets, wordpress::VOLATILE);
    assert!(hits >= LEAST_HITS, "{hits} of {STEPS}");

    // A comment that needs no approval appears at once, for everybody, on the page that its author
    // is sent to.
    let [anyone, _, admin, ..] = &mut browsers;
    anyone.get(at, post);
    assert!(wait::until(LIMIT, || is_hit(&anyone.get(at, post))));
    let nonce = admin.get(at, "/wp-admin/").text();
    assert!(nonce.contains("Dashboard"));
    let posted =
        admin.post(at, "/wp-comments-post.php", "comment=For+all+to+read.&comment_post_ID=1");
    assert_eq!(posted.status(), 302);
    let page = anyone.get(at, post).text();
    assert!(page.contains("For all to read."), "{page}");
}

/// Logs a user of MediaWiki in, by the name and the password in `form`.
fn log_in(user: &mut Browser, at: std::net::SocketAddr, form: &str) {
    let page = "/mediawiki/index.php?title=Special:UserLogin";
    let shown = user.get(at, page).text();
    let before = shown.split("name=\"wpLoginToken\"").collect::<Vec<_>>();
    let value =
        |text: &str| text.split('"').next().unwrap().replace('+', "%2B").replace('\\', "%5C");
    // The attributes come in either order.
    let token = match before[1].strip_prefix(" type=\"hidden\" value=\"") {
        Some(rest) => value(rest),
        None => value(before[0].rsplit("value=\"").next().unwrap()),
    };
    let form = format!("{form}&authAction=login&wploginattempt=Log+in&wpLoginToken={token}");
    assert_eq!(user.post(at, page, &form).status(), 302, "{}", user.name);
}

#[test]
#[ignore = "heavy: make test-heavy; random users ask a real site for a minute"]
fn mediawiki_keeps_no_page_of_a_user_as_root() {
    let site = Site::new();
    mediawiki::install(&site);
    let settings = site.outside("settings/LocalSettings.php");
    let port = site.outside("settings/port");
    // The server in front is told of edits by PURGE.
    let cdn = format!(
        "$wgUseCdn = true; $wgCdnMaxAge = 3600; $wgCdnServers = ['127.0.0.1:' . trim(@file_get_contents('{}'))];\n",
        port.display()
    );
    let text = std::fs::read_to_string(&settings).unwrap() + &cdn;
    site.write_at(settings.clone(), text);
    let made = std::process::Command::new("php")
        .env("MW_CONFIG_FILE", &settings)
        .arg("/usr/share/mediawiki/maintenance/createAndPromote.php")
        .args(["Bob", "battery staple 9"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    site.adopt_all(&site.outside("settings"));
    let lib = site.outside("lib");
    let root = site.root().display().to_string();
    let keys = format!(
        "app = 'mediawiki'\nalias = {{ '/mediawiki' = '{}/mediawiki' }}\n\
         [[site.route]]\nparams = {{ MW_CONFIG_FILE = '{}' }}\npage_cache = 'http'\n\
         [[site.route]]\nmethod = 'PURGE'\nallow_from = '127.0.0.1'\npurge = true\n",
        lib.display(),
        settings.display()
    );
    let nginx = mediawiki::NGINX
        .replace("SETTINGS", &settings.display().to_string())
        .replace("ROOT", &root);
    let pair = Pair::start(&site, site.root(), &keys, (&lib, &nginx));
    let at = pair.ours.addr();
    site.write_at(port, at.port().to_string());

    let mut browsers = ["anyone", "reader", "admin", "bob"].map(Browser::new);
    let [_, reader, admin, bob] = &mut browsers;
    reader.cookies.insert("theme".to_owned(), "dark".to_owned());
    log_in(admin, at, "wpName=Admin&wpPassword=correct+horse+battery");
    log_in(bob, at, "wpName=Bob&wpPassword=battery+staple+9");
    for (browser, name) in browsers.iter_mut().zip(["null", "null", "\"Admin\"", "\"Bob\""]) {
        for _ in 0..3 {
            let page = browser.get(at, "/wiki/Main_Page").text();
            assert!(page.contains(&format!("\"wgUserName\":{name}")), "{}: {page}", browser.name);
        }
    }
    let targets = [
        "/wiki/Main_Page",
        "/mediawiki/index.php?title=Main_Page&action=history",
        "/mediawiki/index.php?title=Main_Page&action=edit",
        "/wiki/Special:Preferences",
        "/wiki/Special:Version",
        "/wiki/No_such_page",
        "/mediawiki/api.php?action=query&meta=userinfo&format=json",
        "/mediawiki/load.php?modules=startup&only=scripts&raw=1&skin=vector",
    ];
    let hits = pair.compare(&mut browsers, &targets, mediawiki::VOLATILE);
    assert!(hits >= LEAST_HITS / 2, "{hits} of {STEPS}");

    // An edit: MediaWiki asks to forget the page, and its history.
    let [anyone, _, admin, _] = &mut browsers;
    anyone.get(at, "/wiki/Main_Page");
    assert!(wait::until(LIMIT, || is_hit(&anyone.get(at, "/wiki/Main_Page"))));
    let answer = admin.get(at, "/mediawiki/api.php?action=query&meta=tokens&format=json").text();
    let token = answer.split("csrftoken\":\"").nth(1).unwrap().split('"').next().unwrap();
    let token = token.replace("\\\\", "%5C").replace('+', "%2B");
    let form =
        format!("action=edit&title=Main_Page&text=Edited+just+now.&format=json&token={token}");
    let edited = admin.post(at, "/mediawiki/api.php", &form).text();
    assert!(edited.contains("\"Success\""), "{edited}");
    let seen = wait::until(LIMIT, || {
        anyone.get(at, "/wiki/Main_Page").text().contains("Edited just now.")
    });
    assert!(seen, "{}", pair.ours.log());
    assert!(pair.ours.log().contains("kept pages are forgotten"), "{}", pair.ours.log());
}
