//! Limits of requests count what all nodes let pass.

use sendoff_tests::{Engine, LIMIT, Request, Server, Site, wait};

use crate::Node;

/// The requests that a client may make at once. The next one is an hour away.
const BURST: usize = 20;

/// A node whose routes have different conditions, and so limits of their own.
fn start(engine: &str) -> Node {
    let site = Site::with("a.txt", "text");
    let routes: String = ["one", "two", "three"]
        .map(|name| {
            format!(
                "[[site.route]]\nheader = {{ X-Route = '{name}' }}\nrate = '1/h burst={BURST}'\n"
            )
        })
        .concat();
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 2\ntrusted_proxies = ['127.0.0.1']\n\
         [fleet]\nname = 'shop'\nengine = '{engine}'\n\
         [[site]]\nname = 'shop'\nroot = 'root'\nphp = false\n{routes}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run_with(&config, site.root(), 0, 2);
    Node { site, server: server.unwrap_or_else(|failed| panic!("{failed:#?}")) }
}

/// True if a request of a client passes.
fn passes(node: &Node, route: &str, client: &str) -> bool {
    let request = Request::get("/a.txt").header("X-Route", route).header("X-Forwarded-For", client);
    let status = node.server.ask(&request).status();
    assert!(matches!(status, 200 | 429), "{status}");
    status == 200
}

/// The number of requests that pass until one is refused.
fn burst(node: &Node, route: &str, client: &str) -> usize {
    (0..=BURST).take_while(|_| passes(node, route, client)).count()
}

#[test]
fn requests_at_one_node_count_at_the_others() {
    let engine = Engine::start();
    let url = engine.url();
    let [one, two] = [&url; 2].map(|url| start(url));
    one.await_engine();
    two.await_engine();
    // Garbage is an error in the log, and nothing else.
    engine.command(&["XADD", "shop:counts", "*", "v", "1", "by", "other", "counts", "[[7]]"]);
    assert!(two.await_status(|status| status["broken"] == 1), "{}", two.status());
    assert_eq!(burst(&one, "one", "192.0.2.1"), BURST);
    // Some requests pass until the other node has heard of it.
    let is_sent = || engine.command(&["XRANGE", "shop:counts", "-", "+"]).contains("[192,0,2,1]");
    assert!(wait::until(LIMIT, is_sent));
    let mut passed = 0;
    let is_refused = || {
        let is_passed = passes(&two, "one", "192.0.2.1");
        passed += usize::from(is_passed);
        !is_passed
    };
    assert!(wait::until(LIMIT, is_refused));
    assert!(passed < BURST, "{passed} requests passed");
    assert!(passes(&two, "two", "192.0.2.1") && passes(&two, "one", "192.0.2.2"));
    // Addresses of the machine itself mean another client on each.
    assert_eq!([&one, &two].map(|node| burst(node, "three", "127.0.0.9")), [BURST; 2]);
}

/// Without the engine each node counts by itself. What passed meanwhile is not made up for.
#[test]
fn each_node_counts_by_itself_while_the_engine_is_away() {
    let engine = Engine::start();
    let url = engine.url();
    let nodes = [&url; 2].map(|url| start(url));
    nodes.iter().for_each(Node::await_engine);
    engine.kill();
    nodes.iter().for_each(Node::await_away);
    assert_eq!(nodes.each_ref().map(|node| burst(node, "one", "192.0.2.1")), [BURST; 2]);
    engine.start_again();
    nodes.iter().for_each(Node::await_engine);
    let [one, two] = &nodes;
    assert_eq!(burst(one, "two", "192.0.2.1"), BURST);
    assert!(wait::until(LIMIT, || !passes(two, "two", "192.0.2.1")));
}

/// An engine that answers reads and has no memory for counts does not serve.
#[test]
fn an_engine_that_refuses_counts_is_seen() {
    let engine = Engine::start();
    let node = start(&engine.url());
    node.await_engine();
    engine.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(passes(&node, "one", "192.0.2.1"));
    node.await_away();
    let says = "it refuses a command: OOM ";
    assert!(node.status().to_string().contains(says), "{}", node.status());
    assert_eq!(node.log_lines(says), 1, "{}", node.server.log());
    assert_eq!(burst(&node, "two", "192.0.2.1"), BURST);
    engine.command(&["CONFIG", "SET", "maxmemory", "0"]);
    node.await_engine();
    assert_eq!(node.log_lines("the fleet's engine is away"), 1, "{}", node.server.log());
}
