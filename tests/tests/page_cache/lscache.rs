//! Applications that speak LSCache's language (docs/lscache.md), as its plugins do.

use std::fs;

use sendoff_tests::{LIMIT, Request, Response, Server, Site, wait};

use crate::{is_hit, status, workers_of};

/// Counts its runs, names its user by a cookie, and answers as its query demands: `c` is the cache
/// control, `t` are tags, `p` purges, `v` varies, `h` further fields.
pub(super) const PAGE: &str = r"<?php
file_put_contents(__DIR__ . '/../runs', '.', FILE_APPEND);
foreach (['c' => 'Cache-Control', 't' => 'Tag', 'p' => 'Purge', 'v' => 'Vary'] as $key => $name)
    if (isset($_GET[$key])) header('X-LiteSpeed-' . $name . ': ' . $_GET[$key]);
foreach ((array) ($_GET['h'] ?? []) as $field) header($field, false);
header('X-LiteSpeed-Cache: application');
echo 'run ', strlen(file_get_contents(__DIR__ . '/../runs')), ' user ', $_COOKIE['user'] ?? '-',
    ' vary ', $_COOKIE['_lscache_vary'] ?? '-', ' currency ', $_COOKIE['currency'] ?? '-';
";

pub(super) struct LsCache {
    pub(super) site: Site,
    pub(super) server: Server,
}

impl LsCache {
    pub(super) fn start() -> Self {
        Self::with(Site::with("page.php", PAGE), "")
    }

    /// `lines` are about the site.
    pub(super) fn with(site: Site, lines: &str) -> Self {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\ntrusted_proxies = ['127.0.0.1']\npage_cache_folder = 'pages'\n[[pool]]\nworkers = 3\n\
             [[site]]\nroot = 'root'\npage_cache = 'lscache'\n{lines}\n"
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server = Server::try_run(&config, site.root(), workers_of(lines));
        let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
        Self { site, server }
    }

    fn runs(&self) -> usize {
        fs::read(self.site.outside("runs")).map_or(0, |runs| runs.len())
    }

    pub(super) fn get(&self, target: &str, cookie: &str) -> Response {
        let request = Request::get(target);
        let response = self.server.ask(&match cookie {
            "" => request,
            cookie => request.header("Cookie", cookie),
        });
        for name in ["Cache-Control", "Tag", "Purge", "Purge2", "Vary"] {
            assert_eq!(response.header(&format!("X-LiteSpeed-{name}")), None, "{target}");
        }
        assert_eq!(response.header("LSC-Cookie"), None);
        assert_ne!(response.header("X-LiteSpeed-Cache"), Some("application"));
        response
    }

    /// Keeps the page of a client, and returns its text.
    pub(super) fn keep(&self, target: &str, cookie: &str) -> String {
        wait::for_some("a kept page", || Some(self.get(target, cookie)).filter(is_hit)).text()
    }
}

#[test]
fn a_page_is_kept_as_the_plugin_says() {
    let kept = LsCache::start();
    let first = kept.get("/page.php?c=public,max-age=600&t=A_,A_F", "");
    assert_eq!(status(&first), "sendoff; fwd=uri-miss; ttl=600");
    assert_eq!(first.header("X-LiteSpeed-Cache"), Some("miss"));
    let text = kept.keep("/page.php?c=public,max-age=600&t=A_,A_F", "");
    let runs = kept.runs();
    let hit = kept.get("/page.php?c=public,max-age=600&t=A_,A_F", "theme=dark");
    assert_eq!((hit.text(), hit.header("X-LiteSpeed-Cache")), (text, Some("hit")));
    assert_eq!(kept.runs(), runs);
    for target in [
        "/page.php",
        "/page.php?c=no-cache",
        "/page.php?c=public",
        "/page.php?c=esi=on",
        "/page.php?c=no-cache,esi=on&h[]=Cache-Control:+public,max-age=60",
        "/page.php?h[]=Cache-Control:+public,max-age=60",
        "/page.php?c=public,max-age=60&h[]=Set-Cookie:+a=b",
        "/page.php?c=public,max-age=60&h[]=Vary:+*",
        "/page.php?c=public,max-age=60&h[]=X-Accel-Buffering:+no",
        "/page.php?c=public,max-age=60&v=value=mobile",
        "/page.php?c=private,max-age=60",
    ] {
        assert_ne!(kept.get(target, "").text(), kept.get(target, "").text(), "{target}");
    }
    // `Cache-Control` is for browsers.
    let own = "/page.php?c=public,max-age=60&h[]=Cache-Control:+no-store";
    kept.keep(own, "");
    assert_eq!(kept.get(own, "").header("Cache-Control"), Some("no-store"));
}

