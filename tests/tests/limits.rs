//! Limits that an operator sets: who exceeds them is refused, told when to come again, and counted.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use sendoff_tests::{Request, Response, Server, Site};

const CONFIG: &str = "listen = '127.0.0.1:0'\nthreads = 2\ntrusted_proxies = '127.0.0.1'\n\
    [[pool]]\nname = 'www'\nworkers = 1\n\
    [[site]]\nroot = 'root'\n\
    [[site.route]]\npath = '/metrics'\nmetrics = true\n\
    [[site.route]]\nprefix = '/api'\nrate = '2/h'\n\
    [[site.route]]\npath = '/once.txt'\nrate = '1/d'\nresponse_headers = { X-Rule = 'yes' }\n";

fn run(site: &Site) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), CONFIG);
    Server::try_run_with(&config, site.root(), 1, 2).unwrap()
}

fn ask(server: &Server, target: &str, client: &str) -> Response {
    // A connection of its own: the kernel gives it to either event loop.
    server.ask(&Request::get(target).header("X-Forwarded-For", client))
}

#[test]
fn a_client_that_asks_too_often_is_told_when_to_come_again() {
    let site = Site::new();
    site.write("api/a.php", "hello");
    site.write("once.txt", "once");
    site.write("free.txt", "free");
    let server = run(&site);
    for _ in 0..2 {
        assert_eq!(ask(&server, "/api/a.php", "192.0.2.1").text(), "hello");
    }
    for _ in 0..4 {
        let refused = ask(&server, "/api/a.php", "192.0.2.1");
        refused.expect(429);
        let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1700..=1800).contains(&after), "{after}");
        assert_eq!(refused.header("x-rule"), None);
        // Other routes and other clients have buckets of their own.
        assert_eq!(ask(&server, "/free.txt", "192.0.2.1").text(), "free");
    }
    assert_eq!(ask(&server, "/api/a.php", "192.0.2.2").text(), "hello");
    assert_eq!(ask(&server, "/once.txt", "192.0.2.1").text(), "once");
    let refused = ask(&server, "/once.txt", "192.0.2.1");
    refused.expect(429);
    assert_eq!(refused.header("x-rule"), Some("yes"), "a rule of the route");
    // The network of 64 bits is one client.
    assert_eq!(ask(&server, "/once.txt", "2001:db8::1").text(), "once");
    ask(&server, "/once.txt", "2001:db8::ffff").expect(429);
    assert_eq!(ask(&server, "/once.txt", "2001:db8:0:1::1").text(), "once");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("\nsendoff_limits_reached_total{limit=\"rate\"} 6\n"), "{metrics}");
    // A reload forgives nothing.
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    ask(&server, "/api/a.php", "192.0.2.1").expect(429);
}
