//! Words of other servers that are not keys here, and the advice for each.
//!
//! A word for which a key with another name exists is in the table of keys (`also`, in `keys.rs`).

const TLS: &str = "tls of [[site]] names the certificate, and an address with tls speaks it";
const CIPHERS: &str = "remove it: the server keeps sessions by itself, and tls_ciphers and tls_groups at the top of the file restrict the algorithms";
const COMPRESSION: &str = "compress = true needs no such key: levels and Vary are chosen by the server (docs/compression.md)";
const PROXY: &str = "a route passes requests on: proxy = \"http://127.0.0.1:8080\", also with h2://, scgi://, uwsgi:// and ajp:// (docs/gateway.md)";
const GRPC: &str = "gRPC is HTTP/2: a route passes it on with proxy = \"h2://127.0.0.1:50051\", over TLS with h2s:// (docs/gateway.md)";
const UWSGI: &str =
    "a route passes requests on: proxy = \"uwsgi://unix:/run/app.sock\" (docs/gateway.md)";
const BY_ITSELF: &str = "remove it: there is nothing to set here";
const WORKERS: &str = "for a fixed number write workers = 16, else workers = \"auto\" or \"ondemand\" with min_workers and max_workers";
const SOCKET: &str = "workers need no socket of their own; of a site it stands behind the address: listen = \"unix:/run/a.sock mode=0660 owner=www-data group=www-data\"";

/// Words, and the advice for them. They are compared in lower case; a dot is part of the word, as
/// in php-fpm's `pm.status_path`.
const TABLE: &[(&[&str], &str)] = &[
    (&["https", "sslengine"], TLS),
    (
        &[
            "ssl_dhparam",
            "ssl_prefer_server_ciphers",
            "ssl_session_cache",
            "ssl_session_tickets",
            "ssl_session_timeout",
            "ssl_stapling",
            "ssl_stapling_verify",
            "ssl_trusted_certificate",
            "sslhonorcipherorder",
            "sslsessiontickets",
        ],
        CIPHERS,
    ),
    (&["http2", "protocols"], "HTTP/2 needs no key: with TLS, clients choose it"),
    (&["http3", "quic"], "HTTP/3 is a word behind an address: listen = \"443 tls h3\""),
    (&["deflate", "gzip_comp_level", "gzip_disable", "gzip_proxied", "gzip_vary"], COMPRESSION),
    (&["balancermember", "jkworkersfile"], PROXY),
    (
        &["proxypassreverse"],
        "URLs with the address of the application become the site's by themselves; others: redirects in the proxy table",
    ),
    (&["grpc_pass"], GRPC),
    (&["uwsgi_pass"], UWSGI),
    (&["default_server"], "a site without hosts answers for all other hosts"),
    (
        &[
            "accept_mutex",
            "acceptfilter",
            "daemon",
            "daemonize",
            "enablesendfile",
            "etag",
            "events",
            "fastcgi_buffer_size",
            "fastcgi_buffering",
            "fastcgi_buffers",
            "fastcgi_index",
            "fastcgi_keep_conn",
            "fastcgi_split_path_info",
            "http",
            "hostnamelookups",
            "keepalive",
            "keepalive_requests",
            "loadmodule",
            "log_not_found",
            "maxkeepaliverequests",
            "multi_accept",
            "output_buffers",
            "pid",
            "pidfile",
            "real_ip_recursive",
            "sendfile",
            "server_names_hash_bucket_size",
            "server_tokens",
            "serveradmin",
            "servertokens",
            "serversignature",
            "tcp_nodelay",
            "tcp_nopush",
            "threadsperchild",
            "types_hash_max_size",
            "worker_rlimit_nofile",
        ],
        BY_ITSELF,
    ),
    (&["pm"], WORKERS),
    (
        &[
            "listen.mode",
            "listen.owner",
            "listen.group",
            "socket_mode",
            "socket_owner",
            "socket_group",
        ],
        SOCKET,
    ),
    (&["listen.backlog"], BY_ITSELF),
    (
        &["max_spare_servers", "pm.max_spare_servers"],
        "remove it: workers end after worker_idle_timeout without a request, down to min_workers",
    ),
    (
        &["listen.allowed_clients"],
        "rules about addresses are routes: [[site.route]] with allow_from",
    ),
    (
        &["fastcgi_hide_header"],
        "response_headers = { X-Powered-By = false } of [[site.route]] removes a field",
    ),
    (&["fancyindex"], "listing = true of a [[site.route]] lists folders without an index file"),
    (
        &["options"],
        "symlinks says where symbolic links may lead, listing = true of a [[site.route]] lists folders; there are no MultiViews",
    ),
    (
        &["if", "rewritecond", "rewriteengine"],
        "conditions are keys of [[site.route]]: match, header, query, when, method; .htaccess files hold where they lie",
    ),
    (&["satisfy"], "of a route every rule holds: allow_from and auth in one route ask for both"),
    (&["security.limit_extensions"], "php_only of [[site]] names the scripts that run"),
    (&["catch_workers_output", "clear_env", "decorate_workers_output", "rlimit_files"], BY_ITSELF),
    (
        &["access.log", "access.format"],
        "requests are logged by the server: access_log, before the first section",
    ),
];

/// The advice for a word of another server.
pub(crate) fn advice(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let found = TABLE.iter().find(|(words, _)| words.contains(&&*word));
    found.map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::keys::{Pool, Proxy, Route, Site, Tls, Top};
    use crate::section::{Key, Section};

    fn keys() -> impl Iterator<Item = &'static Key> {
        [Top::KEYS, Site::KEYS, Route::KEYS, Pool::KEYS, Tls::KEYS, Proxy::KEYS]
            .into_iter()
            .flatten()
    }

    #[test]
    fn every_word_is_in_the_table_once_and_is_no_key() {
        let mut seen = HashSet::new();
        for word in TABLE.iter().flat_map(|(words, _)| *words) {
            assert!(seen.insert(word), "{word}");
            assert_eq!(*word, word.to_ascii_lowercase());
            let known = |key: &&Key| {
                key.name == *word || key.also.iter().any(|also| also.eq_ignore_ascii_case(word))
            };
            assert!(!keys().any(|key| known(&key)), "{word} is a key, or another name of one");
        }
    }

    /// The words that newcomers try first.
    #[test]
    fn common_words_of_other_servers_are_known() {
        for word in [
            "access_log",
            "error_log",
            "location",
            "server_name",
            "gzip",
            "ssl_certificate",
            "pm",
            "pm.max_children",
            "pm.start_servers",
            "fastcgi_pass",
            "client_max_body_size",
            "expires",
            "add_header",
            "DocumentRoot",
            "ServerAlias",
            "php_admin_flag",
            "try_files",
            "return",
            "deny",
            "proxy_pass",
            "reverse_proxy",
            "tls",
            "encode",
            "file_server",
            "request_terminate_timeout",
            "listen.owner",
            "error_page",
            "worker_processes",
            "include",
            "AllowOverride",
            "SetEnv",
            "Header",
            "auth_basic",
            "autoindex",
            "keepalive_timeout",
            "sendfile",
            "fastcgi_param",
            "RewriteRule",
            "ErrorLog",
        ] {
            let is_named = |key: &Key| {
                key.name == word || key.also.iter().any(|also| also.eq_ignore_ascii_case(word))
            };
            assert!(keys().any(is_named) || advice(word).is_some(), "{word}");
        }
    }
}
