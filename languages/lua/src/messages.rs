//! Log messages: those about a request go to the web server, on the request's own connection;
//! others go to standard error.

use std::cell::RefCell;
use std::io;

use sendoff_worker::Worker;

thread_local! {
    /// Messages of this thread about its current request.
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Installs the logger: a thread's messages are kept for [`pass_on`].
pub(crate) fn start() {
    tracing_subscriber::fmt()
        .without_time()
        .with_target(false)
        .with_level(false)
        .with_ansi(false)
        .with_writer(|| LogBuffer)
        .init();
}

struct LogBuffer;

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.with_borrow_mut(|written| written.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends this thread's messages to the web server's log.
pub(crate) fn pass_on(worker: &mut Worker) {
    let written = WRITTEN.take();
    for line in written.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        worker.log(line);
    }
}

/// Writes a sentence for the operator to standard error.
#[allow(clippy::print_stderr, reason = "no request is concerned")]
pub(crate) fn say(sentence: &str) {
    eprintln!("sendoff-lua: {sentence}");
}
