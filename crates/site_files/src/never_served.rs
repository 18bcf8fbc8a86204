//! Files in a site's folders that are never served: hidden files, copies left behind by editors and
//! people, databases, lists of installed packages. The operator makes exceptions by name (`serve`).

use std::fmt;

use sendoff_config::url_path::has_ending;

/// Endings of files that editors, package managers and people leave beside the originals, often
/// configuration files with passwords.
const LEFT_BEHIND: [&str; 9] =
    ["~", ".bak", ".old", ".orig", ".save", ".swp", ".swo", ".dpkg-old", ".dpkg-dist"];

/// Endings of database dumps.
const DUMPS: [&str; 2] = [".sql", ".sql.gz"];

/// Files that reveal the versions of installed packages to attackers.
const PACKAGE_LISTS: [&str; 3] = ["composer.json", "composer.lock", "installed.json"];

/// Folders of version control systems whose names do not begin with a dot.
const VERSION_CONTROL: [&str; 2] = ["CVS", "_darcs"];

/// Endings of files that PHP installations run. Such files are never sent as static files, because
/// their source may contain passwords.
const SOURCES: [&str; 9] =
    [".php", ".phar", ".phtml", ".phps", ".pht", ".php3", ".php4", ".php5", ".php7"];

/// The reason why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Protected {
    what: &'static str,
    /// The exception that would allow it.
    exception: String,
}

impl fmt::Display for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, exception } = self;
        write!(f, "{what}; serve = [{exception:?}] or --serve '{exception}' would allow it")
    }
}

/// The names that the operator allows nevertheless.
#[derive(Debug, Default)]
pub(crate) struct Exceptions(Vec<Vec<u8>>);

impl Exceptions {
    /// Exceptions for names, or for endings that are written as `*.sql`.
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.as_bytes().to_ascii_lowercase()).collect())
    }

    fn allow(&self, name: &[u8]) -> bool {
        self.0.iter().any(|allowed| match allowed.strip_prefix(b"*") {
            Some(ending) => has_ending(name, ending),
            None => name.eq_ignore_ascii_case(allowed),
        })
    }

    /// The reason to refuse a path without looking at the file: a part of the path begins with a
    /// dot. `.well-known` is public (RFC 8615).
    pub(crate) fn hidden(&self, path: &[u8]) -> Option<Protected> {
        let mut names = path.split(|&b| b == b'/').filter(|name| name.starts_with(b"."));
        let name = names.find(|name| *name != b".well-known" && !self.allow(name))?;
        let exception = String::from_utf8_lossy(name).into_owned();
        Some(Protected { what: "names that begin with a dot are not served", exception })
    }

    /// The reason to refuse an existing file or folder, because of a name in its path.
    pub(crate) fn protected(&self, path: &[u8]) -> Option<Protected> {
        path.split(|&b| b == b'/').filter(|name| !name.is_empty()).find_map(|name| {
            let (what, exception) = kind(name)?;
            (!self.allow(name)).then_some(Protected { what, exception })
        })
    }
}

/// The category of a refused name, and the exception that would allow it.
fn kind(name: &[u8]) -> Option<(&'static str, String)> {
    let ending = |endings: &[&str]| {
        let found = endings.iter().find(|ending| has_ending(name, ending.as_bytes()));
        found.map(|ending| format!("*{ending}"))
    };
    let whole = |names: &[&str]| {
        let found = names.iter().find(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|name| (*name).to_owned())
    };
    let backup = ending(&LEFT_BEHIND).map(|exception| ("backups are not served", exception));
    backup
        .or_else(|| ending(&DUMPS).map(|exception| ("database dumps are not served", exception)))
        .or_else(|| whole(&PACKAGE_LISTS).map(|name| ("package lists are not served", name)))
        .or_else(|| {
            whole(&VERSION_CONTROL).map(|name| ("version control folders are not served", name))
        })
}

/// True if a path has the ending of a file that PHP runs.
pub(crate) fn is_source(path: &[u8]) -> bool {
    SOURCES.iter().any(|ending| has_ending(path, ending.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of names in docs/config.md matches this file.
    #[test]
    fn the_document_lists_every_name_and_no_other() {
        let page = include_str!("../../../docs/config.md");
        let section = page.split("### Names that are never served").nth(1).unwrap();
        let rows: Vec<_> = section
            .split("\n## ")
            .next()
            .unwrap()
            .lines()
            .filter(|l| l.starts_with("| "))
            .collect();
        let endings = |list: &[&str]| list.iter().map(|e| format!("*{e}")).collect::<Vec<_>>();
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let expected = [
            endings(&LEFT_BEHIND),
            endings(&DUMPS),
            names(&PACKAGE_LISTS),
            names(&VERSION_CONTROL),
            endings(&SOURCES),
        ];
        // Before these rows there are the column titles, and the row for names that begin with a
        // dot.
        assert_eq!(rows.len(), 2 + expected.len());
        for (row, expected) in rows[2..].iter().zip(expected) {
            let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            let listed: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
            assert_eq!(listed, expected);
        }
    }

    #[test]
    fn names_that_are_never_served_and_exceptions() {
        let none = Exceptions::default();
        let some = Exceptions::new(&["*.sql".into(), "composer.json".into(), ".env".into()]);
        for (path, refused, with_exceptions) in [
            ("/a.txt", false, false),
            ("/wp-config.php.bak", true, true),
            ("/wp-config.php~", true, true),
            ("/Old.SQL", true, false),
            ("/a.sql.gz", true, true),
            ("/vendor/composer/installed.json", true, true),
            ("/COMPOSER.JSON", true, false),
            ("/x/CVS/Entries", true, true),
            ("/bak", false, false),
            ("/a.bak/b.txt", true, true),
        ] {
            assert_eq!(none.protected(path.as_bytes()).is_some(), refused, "{path}");
            assert_eq!(some.protected(path.as_bytes()).is_some(), with_exceptions, "{path}");
        }
        for (path, refused, with_exceptions) in [
            ("/.env", true, false),
            ("/.git/config", true, true),
            ("/.well-known/acme", false, false),
            ("/.well-known/.x", true, true),
            ("/a.b", false, false),
        ] {
            assert_eq!(none.hidden(path.as_bytes()).is_some(), refused, "{path}");
            assert_eq!(some.hidden(path.as_bytes()).is_some(), with_exceptions, "{path}");
        }
        let why = none.protected(b"/b.sql").unwrap().to_string();
        assert!(why.contains("--serve '*.sql'"), "{why}");
        for (path, is) in [("/a.PHP", true), ("/a.phtml", true), ("/a.php.txt", false)] {
            assert_eq!(is_source(path.as_bytes()), is, "{path}");
        }
    }
}