#[test]
fn a_purge_by_tag_forgets_the_pages_that_have_it() {
    let kept = LsCache::start();
    let page = |tags: &str| format!("/page.php?c=public,max-age=600&t={tags}");
    let (one, two, three) = (page("B_,B_Po.1,B_F"), page("B_,B_Po.2"), page("C_"));
    let made = [&one, &two, &three].map(|target| kept.keep(target, ""));
    let order = |value: &str| {
        // Plugins purge in any request of an editor, also one whose response may not be kept.
        let target = format!("/page.php?c=no-cache&p={value}");
        let order = Request::post(&target, "text/plain", "x").header("Cookie", "user=editor");
        assert_eq!(kept.server.ask(&order).header("X-LiteSpeed-Purge"), None);
    };
    order("public,B_Po.1,B_Po.9");
    assert_eq!(kept.get(&two, "").text(), made[1]);
    assert_eq!(kept.get(&three, "").text(), made[2]);
    let anew = kept.get(&one, "").text();
    assert_ne!(anew, made[0]);
    order("tag=B_");
    assert_ne!(kept.get(&one, "").text(), anew);
    assert_ne!(kept.get(&two, "").text(), made[1]);
    assert_eq!(kept.get(&three, "").text(), made[2]);
    order("private,*");
    assert_eq!(kept.get(&three, "").text(), made[2]);
    order("*");
    assert_ne!(kept.get(&three, "").text(), made[2]);
    let text = kept.keep("/page.php/x?c=max-age=600", "");
    order("/page.php/y");
    assert_eq!(kept.get("/page.php/x?c=max-age=600", "").text(), text);
    order("/page.php/x%3Fc=max-age=600");
    assert_ne!(kept.get("/page.php/x?c=max-age=600", "").text(), text);
}

#[test]
fn a_stale_purge_sends_the_old_page_once_more() {
    let kept = LsCache::start();
    let target = "/page.php?c=public,max-age=600&t=D_1";
    let old = kept.keep(target, "");
    kept.get("/page.php?c=no-cache&p=public,stale,D_1", "");
    let stale = kept.get(target, "");
    assert_eq!((stale.text(), status(&stale)), (old.clone(), "sendoff; hit; detail=stale; ttl=0"));
    let is_new = |response: &Response| status(response).starts_with("sendoff; hit; ttl=");
    let new = wait::for_some("a new page", || Some(kept.get(target, "")).filter(is_new));
    assert_ne!(new.text(), old);
}

