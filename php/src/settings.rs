//! A pool's settings for PHP, as lines of php.ini.

use sendoff_config::PoolConfig;

/// Lines `KEY=VALUE`; later ones win.
pub(crate) fn lines(pool: &PoolConfig) -> impl Iterator<Item = String> {
    // With `watch`, a changed file counts from the next start of a worker on.
    let is_watched = pool.worker.as_ref().is_some_and(|worker| !worker.watch.is_empty());
    let watched = is_watched.then(|| "opcache.revalidate_freq=0".to_owned());
    let values = pool.php_values.iter().chain(&pool.php_admin_values);
    let values = values.map(|(name, value)| format!("{name}={}", quoted(value)));
    watched.into_iter().chain(pool.php_ini.iter().cloned()).chain(values)
}

/// A value that PHP reads as it is: within single quotes no character has a meaning. A single quote itself stands in double ones;
/// PHP joins what stands side by side.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "'\"'\"'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_config::Workers;

    #[test]
    fn values_are_quoted_and_come_after_lines_of_php_ini() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let pool = PoolConfig {
            php_ini: vec!["error_reporting=E_ALL".to_owned()],
            php_values: vec![pair("a", "x;y \"z\" ${HOME}")],
            php_admin_values: vec![pair("b", "it's \"\\")],
            ..PoolConfig::new("p", Workers::Fixed(1))
        };
        let expected = ["error_reporting=E_ALL", "a='x;y \"z\" ${HOME}'", "b='it'\"'\"'s \"\\'"];
        assert_eq!(lines(&pool).collect::<Vec<_>>(), expected);
    }
}
