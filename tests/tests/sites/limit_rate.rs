//! `limit_rate` of a route: static files and other responses leave at most at this rate.

use std::time::{Duration, Instant};

use sendoff_tests::{Server, Site, pattern};

#[test]
fn responses_of_a_route_leave_at_its_rate() {
    let site = Site::new();
    let bytes = pattern(1, 60_000);
    site.write("slow/a.bin", &bytes);
    let config = site.write_at(
        site.outside("sendoff.toml"),
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = 'root'\n\
         [[site.route]]\nprefix = '/slow'\nlimit_rate = 20000\n\
         [[site.route]]\npath = '/slow/b'\nrespond = 'short'\n",
    );
    let server = Server::try_run(&config, site.root(), 0).unwrap();
    let begun = Instant::now();
    assert_eq!(server.get("/slow/b").text(), "short");
    assert_eq!(server.get("/slow/a.bin").expect(200), &bytes[..]);
    // The first second's bytes leave at once, the others in two seconds.
    assert!(begun.elapsed() > Duration::from_millis(1900), "{:?}", begun.elapsed());
}