#[test]
fn private_pages_are_for_their_owner_alone() {
    let kept = LsCache::start();
    let target = "/page.php?c=private,max-age=600&t=cart,public:P_1";
    let users = ["user=a", "user=b", "user=a; theme=dark"];
    let made = users.map(|user| kept.keep(target, user));
    assert!(made[0].contains("user a") && made[1].contains("user b"));
    for (user, made) in users.iter().zip(&made) {
        let hit = kept.get(target, &format!("{user}; _ga=GA1.{}", kept.runs()));
        assert_eq!(
            (hit.text(), hit.header("X-LiteSpeed-Cache")),
            (made.clone(), Some("hit,private"))
        );
    }
    // A client without cookies, or with another browser, has no page.
    let anonymous = kept.get(target, "");
    assert!(!is_hit(&anonymous) && anonymous.text().contains("user -"));
    let browser = Request::get(target).header("Cookie", "user=a").header("User-Agent", "other");
    assert!(!is_hit(&kept.server.ask(&browser)));
    // A purge of one user leaves the others' pages, whatever cookies changed meanwhile.
    kept.get("/page.php?c=no-cache&p=private,cart", "user=a; new=1");
    assert_ne!(kept.get(target, users[0]).text(), made[0]);
    assert_ne!(kept.get(target, users[2]).text(), made[2]);
    assert_eq!(kept.get(target, users[1]).text(), made[1]);
    // Public tags concern the private pages of all.
    kept.get("/page.php?c=no-cache&p=public,P_1", "");
    assert_ne!(kept.get(target, users[1]).text(), made[1]);
}

#[test]
fn pages_vary_with_cookies() {
    let kept = LsCache::start();
    let target = "/page.php?c=public,max-age=600";
    let guest = kept.keep(target, "");
    let member = kept.keep(target, "_lscache_vary=member");
    assert!(guest.contains("vary -") && member.contains("vary member"));
    assert_eq!(kept.get(target, "a=b").text(), guest);
    // PHP reads each of these as `_lscache_vary`.
    for cookie in [".lscache_vary=member", "_lscache.vary=member", "_lscache vary=member"] {
        let text = kept.get(target, cookie).text();
        assert!(text.contains("vary member") && text != guest, "{cookie}: {text}");
    }
    assert_eq!(kept.get(target, "").text(), guest);
    let varies = "/page.php?c=public,max-age=600&v=cookie=currency";
    let made = ["", "currency=EUR", "currency=USD", "currency=EUR; a=b"];
    let texts = made.map(|cookie| kept.keep(varies, cookie));
    assert_eq!(texts[1], texts[3]);
    assert!(texts[0].contains("currency -") && texts[1].contains("currency EUR"));
    assert!(texts[2].contains("currency USD"));
    let poison = kept.get(varies, "currency=USD; currency.x=1; currency[0]=EUR");
    assert_eq!(kept.get(varies, "currency=USD").text(), texts[2], "{}", poison.text());
}

/// If one page names a cookie, all pages at its address differ by it.
#[test]
fn a_page_that_names_a_cookie_ends_those_that_did_not() {
    let site = Site::with(
        "page.php",
        "<?php
        header('X-LiteSpeed-Cache-Control: public,max-age=600');
        if (isset($_COOKIE['currency'])) header('X-LiteSpeed-Vary: cookie=currency');
        echo uniqid(), ' currency ', $_COOKIE['currency'] ?? '-';",
    );
    let kept = LsCache::with(site, "");
    kept.keep("/page.php", "");
    // The guest's page is still the only one, and has said nothing of the cookie.
    assert!(is_hit(&kept.get("/page.php", "currency=EUR")));
    kept.get("/page.php?x", "currency=EUR");
    let guest = kept.keep("/page.php?x", "");
    let euro = kept.keep("/page.php?x", "currency=EUR");
    assert!(guest.ends_with("currency -") && euro.ends_with("currency EUR"));
    assert!(kept.keep("/page.php?x", "currency=USD").ends_with("currency USD"));
}

/// Fields by which a server in front of a LiteSpeed server steers plugins.
#[test]
fn no_client_can_steer_the_plugin() {
    let site = Site::with(
        "page.php",
        "<?php
        header('X-LiteSpeed-Cache-Control: public,max-age=600');
        ksort($_SERVER);
        foreach ($_SERVER as $name => $value)
            if (preg_match('/LSCACHE|LITESPEED|LSWS|LSADC/i', $name)) echo \"$name=$value\\n\";",
    );
    let kept = LsCache::with(site, "");
    let expected = "LSWS_EDITION=Openlitespeed\nX-LSCACHE=on\n";
    let request = Request::get("/page.php")
        .header("X-LSCACHE", "on")
        .header("X-LSCache-Vary-Value", "x")
        .header("X_LSCACHE", "on")
        .header("X-LiteSpeed-Purge", "*")
        .header("X-LiteSpeed-Cache-Control", "public,max-age=1");
    assert_eq!(kept.server.ask(&request).text(), expected);
    assert_eq!(kept.keep("/page.php", ""), expected);
}

