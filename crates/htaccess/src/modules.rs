//! The environment of `<IfModule>`, `<IfVersion>` and `<IfDefine>`: Apache 2.4 with the modules
//! that applications expect.

use crate::text::{lossy, number};

/// The version that `<IfVersion>` compares.
const VERSION: [i64; 3] = [2, 4, 62];

/// Modules that count as loaded: Debian's default modules, modules whose directives are obeyed, and
/// modules whose work the server does itself (compression, file types).
pub(crate) const MODULES: [(&str, &str); 29] = [
    ("core.c", "core_module"),
    ("http_core.c", "http_module"),
    ("mod_so.c", "so_module"),
    ("mod_access_compat.c", "access_compat_module"),
    ("mod_alias.c", "alias_module"),
    ("mod_auth_basic.c", "auth_basic_module"),
    ("mod_authn_core.c", "authn_core_module"),
    ("mod_authn_file.c", "authn_file_module"),
    ("mod_authz_core.c", "authz_core_module"),
    ("mod_authz_groupfile.c", "authz_groupfile_module"),
    ("mod_authz_host.c", "authz_host_module"),
    ("mod_authz_user.c", "authz_user_module"),
    ("mod_autoindex.c", "autoindex_module"),
    ("mod_deflate.c", "deflate_module"),
    ("mod_dir.c", "dir_module"),
    ("mod_env.c", "env_module"),
    ("mod_expires.c", "expires_module"),
    ("mod_filter.c", "filter_module"),
    ("mod_headers.c", "headers_module"),
    ("mod_log_config.c", "log_config_module"),
    ("mod_mime.c", "mime_module"),
    ("mod_negotiation.c", "negotiation_module"),
    ("mod_reqtimeout.c", "reqtimeout_module"),
    ("mod_rewrite.c", "rewrite_module"),
    ("mod_setenvif.c", "setenvif_module"),
    ("mod_ssl.c", "ssl_module"),
    ("mod_status.c", "status_module"),
    ("mod_unixd.c", "unixd_module"),
    ("mod_version.c", "version_module"),
];

/// PHP's module under its names in all versions. Applications turn PHP off in upload folders by the
/// name of their time, so each name counts as loaded.
pub(crate) const PHP: [(&str, &str); 4] = [
    ("mod_php.c", "php_module"),
    ("mod_php5.c", "php5_module"),
    ("mod_php7.c", "php7_module"),
    ("mod_php8.c", "php8_module"),
];

/// True if a module counts as loaded.
pub(crate) fn is_loaded(name: &[u8]) -> bool {
    let known =
        |(file, module): &(&str, &str)| name == file.as_bytes() || name == module.as_bytes();
    MODULES.iter().chain(&PHP).any(known)
}

/// `<IfVersion [OPERATOR] VERSION>`
pub(crate) fn version(words: &[Vec<u8>]) -> Result<bool, String> {
    let (operator, version) = match words {
        [version] => (&b"="[..], version),
        [operator, version] => (operator.as_slice(), version),
        _ => return Err("<IfVersion> wants an operator and a version".to_owned()),
    };
    let (negated, operator) = match operator.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, operator),
    };
    let parts: Vec<&[u8]> = version.split(|byte| *byte == b'.').collect();
    let is_number = |part: &&[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if parts.len() > 3 || !parts.iter().all(is_number) {
        return Err(format!("<IfVersion> does not understand {:?}", lossy(version)));
    }
    let mut wanted = [0; 3];
    for (part, wanted) in parts.iter().zip(&mut wanted) {
        *wanted = number(part);
    }
    let holds = match operator {
        // Only the given parts of the version are compared.
        b"" | b"=" | b"==" => VERSION[..parts.len()] == wanted[..parts.len()],
        b">" => VERSION > wanted,
        b">=" => VERSION >= wanted,
        b"<" => VERSION < wanted,
        b"<=" => VERSION <= wanted,
        other => return Err(format!("<IfVersion> has no operator {:?}", lossy(other))),
    };
    Ok(holds != negated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let holds = |text: &str| version(&crate::syntax::words(text.as_bytes())).unwrap();
        assert!(holds(">= 2.4") && holds("2.4") && holds("< 2.5") && holds("!< 2.4"));
        assert!(!holds("< 2.4") && !holds("= 2.2") && !holds("2.4.1"));
    }
}
