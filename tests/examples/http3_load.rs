//! Loads a server over HTTP/3, as h2load does, which Debian has without HTTP/3.
//!
//! `http3_load ADDRESS PATH LENGTH REQUESTS CONNECTIONS STREAMS [WINDOW]`: each connection has a
//! thread, and sends STREAMS requests at a time. WINDOW is the flow-control window of a stream in
//! bytes. The two lines of output are like lines of h2load.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use std::time::Instant;

use sendoff_tests::{Http3, Request};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [addr, path, numbers @ ..] = &arguments[..] else { panic!("see the source") };
    let numbers: Vec<usize> = numbers.iter().map(|number| number.parse().unwrap()).collect();
    let [len, requests, connections, streams, window @ ..] = &numbers[..] else {
        panic!("see the source")
    };
    let (len, requests, connections, streams) = (*len, *requests, *connections, *streams);
    let window = window.first().map(|window| u32::try_from(*window).unwrap());
    let batch = vec![Request::get(path).header("Host", "localhost"); streams];
    let turns = requests.div_ceil(connections * streams);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| {
                let addr = addr.parse().unwrap();
                let mut client = match window {
                    Some(window) => Http3::connect_narrow(addr, "localhost", window),
                    None => Http3::connect(addr, "localhost"),
                };
                for _ in 0..turns {
                    for response in client.ask_all(&batch) {
                        assert_eq!((response.status(), response.body.len()), (200, len));
                    }
                }
            });
        }
    });
    let (seconds, done) = (begun.elapsed().as_secs_f64(), turns * connections * streams);
    println!("finished in {seconds:.2}s, {:.2} req/s", done as f64 / seconds);
    println!("requests: {done} done, {done} succeeded, 0 failed");
}
