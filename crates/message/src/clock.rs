//! The time of day as HTTP and logs write it, made once per second.

use std::cell::{Ref, RefCell};
use std::time::SystemTime;

use crate::response::Field;

/// One event loop's clock.
#[derive(Debug)]
pub struct Clock {
    shown: RefCell<Shown>,
}

/// A time as texts, in GMT.
#[derive(Debug)]
pub struct Shown {
    /// Seconds since 1970.
    second: u64,
    /// `Date` with an IMF-fixdate (RFC 9110 §5.6.7): `Sat, 21 Nov 2026 04:53:00 GMT`.
    http: Field,
    /// `21/Nov/2026:04:53:00 +0000`.
    pub local: String,
    /// `2026-11-21T04:53:00+00:00`.
    pub iso8601: String,
}

impl Shown {
    /// The texts of this time.
    pub fn new(time: SystemTime) -> Self {
        let http = httpdate::fmt_http_date(time);
        let (local, iso8601) = (time_local(&http).concat(), time_iso8601(&http).concat());
        Self { second: seconds(time), http: Field::shared("Date", http), local, iso8601 }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self { shown: Shown::new(SystemTime::now()).into() }
    }
}

impl Clock {
    /// The time as a field of responses.
    pub fn date(&self) -> Field {
        self.shown().http.clone()
    }

    /// The time as all texts.
    pub fn shown(&self) -> Ref<'_, Shown> {
        let now = SystemTime::now();
        if self.shown.borrow().second != seconds(now) {
            *self.shown.borrow_mut() = Shown::new(now);
        }
        self.shown.borrow()
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Parts of an IMF-fixdate: day, name of the month, year, time of day.
fn parts(date: &str) -> [&str; 4] {
    [5..7, 8..11, 12..16, 17..25].map(|range| date.get(range).unwrap_or_default())
}

fn time_local(date: &str) -> [&str; 8] {
    let [day, month, year, time] = parts(date);
    [day, "/", month, "/", year, ":", time, " +0000"]
}

fn time_iso8601(date: &str) -> [&str; 8] {
    const NAMES: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const NUMBERS: [&str; 12] =
        ["01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12"];
    let [day, name, year, time] = parts(date);
    let month = NAMES.find(name).and_then(|at| NUMBERS.get(at / 3));
    [year, "-", month.copied().unwrap_or_default(), "-", day, "T", time, "+00:00"]
}
