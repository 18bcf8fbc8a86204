//! `ExpiresActive`, `ExpiresByType`, `ExpiresDefault`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::header::{self, Fields};
use crate::problem::Problem;
use crate::text::{self, lossy};

/// The time for which a response stays fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// The time starts at the file's last change instead of now.
    from_change: bool,
    seconds: i64,
}

/// The directives of a section.
#[derive(Debug, Default, Clone)]
pub(crate) struct Config {
    pub(crate) active: Option<bool>,
    pub(crate) default: Option<Lifetime>,
    /// By media type in lower case.
    pub(crate) by_type: Vec<(Vec<u8>, Lifetime)>,
}

/// The largest distance of a date from now, in seconds: a hundred years.
const MOST: i64 = 100 * 365 * 86_400;

impl Lifetime {
    /// Parses `access plus 1 month 2 days`, `A3600`, `modification plus 1 week`, `M60`.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Problem> {
        let wrong = || format!("{:?} is not a time such as \"access plus 1 month\"", lossy(text));
        if let [base @ (b'A' | b'M'), digits @ ..] = text
            && !digits.is_empty()
            && digits.iter().all(u8::is_ascii_digit)
        {
            let seconds = text::number(digits).min(MOST);
            return Ok(Self { from_change: *base == b'M', seconds });
        }
        let lower = lossy(text).to_ascii_lowercase();
        let mut words = lower.split_ascii_whitespace().filter(|word| *word != "plus").peekable();
        let from_change = match words.next() {
            Some("now" | "access") => false,
            Some("modification") => true,
            _ => return Err(wrong().into()),
        };
        let mut seconds = 0_i64;
        while let Some(count) = words.next() {
            let count: i64 = count.parse().map_err(|_| wrong())?;
            let unit = words.next().ok_or_else(wrong)?;
            let unit = match unit.trim_end_matches('s') {
                "year" => 365 * 86_400,
                "month" => 30 * 86_400,
                "week" => 7 * 86_400,
                "day" => 86_400,
                "hour" => 3600,
                "minute" => 60,
                "second" => 1,
                _ => return Err(wrong().into()),
            };
            seconds = seconds.saturating_add(count.saturating_mul(unit)).clamp(-MOST, MOST);
        }
        Ok(Self { from_change, seconds })
    }
}

impl Config {
    /// Adds the directives of a section nearer to the file, which take precedence.
    pub(crate) fn merge(&mut self, nearer: &Self) {
        self.active = nearer.active.or(self.active);
        self.default = nearer.default.or(self.default);
        for (media_type, lifetime) in &nearer.by_type {
            self.by_type.retain(|(known, _)| known != media_type);
            self.by_type.push((media_type.clone(), *lifetime));
        }
    }

    fn lifetime(&self, content_type: &[u8]) -> Option<Lifetime> {
        let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
        let essence = content_type[..end].trim_ascii().to_ascii_lowercase();
        let of = |wanted: &[u8]| {
            self.by_type.iter().find(|(known, _)| known == wanted).map(|(_, lifetime)| *lifetime)
        };
        let slash = essence.iter().position(|byte| *byte == b'/');
        let family = slash.map(|slash| text::concat(&[&essence[..=slash], b"*"]));
        of(&essence).or_else(|| family.and_then(|family| of(&family))).or(self.default)
    }

    /// Adds `Expires` and `Cache-Control`, unless the response has an `Expires`.
    pub(crate) fn apply(
        &self,
        now: SystemTime,
        modified: Option<SystemTime>,
        content_type: &[u8],
        fields: &mut Fields,
    ) {
        let has_one = fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"Expires"));
        let lifetime =
            self.lifetime(content_type).filter(|_| self.active == Some(true) && !has_one);
        let Some(lifetime) = lifetime else { return };
        let base = match (lifetime.from_change, modified) {
            (false, _) => now,
            (true, Some(modified)) => modified,
            // A generated response has no last change.
            (true, None) => return,
        };
        let seconds = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        };
        let end = seconds(base).saturating_add(lifetime.seconds).max(0);
        let age = end.saturating_sub(seconds(now));
        let end = UNIX_EPOCH.checked_add(Duration::from_secs(end.unsigned_abs()));
        // HTTP's dates end with the year 9999.
        let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        let Some(end) = end.filter(|end| *end <= last) else { return };
        let max_age = format!("max-age={age}");
        header::append(fields, b"Cache-Control", max_age.as_bytes());
        let date = httpdate::fmt_http_date(end);
        fields.push((b"Expires".to_vec(), date.into_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let parsed = |text: &str| Lifetime::parse(text.as_bytes()).ok();
        let some = |from_change, seconds| Some(Lifetime { from_change, seconds });
        assert_eq!(parsed("A3600"), some(false, 3600));
        assert_eq!(parsed("M60"), some(true, 60));
        assert_eq!(parsed("access plus 1 month"), some(false, 2_592_000));
        assert_eq!(parsed("modification plus 1 week 2 days"), some(true, 777_600));
        assert_eq!(parsed("access"), some(false, 0));
        assert_eq!(parsed("now plus 1 year"), some(false, 31_536_000));
        assert_eq!(parsed("access plus x days"), None);
        assert_eq!(parsed("access plus 1 fortnight"), None);
        assert_eq!(parsed("3600"), None);
    }
}
