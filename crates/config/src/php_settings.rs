//! A pool's settings for PHP, as lines of php.ini.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use sendoff_sys::process::find_user;

use crate::PoolConfig;

/// The settings as lines `KEY=VALUE`; later lines override earlier ones.
pub fn lines(pool: &PoolConfig) -> impl Iterator<Item = String> {
    // With `watch`, a changed file takes effect at the next start of a worker.
    let is_watched = pool.worker.as_ref().is_some_and(|worker| !worker.watch.is_empty());
    let watched = is_watched.then(|| "opcache.revalidate_freq=0".to_owned());
    let values = pool.php_values.iter().chain(&pool.php_admin_values);
    let values = values.map(|(name, value)| format!("{name}={}", quoted(value)));
    // Worker scripts use opcache as long as they run. After a reset opcache would kill them.
    let stays = pool.worker.as_ref().map(|_| "opcache.force_restart_timeout=0".to_owned());
    let own = stays.into_iter().chain(watched).chain(preload_user(pool));
    own.chain(pool.php_ini.iter().cloned()).chain(values)
}

/// The user for preloading scripts, which PHP requires if it starts as root: the user of the pool.
fn preload_user(pool: &PoolConfig) -> Option<String> {
    let values = pool.php_values.iter().chain(&pool.php_admin_values).map(|(name, _)| &**name);
    let lines = pool.php_ini.iter().map(|line| line.split('=').next().unwrap_or_default().trim());
    values.chain(lines).find(|name| *name == "opcache.preload")?;
    let user = find_user(pool.account?.uid)?.name.into_string().ok()?;
    Some(format!("opcache.preload_user={}", quoted(&user)))
}

/// Quotes a value so that PHP takes it literally: within single quotes no character is special. A
/// single quote is put between double quotes; PHP joins adjacent strings.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', SINGLE_QUOTE))
}

/// A single quote within a text in single quotes.
const SINGLE_QUOTE: &str = "'\"'\"'";

/// A path as a value in php.ini, which PHP takes literally.
#[must_use]
pub fn quoted_path(path: &Path) -> OsString {
    let parts: Vec<_> = path.as_os_str().as_bytes().split(|byte| *byte == b'\'').collect();
    OsString::from_vec([b"'", &*parts.join(SINGLE_QUOTE.as_bytes()), b"'"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workers;

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

    #[test]
    fn scripts_are_preloaded_by_the_user_of_the_pool_unless_another_is_named() {
        let of = |lines: &[&str], uid| {
            let account = Some(crate::Account { uid, gid: 0 });
            let php_ini = lines.iter().map(|&line| line.to_owned()).collect();
            let pool = PoolConfig { php_ini, account, ..PoolConfig::new("p", Workers::Fixed(1)) };
            super::lines(&pool).collect::<Vec<_>>()
        };
        let preload = "opcache.preload = /p.php";
        assert_eq!(of(&[preload], 0), ["opcache.preload_user='root'", preload]);
        // The last setting takes effect.
        let named = "opcache.preload_user=other";
        assert_eq!(of(&[named, preload], 0), ["opcache.preload_user='root'", named, preload]);
        let other = ["opcache.enable=1"];
        assert_eq!(of(&other, 0), other);
    }
}
