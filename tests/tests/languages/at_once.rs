//! Requests that begin together.

use std::sync::Barrier;
use std::thread;

use sendoff_tests::Server;

/// Asks for a page `count` times at once, and calls `meanwhile` when all begin.
pub(crate) fn pages_at_once(
    server: &Server,
    target: &str,
    count: usize,
    meanwhile: impl FnOnce(),
) -> Vec<String> {
    let begin = Barrier::new(count + 1);
    thread::scope(|scope| {
        let ask = || {
            begin.wait();
            server.page(target)
        };
        let all: Vec<_> = (0..count).map(|_| scope.spawn(ask)).collect();
        begin.wait();
        meanwhile();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}
