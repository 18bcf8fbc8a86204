//! The reference stack and the harness themselves.

use sendoff_tests::{Pair, Request, Site, pattern};

#[test]
fn stock_serves_what_debian_serves() {
    let site = Site::with("index.php", "<?php echo 'index ', $_SERVER['REQUEST_URI'];");
    site.write("a.txt", pattern(1, 100_000));
    let stock = sendoff_tests::Stock::start(site.root(), &[]);
    assert_eq!(stock.ask(&Request::get("/a.txt")).expect(200), pattern(1, 100_000));
    assert_eq!(stock.ask(&Request::get("/no/such?x=1")).text(), "index /no/such?x=1");
}

#[test]
#[should_panic(expected = "bodies differ")]
fn a_difference_is_found() {
    let site = Site::with("index.php", "<?php echo 'port ', $_SERVER['SERVER_PORT'];");
    Pair::start(&site, &[]).same_page("/");
}
