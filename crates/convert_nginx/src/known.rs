//! Directives that need no equal: they have no effect on answers, or Sendoff does the same.

use super::tree::Directive;

/// Prefixes of directives about caches, buffers and files on the way.
const PREFIXES: [&str; 8] = [
    "ssl_session",
    "open_file_cache",
    "proxy_temp",
    "fastcgi_temp",
    "variables_hash",
    "map_hash",
    "types_hash",
    "server_names_hash",
];

/// Directives about the way in which nginx works: buffers, threads, connections. The bytes of an
/// answer do not depend on them.
const WAYS: &[&str] = &[
    "accept_mutex",
    "aio",
    "autoindex_exact_size",
    "autoindex_format",
    "autoindex_localtime",
    "client_body_buffer_size",
    "client_body_temp_path",
    "client_header_buffer_size",
    "daemon",
    "directio",
    "error_log",
    "events",
    "fastcgi_buffer_size",
    "fastcgi_buffering",
    "fastcgi_buffers",
    "fastcgi_busy_buffers_size",
    "fastcgi_connect_timeout",
    "fastcgi_keep_conn",
    "fastcgi_max_temp_file_size",
    "fastcgi_request_buffering",
    "fastcgi_send_timeout",
    "fastcgi_socket_keepalive",
    "gzip_buffers",
    "gzip_comp_level",
    "gzip_disable",
    "gzip_http_version",
    "gzip_proxied",
    "gzip_static",
    "gzip_vary",
    "http2",
    "http2_max_concurrent_streams",
    "keepalive_requests",
    "large_client_header_buffers",
    "lingering_close",
    "lingering_time",
    "lingering_timeout",
    "load_module",
    "log_not_found",
    "master_process",
    "multi_accept",
    "output_buffers",
    "pcre_jit",
    "pid",
    "postpone_output",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_headers_hash_bucket_size",
    "proxy_headers_hash_max_size",
    "proxy_http_version",
    "proxy_max_temp_file_size",
    "proxy_send_timeout",
    "proxy_socket_keepalive",
    "proxy_ssl_server_name",
    "read_ahead",
    "reset_timedout_connection",
    "resolver",
    "resolver_timeout",
    "scgi_temp_path",
    "sendfile",
    "sendfile_max_chunk",
    "server_tokens",
    "ssl_buffer_size",
    "ssl_ciphers",
    "ssl_conf_command",
    "ssl_dhparam",
    "ssl_early_data",
    "ssl_ecdh_curve",
    "ssl_prefer_server_ciphers",
    "ssl_stapling",
    "ssl_stapling_verify",
    "ssl_trusted_certificate",
    "tcp_nodelay",
    "tcp_nopush",
    "timer_resolution",
    "use",
    "uwsgi_temp_path",
    "worker_connections",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_rlimit_core",
    "worker_rlimit_nofile",
    "worker_shutdown_timeout",
    // Redirects name no scheme, host and port.
    "absolute_redirect",
    "port_in_redirect",
    "server_name_in_redirect",
    // The path behind a script is always its path info, and a folder has an index file.
    "fastcgi_index",
    "fastcgi_split_path_info",
];

/// Definitions. A rule that uses an unknown definition is left out with a remark.
const DEFINITIONS: &[&str] = &[
    "geo",
    "limit_conn_zone",
    "limit_req_zone",
    "log_format",
    "map",
    "set",
    "split_clients",
    "upstream",
];

/// Variables of nginx that `set` changes, with an effect of their own.
const EFFECTIVE_VARIABLES: [&str; 3] = ["$args", "$limit_rate", "$query_string"];

/// Directives with the arguments for which Sendoff does the same.
const SAME: &[(&str, &[&str])] = &[
    ("autoindex", &["off"]),
    ("charset", &["off"]),
    ("chunked_transfer_encoding", &["on"]),
    ("default_type", &["application/octet-stream"]),
    ("etag", &["on"]),
    ("fastcgi_cache", &["off"]),
    ("fastcgi_intercept_errors", &["off"]),
    ("fastcgi_ignore_client_abort", &["off"]),
    ("fastcgi_pass_request_body", &["on"]),
    ("fastcgi_pass_request_headers", &["on"]),
    ("if_modified_since", &["exact"]),
    ("ignore_invalid_headers", &["on"]),
    ("limit_rate", &["0"]),
    ("merge_slashes", &["on"]),
    ("proxy_cache", &["off"]),
    ("proxy_ignore_client_abort", &["off"]),
    ("proxy_intercept_errors", &["off"]),
    ("proxy_pass_request_body", &["on"]),
    ("proxy_pass_request_headers", &["on"]),
    ("recursive_error_pages", &["off"]),
    ("ssi", &["off"]),
    ("ssl", &["off"]),
    ("underscores_in_headers", &["off"]),
];

/// True if the directive needs no equal.
pub(super) fn needs_nothing(directive: &Directive) -> bool {
    let name = &*directive.name;
    let same = SAME.iter().any(|(known, words)| {
        *known == name && directive.words.len() == 1 && words.contains(&directive.word())
    });
    let defines = DEFINITIONS.contains(&name)
        && !(name == "set" && EFFECTIVE_VARIABLES.contains(&directive.word()));
    same || defines
        || WAYS.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// True if a directive needs no equal whatever its arguments are.
#[cfg(test)]
pub(super) fn says_all(name: &str) -> bool {
    let defines = DEFINITIONS.contains(&name) && name != "set";
    defines || WAYS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