/// A cookie that every client gets with the page.
#[test]
fn a_kept_page_has_the_cookie_of_its_plugin() {
    let kept = LsCache::start();
    let target = "/page.php?c=public,max-age=600&h[]=LSC-Cookie:+test=1;+path=/";
    for _ in 0..3 {
        assert_eq!(kept.get(target, "").header("Set-Cookie"), Some("test=1; path=/"));
    }
    kept.keep(target, "");
    let both = "/page.php?c=public,max-age=60&h[]=LSC-Cookie:+a=b&h[]=Set-Cookie:+a=b";
    let first = kept.get(both, "");
    assert_eq!(first.head.all("Set-Cookie").count(), 1);
    assert!(!is_hit(&kept.get(both, "")));
}

/// Without `lscache` the fields are ordinary ones, as they are behind nginx.
#[test]
fn other_sites_pass_the_fields_on() {
    let site = Site::with("page.php", PAGE);
    let text = "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n[[site]]\nroot = 'root'\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 3);
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    let response = server.get("/page.php?c=public,max-age=60&t=a");
    assert_eq!(response.header("X-LiteSpeed-Cache-Control"), Some("public,max-age=60"));
    assert_eq!(response.header("X-LiteSpeed-Cache"), Some("application"));
}

/// Tags and owners survive a restart.
#[test]
fn pages_of_an_earlier_server_are_purged_by_tag() {
    let kept = LsCache::start();
    // The port of the server changes.
    let ask = |server: &Server, target: &str, cookie: &str| {
        let request = Request::get(target).header("Host", "a.test").header("Cookie", cookie);
        server.ask(&request.header("X-Forwarded-For", "192.0.2.1").header("X-Forwarded-Port", "80"))
    };
    let one = ("/page.php?c=public,max-age=600&t=E_1", "user=b");
    let two = ("/page.php?c=private,max-age=600&t=E_2", "user=a");
    let made = [one, two].map(|(target, cookie)| {
        let page = || Some(ask(&kept.server, target, cookie)).filter(is_hit);
        wait::for_some("a kept page", page).text()
    });
    let LsCache { site, server } = kept;
    drop(server);
    let kept = LsCache::with(site, "");
    kept.server.await_log("kept pages have been read pages=2");
    let get = |(target, cookie)| ask(&kept.server, target, cookie).text();
    assert_eq!([one, two].map(get), made);
    assert_eq!(get((one.0, "user=c")), made[0]);
    assert!(get((two.0, "user=b")).contains("user b"));
    get(("/page.php?c=no-cache&p=public,E_1;private,E_2", "user=a"));
    assert_ne!(get(one), made[0]);
    assert_ne!(get(two), made[1]);
}

