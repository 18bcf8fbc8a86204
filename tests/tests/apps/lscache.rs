//! WordPress with LiteSpeed's own plugin: the page cache does what the plugin says, and no page of a
//! user reaches another client.

use std::path::{Path, PathBuf};
use std::process::Command;

use sendoff_tests::{LIMIT, Request, Response, Server, Site, repository, wait};

use crate::database::Database;
use crate::farm::HOST;
use crate::kept::{Browser, is_hit};
use crate::walk::{bodies_differ, body};
use crate::wordpress;

/// Requests in random order.
const STEPS: usize = 400;

/// The lowest number of steps that kept pages must answer, or the test would show nothing.
const LEAST_HITS: usize = 100;

/// Random steps for each change of the site, on average.
const CHANGES: usize = 40;

/// Shows the user and the cart on each page, and tells the plugin about carts as its part for
/// WooCommerce does: clients with a cart have another `vary`, and their pages are their own.
const MARKS: &str = r#"<?php
add_filter('litespeed_comment', '__return_false');
add_filter('comment_flood_filter', '__return_false', 99);
function cart() {
    $id = $_COOKIE['cart_id'] ?? '';
    return preg_match('/^[a-z0-9]+$/', $id) ? get_transient("cart_$id") ?: '' : '';
}
add_action('init', function () {
    if (!isset($_GET['add-to-cart'])) return;
    do_action('litespeed_control_set_nocache', 'a cart changes');
    $_COOKIE['cart_id'] = $id = bin2hex(random_bytes(8));
    set_transient("cart_$id", sanitize_text_field($_GET['add-to-cart']), 3600);
    setcookie('cart_id', $id, 0, '/');
});
add_filter('litespeed_vary', function ($vary) { if (cart()) $vary['cart'] = 1; return $vary; });
add_action('litespeed_control_finalize', function () { if (cart()) do_action('litespeed_control_set_private', 'cart'); });
add_action('wp_footer', function () {
    echo '<p id="for">user:', wp_get_current_user()->user_login ?: 'none', ' cart:', cart() ?: 'none', '</p>';
});
"#;

/// The parameters by which the plugin finds the server when it is activated in a browser. It writes
/// other rules into the `.htaccess` file without them.
const SERVER: &str = "['X-LSCACHE' => 'on', 'LSWS_EDITION' => 'Openlitespeed']";

/// A second user, a second post, a post with a password, a draft, and the plugin.
const CONTENT: &str = "require 'wp-load.php'; require 'wp-admin/includes/plugin.php';
    $of = fn ($more) => $more + ['post_status' => 'publish', 'post_author' => 1, 'post_date' => '2026-03-02 12:00:00', 'post_date_gmt' => '2026-03-02 12:00:00'];
    wp_create_user('bob', 'correct horse', 'bob@example.test');
    wp_insert_post($of(['post_title' => 'Secret', 'post_name' => 'secret', 'post_content' => 'The treasure is here.', 'post_password' => 'sesame']));
    wp_insert_term('Other', 'category');
    $other = wp_insert_post($of(['post_title' => 'Other', 'post_name' => 'other', 'post_content' => 'Of another kind.', 'post_author' => 2,
        'post_date' => '2025-03-02 12:00:00', 'post_date_gmt' => '2025-03-02 12:00:00']));
    wp_set_post_terms($other, [get_cat_ID('Other')], 'category');
    echo wp_insert_post(['post_title' => 'Draft', 'post_content' => 'Not yet said.', 'post_status' => 'draft', 'post_author' => 1]);
    $done = activate_plugin('litespeed-cache/litespeed-cache.php');
    if (is_wp_error($done)) throw new Exception($done->get_error_message());";

/// WordPress behind two servers, of which the first keeps pages. To the plugin they
/// are the same.
struct Blog {
    keeps: Server,
    plain: Server,
    draft: String,
}

/// The plugin's folder; `None`: it is in no registry of packages, and this machine cannot fetch it.
fn plugin() -> Option<PathBuf> {
    let done = Command::new(repository::root().join("tools/lscache-wp")).output().unwrap();
    if !done.status.success() {
        eprintln!("NOT RUN: {}", String::from_utf8_lossy(&done.stderr));
        return None;
    }
    Some(String::from_utf8(done.stdout).unwrap().trim().into())
}

