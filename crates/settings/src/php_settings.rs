//! The settings that PHP 8.2 to 8.5 know, with the extensions that Debian packages.

use sendoff_setting_values::similar;

/// One name per line: `php -r 'echo implode("\n", array_keys(ini_get_all()));'`, and the settings
/// that PHP reads before it has such entries.
const NAMES: &str = include_str!("php_settings.txt");

/// An unknown name of a setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    /// The most similar known name.
    pub(crate) similar: Option<&'static str>,
}

/// Looks up a name. A name with a dot whose first part is unknown is accepted: any extension may
/// own it.
pub(crate) fn check(name: &str) -> Result<(), Unknown> {
    let names = || NAMES.lines();
    let extension = name.split_once('.').map(|(extension, _)| extension);
    let is_of_known = |extension: &str| {
        names().any(|known| known.split_once('.').is_some_and(|(start, _)| start == extension))
    };
    if names().any(|known| known == name) || extension.is_some_and(|name| !is_of_known(name)) {
        return Ok(());
    }
    Err(Unknown { similar: similar(name, names()) })
}

#[cfg(test)]
mod tests {
    use sendoff_config::PHP_VERSION;

    use super::*;

    #[test]
    fn every_setting_of_the_installed_php_is_known() {
        let list = "echo implode(\"\\n\", array_keys(ini_get_all()));";
        // Without php.ini: the extensions that are built in.
        let output = std::process::Command::new(format!("php{PHP_VERSION}"))
            .args(["-n", "-r", list])
            .output();
        let output = output.expect("install the package php-cli");
        let names = String::from_utf8(output.stdout).unwrap();
        assert!(names.lines().count() > 100, "{names}");
        for name in names.lines() {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn mistakes_are_found_and_other_extensions_are_not() {
        for (name, expected) in [
            ("memory_limt", Err(Some("memory_limit"))),
            ("opcache.enabled", Err(Some("opcache.enable"))),
            ("date.timezon", Err(Some("date.timezone"))),
            ("magic_quotes_gpc", Err(None)),
            ("memory_limit", Ok(())),
            ("extension", Ok(())),
            ("newrelic.appname", Ok(())),
        ] {
            assert_eq!(check(name).map_err(|unknown| unknown.similar), expected, "{name}");
        }
    }
}