/// The block that the plugin of WordPress writes, before WordPress' own rules.
const HTACCESS: &str = r#"
<IfModule LiteSpeed>
RewriteEngine on
CacheLookup on
RewriteRule .* - [E=Cache-Control:no-autoflush]
RewriteCond %{HTTP_USER_AGENT} Mobile|Android [NC]
RewriteRule .* - [E=Cache-Control:vary=%{ENV:LSCACHE_VARY_VALUE}+ismobile]
RewriteCond %{HTTP_COOKIE} editing
RewriteRule .* - [E=Cache-Control:no-cache]
RewriteRule .? - [E="Cache-Vary:,wp-postpass_1,currency"]
RewriteCond %{HTTP_ACCEPT} image/webp [OR]
RewriteCond %{HTTP_USER_AGENT} iPhone
RewriteRule .* - [E=Cache-Control:vary=%{ENV:LSCACHE_VARY_VALUE}+webp]
CacheKeyModify -qs:fbclid
CacheKeyModify -qs:utm*
CacheDisable public /private/
CacheMaxExpire 100
</IfModule>
<IfModule mod_rewrite.c>
RewriteEngine On
RewriteBase /
RewriteRule ^index\.php$ - [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteRule . /index.php [L]
</IfModule>
"#;

const FRONT: &str = r"<?php
header('X-LiteSpeed-Cache-Control: public,max-age=600');
echo uniqid(), ' ', $_SERVER['LSCACHE_VARY_VALUE'] ?? '-', ' ', $_SERVER['LSCACHE_VARY_COOKIE'] ?? '-', ' ',
    $_COOKIE['currency'] ?? '-';
";

#[test]
fn the_lines_of_a_plugin_are_obeyed() {
    let site = Site::with("index.php", FRONT);
    site.write(".htaccess", HTACCESS);
    let kept = LsCache::with(site, "htaccess = true");
    let ask = |target: &str, field: &str, value: &str| {
        kept.server.ask(&Request::get(target).header(field, value))
    };
    let keep = |target: &str, field: &str, value: &str| {
        wait::for_some("a kept page", || Some(ask(target, field, value)).filter(is_hit)).text()
    };
    let plain = keep("/post/1", "X-None", "1");
    assert!(plain.ends_with(" - wp-postpass_1,currency -"), "{plain}");
    let mobile = keep("/post/1", "User-Agent", "Android");
    assert!(mobile.contains(" +ismobile "), "{mobile}");
    assert!(keep("/post/1", "User-Agent", "iPhone Mobile").contains(" +ismobile+webp "));
    assert!(keep("/post/1", "Accept", "image/webp").contains(" +webp "));
    let euro = keep("/post/1", "Cookie", "currency=EUR");
    assert!(euro.ends_with(" EUR") && euro != plain);
    assert_eq!(ask("/post/1", "Cookie", "theme=dark").text(), plain);
    assert_eq!(ask("/post/1?fbclid=1&utm_source=x", "X-None", "1").text(), plain);
    assert_ne!(ask("/post/1?page=2&fbclid=1", "X-None", "1").text(), plain);
    for (target, field, value) in
        [("/post/1", "Cookie", "editing=1"), ("/private/1", "X-None", "1")]
    {
        let answers = [(); 3].map(|()| ask(target, field, value));
        assert!(answers.iter().all(|answer| answer.header("Cache-Status").is_none()), "{target}");
    }
    kept.site.write(".htaccess", HTACCESS.replace("CacheLookup on", "CacheLookup off"));
    let is_off = || ask("/post/1", "X-None", "1").header("Cache-Status").is_none();
    assert!(wait::until(LIMIT, is_off), "the lines are read again");
}

/// Other sites skip the lines, as Apache does: they belong to a module that is not loaded.
#[test]
fn the_lines_of_a_plugin_have_no_effect_elsewhere() {
    let site = Site::with("index.php", FRONT);
    site.write(".htaccess", HTACCESS);
    let text = "listen = '127.0.0.1:0'\nthreads = 1\n[[site]]\nroot = 'root'\nhtaccess = true\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 3);
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    let answer = server.ask(&Request::get("/post/1").header("User-Agent", "Android"));
    assert!(answer.text().ends_with(" - - -"), "{}", answer.text());
}

/// A preset keeps users' pages away from the cache, but the plugin knows better, and its purges come
/// from users.
#[test]
fn presets_leave_the_cache_to_the_plugin() {
    let kept = LsCache::with(Site::with("page.php", PAGE), "app = 'wordpress'");
    let target = "/page.php?c=public,max-age=600&t=F_1";
    let text = kept.keep(target, "");
    assert_eq!(kept.get(target, "wordpress_logged_in_x=1").text(), text);
    kept.get("/page.php?c=no-cache&p=F_1", "wordpress_logged_in_x=1");
    assert_ne!(kept.get(target, "").text(), text);
}
