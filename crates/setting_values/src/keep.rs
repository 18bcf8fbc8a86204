//! Settings of the page cache.

use std::time::Duration;

use sendoff_config::{CacheDialect, Keeping, PageCache, units};

use super::plain::Time;
use crate::read::{Scope, Wrong};
use crate::value::Word;

/// The pages of applications that are kept, and the time for which they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep(pub PageCache);

impl Word for Keep {
    const KIND: &'static str = "\"http\", a time, \"lscache\" or \"off\", and \"stale TIME\" or \"cookies\": \"10m\", \"http, stale 1h\", \"10m, cookies\", \"lscache\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text == "off" {
            return Ok(Self(PageCache::Off));
        }
        let expected = || format!("expected {}", Self::KIND);
        let (mut first, dialect) = (false, CacheDialect::Http);
        let mut keeping = Keeping { fresh: None, stale: None, cookies: false, dialect };
        for word in text.split(',').map(str::trim) {
            if let Some(time) = word.strip_prefix("stale ") {
                let time = whole_seconds(time.trim()).map_err(|wrong| wrong.help(expected()))?;
                keeping.stale = Some(time);
            } else if word == "cookies" {
                keeping.cookies = true;
            } else if first {
                let wrong = Wrong::new(format!("\"{word}\" is not understood here"));
                return Err(wrong.help(expected()));
            } else {
                first = true;
                if word == "lscache" {
                    // The plugins say which cookies make a difference.
                    (keeping.dialect, keeping.cookies) = (CacheDialect::LsCache, true);
                } else if word != "http" {
                    let time = whole_seconds(word).and_then(|time| not_zero(word, time));
                    keeping.fresh = Some(time.map_err(|wrong| wrong.help(expected()))?);
                }
            }
        }
        if !first {
            return Err(Wrong::new("it is missing how long pages are fresh").help(expected()));
        }
        Ok(Self(PageCache::On(keeping)))
    }

    fn text(&self) -> String {
        let PageCache::On(Keeping { fresh, stale, cookies, dialect }) = self.0 else {
            return "off".to_owned();
        };
        let is_lscache = dialect == CacheDialect::LsCache;
        let unsaid = if is_lscache { "lscache" } else { "http" };
        let mut words = vec![fresh.map_or(unsaid.to_owned(), |time| Time(time).text())];
        if let Some(stale) = stale {
            words.push(format!("stale {}", Time(stale).text()));
        }
        if cookies && !is_lscache {
            words.push("cookies".to_owned());
        }
        words.join(", ")
    }
}

/// Ages of pages are counted in seconds (RFC 9111 §1.2.2).
fn whole_seconds(text: &str) -> Result<Duration, Wrong> {
    match units::time(text) {
        Ok(time) if time.subsec_nanos() == 0 => Ok(time),
        Ok(_) => Err(Wrong::new(format!("\"{text}\" is not a time of whole seconds"))),
        Err(_) => Err(Wrong::new(format!("\"{text}\" is not a time"))),
    }
}

fn not_zero(text: &str, time: Duration) -> Result<Duration, Wrong> {
    if time.is_zero() {
        return Err(Wrong::new(format!("\"{text}\" is no time for which a page can be fresh")));
    }
    Ok(time)
}
