//! PHP's state in the report of a pool, as text for people.

use std::collections::BTreeSet;
use std::fmt;

use sendoff_config::HostProgram;
use sendoff_report::workers::{OpcacheReport, PhpReport};
use serde::{Deserialize, Serialize};

use crate::report::mega;

/// The stock PHP program that hosts the workers of a pool.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HostReport {
    /// Its file, such as `/usr/sbin/php-fpm8.2`.
    pub(crate) file: String,
    /// Its version, such as "8.2".
    pub(crate) version: String,
}

impl HostReport {
    pub(crate) fn new(host: &HostProgram) -> Self {
        Self {
            file: host.file.display().to_string(),
            version: host.api.version().unwrap_or_default().to_owned(),
        }
    }
}

/// The extensions that all pools have whose PHP has reported; `None` if fewer than two have.
pub(crate) fn common_extensions<'r>(
    reports: impl Iterator<Item = &'r PhpReport>,
) -> Option<BTreeSet<&'r str>> {
    let mut all: Vec<BTreeSet<_>> = reports.map(extensions).collect();
    let first = all.pop().filter(|_| !all.is_empty())?;
    Some(all.iter().fold(first, |common, these| &common & these))
}

fn extensions(php: &PhpReport) -> BTreeSet<&str> {
    php.extensions.iter().map(String::as_str).collect()
}

/// Writes PHP's program, version and state, and the extensions that other pools lack.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    host: Option<&HostReport>,
    php: Option<&PhpReport>,
    common: Option<&BTreeSet<&str>>,
) -> fmt::Result {
    let version = match (php, host) {
        (Some(php), _) => &php.version,
        (None, Some(host)) => &host.version,
        (None, None) => return Ok(()),
    };
    write!(f, "             PHP {version}")?;
    if let Some(HostReport { file, .. }) = host {
        write!(f, " in {file}")?;
    }
    let Some(php) = php else { return writeln!(f) };
    if let Some(opcache) = &php.opcache {
        write_opcache(f, opcache)?;
    }
    if let Some(size) = php.apcu {
        write!(f, ", APCu {:.1} MB", mega(size))?;
    }
    writeln!(f)?;
    let Some(common) = common else { return Ok(()) };
    let own: Vec<_> = (&extensions(php) - common).into_iter().collect();
    if own.is_empty() {
        return Ok(());
    }
    writeln!(f, "             extensions that not every pool has: {}", own.join(", "))
}

fn write_opcache(f: &mut fmt::Formatter<'_>, opcache: &OpcacheReport) -> fmt::Result {
    let OpcacheReport { enabled, memory, jit, preload, file_cache } = opcache;
    match (enabled, memory) {
        (_, 0) => f.write_str(", opcache in files alone")?,
        (true, memory) => write!(f, ", opcache {:.1} MB", mega(*memory))?,
        (false, _) => f.write_str(", opcache takes no new scripts")?,
    }
    match jit {
        Some(size) => write!(f, ", JIT {:.1} MB", mega(*size))?,
        None => f.write_str(", no JIT")?,
    }
    if let Some(script) = preload {
        write!(f, ", preloaded by {script}")?;
    }
    match file_cache {
        Some(folder) => write!(f, ", files in {folder}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text<'r>(&'r PhpReport, Option<BTreeSet<&'r str>>);

    impl fmt::Display for Text<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write(f, None, Some(self.0), self.1.as_ref())
        }
    }

    #[test]
    fn extensions_are_named_where_pools_differ() {
        let php = |extensions: &[&str]| PhpReport {
            version: "8.2.36".to_owned(),
            opcache: None,
            apcu: None,
            extensions: extensions.iter().map(|&name| name.to_owned()).collect(),
        };
        let pools = [php(&["standard", "intl", "gd"]), php(&["gd", "standard"])];
        let text =
            |pools: &[PhpReport]| Text(&pools[0], common_extensions(pools.iter())).to_string();
        let line = "             PHP 8.2.36\n";
        assert_eq!(
            text(&pools),
            format!("{line}             extensions that not every pool has: intl\n")
        );
        assert_eq!(text(&pools[1..]), line);
        assert_eq!(text(&[php(&["gd"]), php(&["gd", "intl"])]), line);
    }
}