impl Blog {
    fn start(site: &Site, database: &Database, plugin: &Path) -> Self {
        wordpress::install(site, database);
        let root = site.outside("share/wordpress");
        site.write_at(root.join("wp-content/mu-plugins/marks.php"), MARKS);
        let place = root.join("wp-content/plugins/litespeed-cache");
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-rL").arg(plugin).arg(place).status().unwrap();
        assert!(copied.success());
        let made = Command::new("php")
            .current_dir(&root)
            .args([
                "-r",
                &format!("$_SERVER = ['HTTP_HOST' => '{HOST}'] + {SERVER} + $_SERVER; {CONTENT}"),
            ])
            .output()
            .unwrap();
        let failed = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{failed}");
        let draft = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let server = |name: &str, lines: &str| {
            let config = format!(
                "listen = '127.0.0.1:0'\nthreads = 2\nuser = 'www-data'\npage_cache_folder = '{}'\n[[pool]]\nworkers = 3\n\
                 [[site]]\nroot = '{}'\napp = 'wordpress'\nhtaccess = true\npage_cache = 'lscache'\n{lines}\n",
                site.outside(&format!("pages-{name}")).display(),
                root.display()
            );
            let config = site.write_at(site.outside(&format!("{name}.toml")), config);
            Server::try_run_with(&config, site.root(), 3, 2)
                .unwrap_or_else(|failed| panic!("{}", failed.stderr))
        };
        let (keeps, plain) =
            (server("keeps", ""), server("plain", "[[site.route]]\npage_cache = 'off'"));
        Self { keeps, plain, draft }
    }

    fn get(&self, browser: &mut Browser, target: &str) -> Response {
        browser.get(self.keeps.addr(), target)
    }

    /// Waits until the page comes from the cache.
    fn keep(&self, browser: &mut Browser, target: &str) {
        let kept = wait::until(LIMIT, || is_hit(&self.get(browser, target)));
        assert!(kept, "{} asks for {target}\n{}", browser.name, self.keeps.log());
    }

    /// Compares a page with the page that the application makes now. Returns true if it was kept.
    fn compare(&self, browser: &mut Browser, target: &str, place: &str) -> bool {
        // Cookies that the plain answer sets are dropped.
        let mut plain = browser.clone();
        let ours = self.get(browser, target);
        let theirs = plain.get(self.plain.addr(), target);
        let place = format!("{place}: {} asks for {target}", browser.name);
        assert_eq!(ours.status(), theirs.status(), "{place}\n{}", self.keeps.log());
        let text = |response: &Response| body(response, wordpress::VOLATILE);
        if let Some(why) = bodies_differ(&text(&ours), &text(&theirs)) {
            panic!("{place}: {:?}\n{why}", ours.header("Cache-Status"));
        }
        is_hit(&ours)
    }

    /// Changes the site by WordPress' API, as the editor does.
    fn change(&self, admin: &mut Browser, target: &str, form: &str) -> Response {
        let at = self.keeps.addr();
        let nonce = admin.get(at, "/wp-admin/admin-ajax.php?action=rest-nonce").text();
        let request = Request::post(target, "application/x-www-form-urlencoded", form);
        let done = admin.ask(at, target, request.header("X-WP-Nonce", nonce.trim()));
        assert!(done.status() < 300, "{target} {form}: {}", done.text());
        done
    }

    /// Sends the form below the first post.
    fn comment(&self, browser: &mut Browser, form: &str) -> Response {
        let target = "/wp-comments-post.php";
        let request = Request::post(target, "application/x-www-form-urlencoded", form)
            .header("Referer", &format!("http://{HOST}{POST}"));
        let posted = browser.ask(self.keeps.addr(), target, request);
        assert_eq!(posted.status(), 302);
        posted
    }

    fn log_in(&self, user: &mut Browser, name: &str) {
        let at = self.keeps.addr();
        let form = format!("log={name}&pwd=correct+horse&wp-submit=Log+In&testcookie=1");
        user.get(at, "/wp-login.php");
        assert_eq!(user.post(at, "/wp-login.php", &form).status(), 302, "{name}");
    }
}

const POST: &str = "/2026/hello-world/";
const OTHER: &str = "/2025/other/";

#[test]
#[ignore = "heavy: make test-heavy; LiteSpeed's plugin in a real site"]
fn edits_renew_the_pages_that_showed_them_as_root() {
    let Some(plugin) = plugin() else { return };
    let site = Site::new();
    let database = Database::start(&site);
    let blog = Blog::start(&site, &database, &plugin);
    let [mut anyone, mut admin] = ["anyone", "admin"].map(Browser::new);
    blog.log_in(&mut admin, "admin");
    // Pages that show the changed post, or an excerpt of it, and pages that do not. The plugin also
    // renews all other posts, and pages, which may name it.
    let (showing, others) = (["/", POST], ["/category/other/", "/author/bob/"]);
    let may_name_it = [OTHER, "/sample-page/"];
    let pages: Vec<_> = showing.iter().chain(&others).chain(&may_name_it).copied().collect();
    let keep_all = |anyone: &mut Browser| pages.iter().for_each(|page| blog.keep(anyone, page));
    let check = |anyone: &mut Browser, anew: &[&str], kept: &[&str], what: &str| {
        for page in &pages {
            let was_kept = blog.compare(anyone, page, what);
            let place = format!("{what}: {page}\n{}", blog.keeps.log());
            assert!(!was_kept || !anew.contains(page), "{place}");
            assert!(was_kept || !kept.contains(page), "{place}");
        }
    };
    keep_all(&mut anyone);
    check(&mut anyone, &[], &pages, "nothing");

    let edited = blog.change(&mut admin, "/wp-json/wp/v2/posts/1", "title=Hello+again");
    assert!(edited.text().contains("Hello again"));
    check(&mut anyone, &showing, &others, "an edited post");
    assert!(blog.get(&mut anyone, "/").text().contains("Hello again"));

    keep_all(&mut anyone);
    let comment = "comment=For+all+to+read.&comment_post_ID=1";
    blog.comment(&mut admin, comment);
    check(&mut anyone, &[POST], &others, "a comment");
    assert!(blog.get(&mut anyone, POST).text().contains("For all to read."));

    keep_all(&mut anyone);
    blog.change(&mut admin, "/wp-json/wp/v2/menus", "name=Main");
    check(&mut anyone, &pages, &[], "a menu");
}

