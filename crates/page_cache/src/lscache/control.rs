//! `X-LiteSpeed-Cache-Control`, and the variable `Cache-Control` of `.htaccess` files.

use std::time::Duration;

/// The clients that get a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All clients.
    Public,
    /// The client whose request made it.
    Private,
}

/// The directives about one page or request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Control {
    /// `no-cache`, `no-store`
    pub(crate) forbids: bool,
    is_private: bool,
    max_age: Option<u64>,
    shared_max_age: Option<u64>,
    max_stale: Option<u64>,
    /// `vary=TEXT`, which only `.htaccess` files say: further text in the key of the request's page.
    pub(crate) vary: Option<String>,
}

impl Control {
    /// Reads directives, separated by commas. A lifetime that is no number counts as 0, and unknown
    /// directives have no effect. A directive that restricts the page counts wherever it appears, for
    /// example before a semicolon: LiteSpeed compares beginnings. `shared` counts as `private`:
    /// users whose pages are alike are not known.
    pub(crate) fn parse(text: &str) -> Self {
        let mut control = Self::default();
        for word in text.split(',').map(str::trim) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let name = name.trim().to_ascii_lowercase();
            if name == "vary" {
                control.vary = Some(value.trim().to_owned());
                continue;
            }
            let word = word.to_ascii_lowercase();
            let has = |restrictions: [&str; 2]| restrictions.iter().any(|it| word.contains(it));
            control.forbids |= has(["no-cache", "no-store"]);
            control.is_private |= has(["private", "shared"]);
            let seconds = || Some(value.trim().trim_matches('"').parse().unwrap_or(0));
            match name.as_str() {
                "max-age" => control.max_age = seconds(),
                "s-maxage" => control.shared_max_age = seconds(),
                "max-stale" => control.max_stale = seconds(),
                _ => {}
            }
        }
        control
    }

    pub(crate) fn audience(&self) -> Audience {
        if self.is_private { Audience::Private } else { Audience::Public }
    }

    /// Lifetime of the page; `None`: no directive gives one.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        let shared = self.shared_max_age.filter(|_| !self.is_private);
        shared.or(self.max_age).map(Duration::from_secs)
    }

    /// Time for which the old page may be sent while a new one is made.
    pub(crate) fn max_stale(&self) -> Option<Duration> {
        self.max_stale.map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_as_plugins_write_them() {
        let lifetime = |text: &str| Control::parse(text).lifetime().map(|time| time.as_secs());
        for (text, seconds) in [
            ("public,max-age=604800", Some(604_800)),
            ("max-age=5", Some(5)),
            ("shared, private, no-vary, max-age=1800,esi=on", Some(1800)),
            ("public,max-age=60,s-maxage=10", Some(10)),
            ("private,max-age=60,s-maxage=10", Some(60)),
            ("Public, Max-Age = \"7\"", Some(7)),
            ("public,max-age=soon", Some(0)),
            ("public", None),
            ("esi=on", None),
        ] {
            assert_eq!(lifetime(text), seconds, "{text}");
        }
        assert!(Control::parse("no-cache,esi=on").forbids);
        assert!(Control::parse("public, No-Store, max-age=9").forbids);
        for forbidden in
            ["no-cache; public, max-age=60", "No-Cache ;x", "public; no-store,max-age=1"]
        {
            assert!(Control::parse(forbidden).forbids, "{forbidden}");
        }
        for private in ["private; x, max-age=1", "public; private, max-age=1", "Shared max-age=1"] {
            assert_eq!(Control::parse(private).audience(), Audience::Private, "{private}");
        }
        assert!(!Control::parse("vary=no-cache;private").forbids);
        assert!(!Control::parse("no-vary,no-autoflush").forbids);
        assert_eq!(Control::parse("private,max-age=1").audience(), Audience::Private);
        assert_eq!(Control::parse("shared,max-age=1").audience(), Audience::Private);
        assert_eq!(Control::parse("max-age=1").audience(), Audience::Public);
        assert_eq!(Control::parse("vary=+webp").vary.as_deref(), Some("+webp"));
    }
}
