//! The time of day as HTTP and logs write it, made once per second.

use std::cell::RefCell;
use std::time::SystemTime;

use bytes::Bytes;

/// One event loop's clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Seconds since 1970, and the same as text.
    shown: RefCell<(u64, Bytes)>,
}

impl Clock {
    /// The time as HTTP writes it (RFC 9110 §5.6.7).
    pub(crate) fn date(&self) -> Bytes {
        let now = SystemTime::now();
        let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut shown = self.shown.borrow_mut();
        if shown.0 != second || shown.1.is_empty() {
            *shown = (second, httpdate::fmt_http_date(now).into());
        }
        shown.1.clone()
    }
}
