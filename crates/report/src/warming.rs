//! The pages that are made before clients ask for them, for `sendoff status` and the metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The pages of a site that are made before clients ask for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmingStatus {
    /// The name of the site.
    pub site: String,
    /// True if the walk through its pages goes on.
    pub is_running: bool,
    /// Seconds since 1970 at the end of the last walk; `None`: none has ended.
    pub ended: Option<u64>,
    /// Why the walk ended early, as a sentence about "it"; `None`: it did not.
    pub cut: Option<String>,
    /// The last error: an address, and a sentence about "it".
    pub error: Option<String>,
    /// The present walk, or the last one.
    pub walk: WarmedPages,
    /// All walks since the front started.
    pub all: WarmedPages,
}

/// Numbers of pages of a walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmedPages {
    /// Pages that the sitemaps name.
    pub listed: u64,
    /// Pages that were kept already.
    pub fresh: u64,
    /// Pages that were made and kept.
    pub made: u64,
    /// Pages that may not be kept.
    pub not_kept: u64,
    /// Pages and sitemaps that could not be had.
    pub errors: u64,
}

impl WarmedPages {
    /// Adds the numbers of another walk.
    pub fn add(&mut self, other: Self) {
        self.listed += other.listed;
        self.fresh += other.fresh;
        self.made += other.made;
        self.not_kept += other.not_kept;
        self.errors += other.errors;
    }
}

/// "812 of 900 pages, 3 errors".
impl fmt::Display for WarmedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listed, fresh, made, not_kept, errors } = *self;
        let pages = if listed == 1 { "page" } else { "pages" };
        write!(f, "{} of {listed} {pages}", fresh + made)?;
        if not_kept > 0 {
            write!(f, ", {not_kept} may not be kept")?;
        }
        match errors {
            0 => Ok(()),
            1 => write!(f, ", 1 error"),
            _ => write!(f, ", {errors} errors"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_the_numbers_that_matter() {
        let mut pages = WarmedPages { listed: 900, fresh: 500, made: 312, not_kept: 0, errors: 3 };
        assert_eq!(pages.to_string(), "812 of 900 pages, 3 errors");
        pages.add(WarmedPages { listed: 1, not_kept: 1, ..WarmedPages::default() });
        assert_eq!(pages.to_string(), "812 of 901 pages, 1 may not be kept, 3 errors");
        let one = WarmedPages { listed: 1, errors: 1, ..WarmedPages::default() };
        assert_eq!(one.to_string(), "0 of 1 page, 1 error");
    }
}
