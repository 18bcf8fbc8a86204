//! The pages that are made before clients ask for them, in the report of `sendoff status`.

use std::fmt;

use sendoff_report::status::WarmingStatus;

use crate::report::Ago;

/// The walks of a site and the current time, as text for people.
pub(crate) struct WarmingText<'r>(pub(crate) &'r WarmingStatus, pub(crate) u64);

impl fmt::Display for WarmingText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(WarmingStatus { site, is_running, ended, cut, error, walk, .. }, now) = self;
        write!(f, "{site}: {walk}")?;
        match ended {
            _ if *is_running => f.write_str(", going on")?,
            Some(ended) => write!(f, ", {} ago", Ago(now.saturating_sub(*ended)))?,
            None => f.write_str(", not begun yet")?,
        }
        if let Some(why) = cut {
            write!(f, "; ended early: {why}")?;
        }
        match error {
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use sendoff_report::status::WarmedPages;

    use super::*;

    #[test]
    fn people_read_how_far_a_walk_has_come() {
        let walk = WarmedPages { listed: 900, fresh: 12, made: 800, not_kept: 0, errors: 3 };
        let mut status =
            WarmingStatus { site: "a.test".to_owned(), walk, ..WarmingStatus::default() };
        let shown = |status: &WarmingStatus| WarmingText(status, 1000).to_string();
        assert_eq!(shown(&status), "a.test: 812 of 900 pages, 3 errors, not begun yet");
        status.is_running = true;
        assert_eq!(shown(&status), "a.test: 812 of 900 pages, 3 errors, going on");
        (status.is_running, status.ended) = (false, Some(880));
        status.cut = Some("it has taken 4 hours".to_owned());
        status.error = Some("http://a.test/x: it was answered with 500".to_owned());
        assert_eq!(
            shown(&status),
            "a.test: 812 of 900 pages, 3 errors, 2 min 0 s ago; ended early: it has taken 4 hours; \
             last error: http://a.test/x: it was answered with 500"
        );
    }
}
