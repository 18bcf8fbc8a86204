//! Builds of PHP: which stock programs can host workers.

use std::fmt;

use memchr::memmem;
use serde::{Deserialize, Serialize};

/// The number of an API of PHP, which modules are compiled for. It is the same for all releases of
/// one version, such as 8.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PhpApi(u32);

/// The versions that `php/src/php_versions.h` is written for, with their APIs.
const VERSIONS: [(&str, PhpApi); 4] = [
    ("8.2", PhpApi(20_220_829)),
    ("8.3", PhpApi(20_230_831)),
    ("8.4", PhpApi(20_240_924)),
    ("8.5", PhpApi(20_250_925)),
];

impl PhpApi {
    /// The versions that can be hosted, the oldest first.
    pub fn versions() -> impl DoubleEndedIterator<Item = &'static str> {
        VERSIONS.into_iter().map(|(version, _)| version)
    }

    /// The version with this API; `None` if Sendoff does not know it.
    #[must_use]
    pub fn version(self) -> Option<&'static str> {
        VERSIONS.into_iter().find(|(_, api)| *api == self).map(|(version, _)| version)
    }
}

impl fmt::Display for PhpApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The properties of a PHP program that its modules must have as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhpBuild {
    /// Its API.
    pub api: PhpApi,
    /// The build is thread-safe (ZTS).
    pub is_thread_safe: bool,
    /// The build is for debugging PHP itself.
    pub is_debug: bool,
}

impl PhpBuild {
    /// Finds the mark of the build in the contents of a program, such as `API20220829,NTS` or
    /// `API20220829,TS,debug`. PHP compares this mark with the mark of each module. `None`: it is
    /// no PHP program.
    #[must_use]
    pub fn find(program: &[u8]) -> Option<Self> {
        let marks = memmem::find_iter(program, b"API20");
        marks.filter_map(|at| Self::parse(&program[at + 3..])).next()
    }

    fn parse(mark: &[u8]) -> Option<Self> {
        // A longer mark is not PHP's.
        const LONGEST: usize = 32;
        let end = mark.iter().take(LONGEST).position(|byte| *byte == 0)?;
        let mut words = std::str::from_utf8(&mark[..end]).ok()?.split(',');
        let api = words.next().filter(|digits| digits.len() == 8)?.parse().ok()?;
        let is_thread_safe = match words.next()? {
            "NTS" => false,
            "TS" => true,
            _ => return None,
        };
        Some(Self { api: PhpApi(api), is_thread_safe, is_debug: words.next() == Some("debug") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_build_is_found_among_other_texts() {
        let build = |is_thread_safe, is_debug| {
            Some(PhpBuild { api: PhpApi(20_220_829), is_thread_safe, is_debug })
        };
        let find = |text: &[u8]| PhpBuild::find(&[b"\0API20 x\0API420220829,NTS\0", text].concat());
        assert_eq!(find(b"API20220829,NTS\0"), build(false, false));
        assert_eq!(find(b"API20220829,TS\0"), build(true, false));
        assert_eq!(find(b"API20220829,NTS,debug\0"), build(false, true));
        for other in [&b"API20220829,NTS"[..], b"API20220829\0", b"API2022082,NTS\0", b""] {
            assert_eq!(find(other), None);
        }
    }

    #[test]
    fn versions_have_apis() {
        assert_eq!(PhpApi(20_240_924).version(), Some("8.4"));
        assert_eq!(PhpApi(20_210_902).version(), None);
    }
}