#[test]
#[ignore = "heavy: make test-heavy; random users ask a real site for some minutes"]
fn a_plugin_of_lscache_keeps_pages_of_users_apart_as_root() {
    let Some(plugin) = plugin() else { return };
    let site = Site::new();
    let database = Database::start(&site);
    let blog = Blog::start(&site, &database, &plugin);
    let at = blog.keeps.addr();
    let mut browsers =
        ["anyone", "admin", "bob", "buyer", "other", "guest", "knows"].map(Browser::new);
    let [_, admin, bob, buyer, other, guest, knows] = &mut browsers;
    blog.log_in(admin, "admin");
    blog.log_in(bob, "bob");
    buyer.get(at, "/?add-to-cart=hammer");
    other.get(at, "/?add-to-cart=nails");
    // Without cookies, the comment is shown at an address of its author's.
    let comment = "comment=Well+said.&author=Guest&email=guest%40example.test&comment_post_ID=1";
    let posted = blog.comment(guest, comment);
    let waiting = posted.header("location").unwrap().split('#').next().unwrap().to_owned();
    let waiting = waiting.strip_prefix(&format!("http://{HOST}")).unwrap();
    assert!(waiting.contains("unapproved="), "{waiting}");
    knows.post(at, "/wp-login.php?action=postpass", "post_password=sesame&Submit=Enter");
    assert!(knows.cookies.keys().any(|name| name.starts_with("wp-postpass")));
    let preview = format!("/?p={}&preview=true", blog.draft);

    // Each browser sees a text of its own, so empty pages would be noticed.
    for (browser, who) in browsers.iter_mut().zip([
        "user:none cart:none",
        "user:admin cart:none",
        "user:bob cart:none",
        "user:none cart:hammer",
        "user:none cart:nails",
        "user:none cart:none",
        "user:none cart:none",
    ]) {
        for _ in 0..3 {
            let page = blog.get(browser, POST).text();
            let shown = page.split("<p id=\"for\">").nth(1).unwrap_or_else(|| panic!("{page}"));
            assert!(shown.starts_with(who), "{}: {shown}", browser.name);
        }
        assert!(!blog.get(browser, POST).text().contains("awaiting moderation"));
        let secret = blog.get(browser, "/2026/secret/").text();
        assert_eq!(secret.contains("The treasure"), browser.name == "knows", "{}", browser.name);
        let draft = blog.get(browser, &preview).text();
        assert_eq!(draft.contains("Not yet said"), browser.name == "admin", "{}", browser.name);
    }

    let targets = [
        "/",
        POST,
        OTHER,
        "/2026/secret/",
        "/sample-page/",
        "/category/uncategorized/",
        "/author/admin/",
        "/feed/",
        "/?s=hello",
        "/wp-json/wp/v2/posts",
        "/no-such-page/",
        waiting,
        &preview,
    ];
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut hits = 0;
    for step in 0..STEPS {
        let place = format!("seed {seed}, step {step}");
        if random.usize(..CHANGES) == 0 {
            let admin = &mut browsers[1];
            let comment = format!("comment=Of+step+{step}&comment_post_ID=1");
            match random.usize(..3) {
                0 => drop(blog.change(admin, "/wp-json/wp/v2/posts/1", &format!("title=S+{step}"))),
                1 => drop(blog.comment(admin, &comment)),
                _ => drop(blog.change(admin, "/wp-json/wp/v2/menus", &format!("name=M+{step}"))),
            }
        }
        let browser = &mut browsers[random.usize(..7)];
        let target = targets[random.usize(..targets.len())];
        hits += usize::from(blog.compare(browser, target, &place));
    }
    assert!(hits >= LEAST_HITS, "{hits} of {STEPS}");
}
