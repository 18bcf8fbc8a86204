//! Logging of the server's processes: to standard error, and to log files.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::net::SocketAddrUnix;
use sendoff_config::LogTarget;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

/// Opens the file of a log for appending. Requests may name secrets, so a new file is readable for
/// its owner and its group alone.
///
/// # Errors
/// The system refuses to open it.
fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// Opens the target of an access log.
///
/// # Errors
/// The system refuses to open it.
pub(crate) fn open_target(target: &LogTarget) -> io::Result<File> {
    match target {
        LogTarget::Stdout => rustix::stdio::stdout().try_clone_to_owned().map(File::from),
        LogTarget::File(path) => open_log(path),
    }
}

/// Writes events that pass `filter` to standard error from now on. The filter is a level, or levels
/// of modules such as `info,sendoff_server=debug` (`tracing_subscriber::filter::Targets`).
///
/// The HTTP/2 library is silent unless the filter names it: it warns about single frames, so a
/// client could fill the disk with warnings. The connection itself logs the errors that matter.
pub(crate) fn start(filter: &str) {
    let names_library = filter.contains("h2=");
    let filter = if names_library { filter.to_owned() } else { format!("{filter},h2=off") };
    let silent_library =
        || Targets::new().with_default(Level::INFO).with_target("h2", LevelFilter::OFF);
    let filter: Targets = filter.parse().unwrap_or_else(|_| silent_library());
    let events = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        // Internal errors go to standard error too; if standard error itself is broken, that would
        // panic.
        .log_internal_errors(false);
    if goes_to_journal(io::stderr()) {
        // The journal adds timestamps of its own, and shows levels in colours of its own.
        let line = Format::default().with_target(false).with_ansi(false).without_time();
        let events = events.with_ansi(false).event_format(Prioritised(line));
        tracing_subscriber::registry().with(events).with(filter).init();
    } else {
        tracing_subscriber::registry().with(events).with(filter).init();
    }
}

/// Writes a sentence for the operator to standard error.
pub(crate) fn say(sentence: &impl fmt::Display) {
    let priority = if goes_to_journal(io::stderr()) { "<3>" } else { "" };
    // Errors are ignored: standard error may be a file on a full disk.
    let _lost = writeln!(io::stderr(), "{priority}sendoff: {sentence}");
}

/// True if a stream leads to systemd's journal. `JOURNAL_STREAM` tells the same, but only the
/// supervisor reads the environment.
fn goes_to_journal(stream: impl AsFd) -> bool {
    let Ok(Some(peer)) = rustix::net::getpeername(stream) else { return false };
    SocketAddrUnix::try_from(peer).is_ok_and(|peer| peer.path_bytes() == Some(JOURNAL))
}

/// The socket on which the journal receives the output of services.
const JOURNAL: &[u8] = b"/run/systemd/journal/stdout";

/// A log line with its priority in front, as the journal expects it (sd-daemon(3)).
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// The number of a level in syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_for_the_journal_begin_with_their_priority() {
        let lines = Lines::default();
        let written = lines.clone();
        let format = Format::default().with_target(false).with_ansi(false).without_time();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || lines.clone())
            .event_format(Prioritised(format))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(code = 7, "an error");
            tracing::warn!("a warning");
            tracing::info!("an event");
            tracing::debug!("a detail");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let expected =
            "<3>ERROR an error code=7\n<4> WARN a warning\n<6> INFO an event\n<7>DEBUG a detail\n";
        assert_eq!(written, expected);
    }

    #[test]
    fn another_socket_is_not_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout");
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(!goes_to_journal(UnixStream::connect(&path).unwrap()));
        assert!(!goes_to_journal(UnixStream::pair().unwrap().0));
        assert!(!goes_to_journal(File::open("/dev/null").unwrap()));
    }
}
