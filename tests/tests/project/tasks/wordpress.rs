//! WordPress, played by scripts at the places of its own.

use sendoff_tests::{Request, wait};

use super::Shown;
use super::machine::{Machine, Running};

pub(super) const TASKS: &[Shown] = &[
    ("Run WordPress multisite in subdomains", subdomains),
    ("Run WordPress multisite in folders", folders),
    ("Cache pages of WordPress", cache),
    ("Use the plugin LiteSpeed Cache", plugin),
    ("Put a cart into a kept page (ESI)", cart),
    ("Purge pages from the cache", purge),
    ("Protect the login of WordPress", login),
];

#[test]
fn wordpress() {
    super::run(TASKS);
}

/// WordPress's files: each says its name, the host and the path.
fn installed(machine: Machine) -> Machine {
    let script = "<?php echo basename(__FILE__), ' ', $_SERVER['HTTP_HOST'], ' ', $_SERVER['REQUEST_URI'], ' ', uniqid();";
    for name in ["index.php", "wp-login.php", "xmlrpc.php", "wp-admin/index.php"] {
        machine.write(&format!("/var/www/wordpress/{name}"), script);
    }
    machine
}

fn subdomains(machine: Machine) {
    let upload = "/wp-content/uploads/sites/2/a.php";
    machine.write(&format!("/var/www/wordpress{upload}"), "<?php echo 'ran';");
    let run = installed(machine).start();
    assert_eq!(run.status(&format!("http://shop.example.org{upload}")), 403);
    for host in ["example.org", "shop.example.org"] {
        let page = run.text(&format!("http://{host}/hello/"));
        assert!(page.starts_with(&format!("index.php {host} /hello/ ")), "{page}");
    }
}

fn folders(machine: Machine) {
    let run = installed(machine).start();
    for (path, script) in [
        ("/site1/hello/", "index.php"),
        ("/site1/wp-login.php", "wp-login.php"),
        ("/site1/wp-admin/", "index.php"),
    ] {
        let page = run.text(&format!("http://example.org{path}"));
        assert!(page.starts_with(&format!("{script} example.org {path} ")), "{page}");
    }
    let location = run.redirect("http://example.org/site1/wp-admin");
    assert_eq!(location, (301, "/site1/wp-admin/".to_owned()));
}

const PAGE: &str = "http://example.org/hello/";

/// The page from the cache: it is kept shortly after its first client has got it.
fn kept(run: &Running) -> String {
    wait::for_some("a kept page", || {
        let response = run.get(PAGE);
        let status = response.header("Cache-Status").unwrap_or_default();
        status.starts_with("sendoff; hit").then(|| response.text())
    })
}

fn cache(machine: Machine) {
    let run = installed(machine).start();
    let page = kept(&run);
    assert_eq!(run.text(PAGE), page);
    let cookie = |cookie: &'static str| {
        run.ask(PAGE, move |request| request.header("Cookie", cookie)).text()
    };
    assert_eq!(cookie("_ga=1"), page);
    assert_ne!(cookie("wordpress_logged_in_x=ada"), page);
    assert_ne!(cookie("woocommerce_items_in_cart=1"), page);
}

/// Pages in the words of the plugin; `/edit` is a change after which the page is made anew.
fn plugin(machine: Machine) {
    let script = "<?php
        if (str_starts_with($_SERVER['REQUEST_URI'], '/edit')) header('X-LiteSpeed-Purge: tag=post1');
        else { header('X-LiteSpeed-Cache-Control: public,max-age=600'); header('X-LiteSpeed-Tag: post1'); }
        echo uniqid();";
    machine.write("/var/www/wordpress/index.php", script);
    let run = machine.start();
    let page = kept(&run);
    let response = run.get(PAGE);
    assert_eq!(response.text(), page);
    assert_eq!(response.header("X-LiteSpeed-Tag"), None);
    run.text("http://example.org/edit/");
    assert_ne!(kept(&run), page);
}

fn cart(machine: Machine) {
    let page = "<?php
        header('Surrogate-Control: content=\"ESI/1.0\"'); header('Cache-Control: max-age=600');
        echo uniqid(); ?>,<esi:include src=\"/cart.php\" onerror=\"continue\"/>";
    machine.write("/var/www/wordpress/index.php", page);
    let cart = "<?php header('Cache-Control: private, no-cache'); echo $_COOKIE['name'] ?? 'a guest', ' ', uniqid();";
    machine.write("/var/www/wordpress/cart.php", cart);
    let run = machine.start();
    let ask = |cookie: &'static str| {
        let page = run.ask(PAGE, move |request| request.header("Cookie", cookie)).text();
        let (made, cart) = page.split_once(',').unwrap();
        (made.to_owned(), cart.to_owned())
    };
    let (made, cart) = wait::for_some("a kept page", || {
        let (first, second) = (ask("name=Ada"), ask("name=Ada"));
        (first.0 == second.0 && first.1 != second.1).then_some(second)
    });
    assert!(cart.starts_with("Ada "), "{cart}");
    let other = ask("name=Bob");
    assert!(other.0 == made && other.1.starts_with("Bob "), "{other:?}");
}

fn purge(machine: Machine) {
    let run = installed(machine).start();
    let page = kept(&run);
    assert_eq!(run.command(), "purged: 1\n");
    assert_ne!(kept(&run), page);
    let stranger = run.get_from_the_office("/hello/");
    assert_eq!(stranger.status(), 200);
    let mut office =
        sendoff_tests::Client::connect_from(run.server.clear_addr(), [127, 0, 0, 2].into());
    let refused = office.ask(&Request::new("PURGE", "/hello/").header("Host", "example.org"));
    assert_eq!(refused.status(), 403);
}

fn login(machine: Machine) {
    let run = installed(machine).start();
    assert_eq!(run.status("http://example.org/wp-login.php"), 403);
    assert_eq!(run.status("http://example.org/wp-login.php/x"), 403);
    assert_eq!(run.get_from_the_office("/wp-login.php").status(), 200);
    assert_eq!(run.status("http://example.org/xmlrpc.php"), 403);
    assert_eq!(run.status(PAGE), 200);
}
