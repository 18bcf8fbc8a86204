//! The keys of the configuration file. Everything that knows them is made from these declarations.

use std::time::Duration;

use crate::nested::{Inline, Sections, Short};
use crate::section::{Key, Section, section};
use crate::value::{List, Map, Number, Yes};
use crate::words::{
    AcmeDirectory, App, AppAddress, Backend, Caching, Candidate, CertificateFrom, Client,
    ClientCertificates, Coding, Command, Compress, Count, Delivery, Destination, Email, Ending,
    Expression, FieldName, FieldTest, FileName, FilePath, ForwardedFields, Free, Frequency,
    FrontController, HeaderOp, HeaderText, HostName, HostText, Hsts, IniSettings, Keep, LineFormat,
    Listen, LogPath, Matching, Method, MimeType, ParamName, Php, PositiveTime, Prefix, Processors,
    ProxyField, ProxyHost, ProxyUrl, QueryName, Raw, Replacement, Size, Snapshot, Status, Symlinks,
    Template, Time, TlsVersion, Umask, UrlPath,
};

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// The keys of all sections, by their titles.
const SECTIONS: &[(&str, &[Key])] = &[
    (Top::TITLE, Top::KEYS),
    (Site::TITLE, Site::KEYS),
    (Route::TITLE, Route::KEYS),
    (Pool::TITLE, Pool::KEYS),
    (Upstream::TITLE, Upstream::KEYS),
    (Auth::TITLE, Auth::KEYS),
    (Authorize::TITLE, Authorize::KEYS),
    (Proxy::TITLE, Proxy::KEYS),
    (Tls::TITLE, Tls::KEYS),
];

section! {
    /// What holds for the whole server. These keys stand before the first section.
    Top "the top level"

    /// Further files, with `*` and `?` in their names; their sections count as if they stood here.
    include: List<FilePath>,
        example "\"/etc/sendoff/sites/*.toml\"", also "import" "IncludeOptional";
    /// Addresses of the sites that name none. `8080` is every address of the machine. Behind an address, `tls` says that
    /// clients speak TLS there, `proxy_protocol` that connections begin with a header of the PROXY protocol.
    listen: List<Listen> = List::of([Listen::tcp(std::net::Ipv4Addr::LOCALHOST.into(), 8080)]),
        example "[\"80\", \"443 tls\"]", also "Listen" "bind" "port" "address";
    /// The user that the server and PHP run as, if root starts them.
    user: Free, unless "the owner of the first site's root",
        example "\"www-data\"", also "User" "username" "run_as";
    /// Event loops that speak HTTP.
    threads: Number<1, 63>, unless "one per core",
        example "4", also "worker_processes";
    /// Which events are logged: `error`, `warn`, `info`, `debug`; `SENDOFF_LOG` in the environment comes first.
    log: Free = Free("info".to_owned()),
        example "\"warn\"", also "error_log" "ErrorLog" "log_level" "LogLevel";
    /// Where requests are logged; `-` is standard output, `off` nowhere.
    access_log: LogPath, unless "nowhere",
        example "\"/var/log/sendoff/access.log\"", also "CustomLog";
    /// How a line of the access log looks: `combined`, `json`, or a text with variables.
    access_log_format: LineFormat = LineFormat("combined".to_owned()),
        example "\"$remote_addr $request $status $request_time\"", also "log_format" "LogFormat";
    /// Whether each request has an id: `REQUEST_ID` for scripts, `$request_id` in the access log.
    request_id: bool = false,
        example "true";
    /// Proxies whose word about the client is taken (`X-Forwarded-For` and the like, `Forwarded`, PROXY protocol).
    trusted_proxies: List<Client>, unless "none",
        example "[\"10.0.0.0/8\", \"::1\"]", also "set_real_ip_from" "RemoteIPTrustedProxy" "trust_proxy";
    /// Whether every process that connects to a UNIX socket is a trusted proxy.
    trust_unix: bool = false,
        example "true";
    /// The request field in which trusted proxies name the client; with `X-Forwarded-For` go -Proto, -Host and -Port.
    proxy_field: ProxyField = ProxyField::XForwardedFor,
        example "\"Forwarded\"", also "real_ip_header" "RemoteIPHeader";
    /// The largest request body, unless a route says otherwise.
    max_body: Size = Size(1 << 30),
        example "\"64M\"", also "client_max_body_size" "LimitRequestBody" "max_body_size";
    /// How long a request head may take.
    head_timeout: PositiveTime = PositiveTime(seconds(30)),
        example "\"10s\"", also "client_header_timeout" "read_header";
    /// How long a client may pause within a request body.
    body_timeout: PositiveTime = PositiveTime(seconds(60)),
        example "\"60s\"", also "client_body_timeout" "read_body";
    /// How long a connection may wait for a request.
    idle_timeout: PositiveTime = PositiveTime(seconds(75)),
        example "\"15s\"", also "keepalive_timeout" "KeepAliveTimeout" "idle";
    /// How long a client may take nothing of its response.
    send_timeout: PositiveTime = PositiveTime(seconds(60)),
        example "\"60s\"", also "write";
    /// Connections at a time. When there are as many, those that have been idle for longest are closed; if none is idle, new ones wait.
    max_connections: Number<1, 10_000_000>, unless "half of the open files that the server may have",
        example "20000", also "worker_connections" "MaxRequestWorkers" "MaxClients" "maxconn" "server.max-connections";
    /// Connections of one client at a time; further ones are closed at once. A client is an IPv4 address, or the network of 64 bits of
    /// an IPv6 address. Trusted proxies may have any number; behind the PROXY protocol the address that it names counts.
    max_connections_per_client: Number<1, 10_000_000>, unless "half of all; any number from addresses of this machine",
        example "100", also "limit_conn" "limit_conn_zone" "max_conn_per_ip" "MaxConnPerIP";
    /// Bytes per second that a client must send of a request body: each byte buys time, and `body_timeout` is what a client begins with and the
    /// most that it can have. 0: any rate will do. (A head has `head_timeout` in all.)
    min_body_rate: Size = Size(sendoff_config::Limits::RATE),
        example "\"1K\"", also "RequestReadTimeout" "MinRate";
    /// The same for what a client takes of its response, with `send_timeout`. A client that is slow but faster than this is never cut.
    min_send_rate: Size = Size(sendoff_config::Limits::RATE),
        example "\"1K\"", also "min_read_rate";
    /// Memory for what waits for clients. When it is used up, the connection that holds most of it is cut.
    max_queued: Size, unless "an eighth of the machine's memory",
        example "\"256M\"";
    /// How long the server goes on as before, after the signal that ends it, while routes with `ready` say that it is about to leave.
    drain_delay: Time = Time(seconds(0)),
        example "\"10s\"", also "shutdown_delay" "preStop";
    /// Time from then until it has ended; open responses may finish until then.
    shutdown_timeout: Time = Time(seconds(30)),
        example "\"2m\"", also "process_control_timeout" "worker_shutdown_timeout" "GracefulShutdownTimeout" "grace_period";
    /// The folder where the server keeps what outlives it: certificates that it made or obtained, and their keys.
    state: FilePath, unless "`/var/lib/sendoff`; without root `~/.local/state/sendoff`",
        example "\"/var/lib/sendoff\"", also "storage" "data_dir";
    /// The folder of kept pages (`page_cache`). The server makes it, and the front alone may enter it.
    page_cache_folder: FilePath, unless "`/var/cache/sendoff`; without root `~/.cache/sendoff`",
        example "\"/var/cache/sendoff\"", also "fastcgi_cache_path" "proxy_cache_path" "CacheRoot";
    /// How much room kept pages may take there.
    page_cache_size: Size = Size(1 << 30),
        example "\"256M\"", also "max_size";
    /// With `tls = "auto"`, the authority that certificates come from: the URL of its ACME directory, `letsencrypt`, or `staging` for
    /// that of Let's Encrypt for trials.
    acme_directory: AcmeDirectory = AcmeDirectory::lets_encrypt(),
        example "\"staging\"", also "acme_ca" "MDCertificateAuthority" "acme_server";
    /// Where the authority may write to.
    acme_email: Email, unless "nowhere",
        example "\"admin@example.org\"", also "email" "MDContactEmail" "acme_contact";
    /// The roots, in PEM, that the certificate of the authority's own server leads to.
    acme_roots: FilePath, unless "those of the system",
        example "\"/etc/sendoff/authority.pem\"", also "acme_ca_root";
    /// The sites.
    site: Sections<Site> = Sections(Vec::new()),
        example "see below", also "server" "sites" "VirtualHost" "vhost";
    /// The pools: of PHP workers, or of another program. Without one of PHP workers, there is one with the defaults.
    pool: Sections<Pool> = Sections(Vec::new()),
        example "see below", also "pools" "php";
    /// Applications that run on several hosts.
    upstream: Sections<Upstream> = Sections(Vec::new()),
        example "see below", also "upstreams" "balancer" "backend";
}

section! {
    /// A site: the hosts it answers for, its folder, and what applies to its requests.
    Site "[[site]]"

    /// The hosts that the site answers for. A site without hosts answers for all that no other site has.
    hosts: List<HostName>, unless "every other host",
        example "[\"example.org\", \"*.example.org\"]", also "host" "server_name" "ServerName" "ServerAlias" "names" "domain" "domains";
    /// The folder with its files and scripts.
    root: FilePath,
        example "\"/var/www/example\"", also "document_root" "DocumentRoot" "documentroot" "folder" "path" "dir";
    /// Its addresses, as in the top level.
    listen: List<Listen>, unless "those of the top level",
        example "\"[::]:8080\"", also "Listen" "bind" "port" "address";
    /// Its certificate: files, `auto`, or `self-signed`. The site is then reached at its addresses with `tls`; if it has none, at port
    /// 443 of every address.
    tls: Short<Tls>, unless "no TLS",
        example "{ certificate = \"fullchain.pem\", key = \"privkey.pem\" }", also "ssl" "TLS";
    /// Whether requests in the clear are redirected to https.
    https_redirect: bool, unless "true with `tls`",
        example "false", also "force_https" "redirect_https";
    /// For how long browsers come by https alone (`Strict-Transport-Security`).
    hsts: Hsts, unless "nothing is said",
        example "\"365d, includeSubDomains\"", also "strict_transport_security";
    /// Its name in logs.
    name: Free, unless "its first host",
        example "\"shop\"";
    /// An application whose vendor's rules apply: `sendoff check --print` shows them. The site's own keys and routes come
    /// first.
    app: App,
        example "\"wordpress\"", also "application" "preset";
    /// Names of the files that stand for their folder, in order.
    index: List<FileName> = List::of(["index.php", "index.html"].map(|name| FileName(name.to_owned()))),
        example "[\"index.html\"]", also "DirectoryIndex";
    /// Which script answers for paths that lead nowhere. There may be one for the site, one per folder, the nearest
    /// `index.php` above the path, or none. With `htaccess = true` the default is "off": the files say it.
    front_controller: FrontController = FrontController::Script(UrlPath("/index.php".to_owned())),
        example "{ \"/\" = \"/index.php\", \"/shop\" = \"/shop/index.php\" }", also "FallbackResource" "fallback";
    /// Folders outside the root that stand at a path of the site.
    alias: Map<Prefix, FilePath>, unless "none",
        example "{ \"/javascript\" = \"/usr/share/javascript\" }", also "Alias" "aliases";
    /// Where symbolic links may lead: nowhere outside the root, to what belongs to the owner of the link, anywhere.
    symlinks: Symlinks = Symlinks::Owner,
        example "\"inside\"", also "disable_symlinks" "FollowSymLinks" "follow_symlinks";
    /// Folders outside the root that symbolic links may lead to in any case.
    follow_symlinks_into: List<FilePath>, unless "none",
        example "\"/usr/share/php\"";
    /// The pool that runs its PHP scripts.
    pool: Free, unless "the first pool of PHP workers",
        example "\"blog\"";
    /// The only scripts that run: paths, or folders with a slash at the end. Others are refused.
    php_only: List<UrlPath>, unless "all scripts run",
        example "[\"/index.php\", \"/admin/\"]", also "scripts";
    /// Whether a script runs if the user of its workers may write to the root, to a folder on the way to the script, or to the
    /// script itself, as in folders of uploads (operate.md, "Folders that scripts may write to").
    scripts_in_writable_folders: bool = true,
        example "false";
    /// Names (`composer.json`) or endings (`*.sql`) that are served although such files are refused usually.
    serve: List<FileName>, unless "none",
        example "[\"composer.json\"]", also "allow_files" "expose";
    /// Media types by ending, on top of the built-in ones.
    media_types: Map<Ending, MimeType>, unless "the built-in ones",
        example "{ mjs = \"text/javascript\" }", also "types" "AddType" "mime_types" "mime";
    /// Whether responses are compressed for clients that accept it: all, none, or those that are static files.
    compress: Compress = Compress::Off,
        example "true", also "gzip" "encode" "brotli" "zstd" "compression" "gzip_static" "precompressed" "SetOutputFilter";
    /// The codings that may be used; of those that a client accepts equally, the first is chosen.
    compress_with: List<Coding> = List::of([Coding::Zstd, Coding::Brotli, Coding::Gzip]),
        example "[\"gzip\"]", also "codings" "encodings";
    /// Media types that are compressed; `text/*` stands for all of text, `*/*+json` for all types that end so.
    compress_types: List<MimeType>, unless "text, scripts, JSON, XML, SVG, WebAssembly, fonts that are not compressed already",
        example "[\"text/*\", \"application/json\"]", also "gzip_types" "brotli_types" "AddOutputFilterByType";
    /// Shorter bodies are not compressed.
    compress_min_length: Size = Size(sendoff_config::Compression::MIN_LENGTH),
        example "\"256\"", also "gzip_min_length" "minimum_length";
    /// Whether responses over TLS to requests that carry credentials and that another site has caused are compressed, too: the
    /// BREACH attack needs such responses.
    compress_cross_site: bool = false,
        example "true";
    /// Pages of the site for error statuses; the status stays. Routes and `.htaccess` files hold for them: a page that they deny
    /// is not shown.
    error_pages: Map<Status, UrlPath>, unless "the built-in ones",
        example "{ 404 = \"/404.html\" }", also "error_page" "ErrorDocument" "errors" "handle_errors";
    /// While this file exists, every request is answered with 503.
    maintenance: FilePath,
        example "\"/run/example.maintenance\"";
    /// What scripts see as `SERVER_SOFTWARE`.
    server_software: Free, unless "`Sendoff/` and the version",
        example "\"Apache\"";
    /// Where its requests are logged, in place of the server's log; `-` is standard output, `off` nowhere. Sites may share a file.
    access_log: LogPath, unless "where the server's are",
        example "\"/var/log/sendoff/shop.log\"", also "CustomLog";
    /// How their lines look.
    access_log_format: LineFormat, unless "that of the top level",
        example "\"json\"", also "log_format" "LogFormat";
    /// Whether `.htaccess` files are obeyed.
    htaccess: bool = false,
        example "true", also "AllowOverride" "allow_override";
    /// FastCGI applications, each with the files or the folder that it answers for: by their address, or `pool:NAME` for the program
    /// of a pool.
    fastcgi: Map<Matching, AppAddress>, unless "none",
        example "{ \".php\" = \"unix:/run/php/php8.2-fpm.sock\" }", also "fastcgi_pass" "php_fastcgi" "ProxyPassMatch";
    /// How long a FastCGI application may be silent while it has a request.
    fastcgi_timeout: PositiveTime = PositiveTime(seconds(60)),
        example "\"5m\"", also "fastcgi_read_timeout" "ProxyTimeout";
    /// Folders outside the root whose files applications may name in `X-Sendfile`.
    sendfile_from: List<FilePath>, unless "none",
        example "\"/var/lib/moodle\"", also "XSendFilePath";
    /// What the beginnings of URIs in `X-Accel-Redirect` stand for.
    accel: Map<UrlPath, FilePath>, unless "files beneath the root",
        example "{ \"/protected\" = \"/var/lib/files\" }", also "internal" "x_accel";
    /// How responses leave the workers.
    delivery: Delivery = Delivery::Auto,
        example "\"file\"";
    /// Lua scripts that run before the routes are tried; each may change the request or answer it (lua.md).
    lua_before: List<FilePath>, unless "none",
        example "\"/etc/sendoff/before.lua\"", also "attract_raw_url_to";
    /// Its routes.
    route: Sections<Route> = Sections(Vec::new()),
        example "see below", also "location" "routes" "Location" "handle" "rule" "rules";
}

section! {
    /// A route: which requests it concerns, what it changes, and who answers. A site tries its routes in order. A route
    /// whose conditions all hold applies its rules; if it has a handler (`static`, `php`, `fastcgi`, `proxy`, `redirect`, `respond`,
    /// `deny`), that answers and no further route is tried. What no route answers is looked up in the root.
    Route "[[site.route]]"

    /// Condition: these paths.
    path: List<UrlPath>,
        example "[\"/\", \"/status\"]", also "paths" "exact" "location";
    /// Condition: these folders and everything beneath them.
    prefix: List<Prefix>,
        example "\"/admin\"", also "prefixes" "folder" "directory" "Directory";
    /// Condition: paths that end so, in small or capital letters.
    extension: List<Ending>,
        example "[\"png\", \"webp\"]", also "extensions" "ext" "suffix" "ending";
    /// Condition: paths in which the expression (PCRE2) matches. Its groups are `$1` to `$9` in the texts of the route.
    matching as "match": Expression,
        example "'^/old/(.+)$'", also "regex" "regexp" "matches" "path_regexp" "LocationMatch" "expression" "pattern";
    /// Condition: these methods; `GET` includes `HEAD`.
    method: List<Method>,
        example "[\"POST\", \"PUT\"]", also "methods" "limit_except" "Limit";
    /// Condition: request fields. An expression for the value, with `!` in front for all others; `true`: it is there.
    header: Map<FieldName, FieldTest>,
        example "{ Cookie = 'session=' }", also "headers" "field";
    /// Condition: parameters of the query string, as for `header`.
    query: Map<QueryName, FieldTest>,
        example "{ v = true }", also "args" "params_get" "query_string";
    /// Rule: the new path and, behind `?`, the new query; without `?` the query stays.
    rewrite: Replacement,
        example "\"/index.php?p=$1\"", also "RewriteRule" "uri";
    /// Rule: paths that are tried in order; the first that exists becomes the path. A path with a slash at its end must be a folder.
    /// The last is taken without a look at the file system, or is a status such as `=404`.
    try_files: List<Candidate>,
        example "[\"$path\", \"$path/\", \"/index.php\"]", also "try" "try_file";
    /// Rule: changes of request fields: `+NAME` adds, `?NAME` sets where it is missing, `false` removes.
    request_headers: Map<HeaderOp, HeaderText>,
        example "{ X-Forwarded-Proto = \"https\", Proxy = false }", also "RequestHeader" "request_header" "proxy_set_header";
    /// Rule: changes of response fields, as for `request_headers`.
    response_headers: Map<HeaderOp, HeaderText>,
        example "{ X-Frame-Options = \"SAMEORIGIN\" }", also "add_header" "Header" "response_header" "set_headers";
    /// Rule: Lua scripts that run before the handler, in order; each may change the request or answer it (lua.md).
    lua: List<FilePath>,
        example "\"/etc/sendoff/auth.lua\"", also "attract_physical_path_to" "access_by_lua_file" "content_by_lua_file" "LuaHookAccessChecker";
    /// Rule: Lua scripts that run when the head of the response is known; each may change it.
    lua_response: List<FilePath>,
        example "\"/etc/sendoff/head.lua\"", also "attract_response_start_to" "header_filter_by_lua_file";
    /// Rule: what caches are told, unless the application says so itself.
    cache: Caching,
        example "\"365d, immutable\"", also "expires" "cache_control" "ExpiresDefault" "Expires";
    /// Rule: whether pages of applications are kept for other requests: as long as the application says (`http`), a time for those of
    /// which it says nothing, or not at all (`off`). `stale 1h`: old pages may be sent that long while they are made anew or
    /// when that fails. `cookies`: requests with cookies get the same pages (page-cache.md).
    page_cache: Keep,
        example "\"10m, stale 1h\"", also "fastcgi_cache" "fastcgi_cache_valid" "proxy_cache" "proxy_cache_valid" "CacheEnable";
    /// Rule: whether kept pages may be forgotten by requests with the method `PURGE`; with `allow_from`, so that not every client can
    /// make the application work (page-cache.md).
    purge: bool, unless "as earlier routes say, or they may not",
        example "true", also "fastcgi_cache_purge" "proxy_cache_purge" "cache_purge";
    /// Rule: whether responses are compressed, as for the site.
    compress: Compress,
        example "false", also "gzip" "encode" "brotli" "zstd" "compression" "SetOutputFilter";
    /// Rule: parameters for scripts, in place of the server's own of the same name.
    params: Map<ParamName, Template>,
        example "{ APP_ENV = \"production\" }", also "fastcgi_param" "env" "SetEnv" "environment";
    /// Rule: the largest request body.
    max_body: Size,
        example "\"512M\"", also "client_max_body_size" "LimitRequestBody" "max_body_size";
    /// Rule: whether `proxy` and FastCGI applications get the request body while it arrives, and not when it is complete (gateway.md).
    stream_body: bool, unless "false",
        example "true", also "proxy_request_buffering" "fastcgi_request_buffering" "request_buffers";
    /// Rule: how long a script may send nothing; 0: for ever.
    request_timeout: Time,
        example "\"10m\"", also "fastcgi_read_timeout" "timeout" "max_execution_time";
    /// Rule: how often one client may ask, and, behind `burst=`, how many times at once. A client is an IPv4 address, or the network of
    /// 64 bits of an IPv6 address. What is more gets 429 with `Retry-After`.
    rate: Frequency,
        example "\"10/s burst=20\"", also "limit_req" "rate_limit" "limit_req_zone" "throttle";
    /// Rule: requests of one client that may be under way at a time. What is more gets 429 with `Retry-After`.
    concurrency: Number<1, 1_000_000>,
        example "10", also "limit_concurrency" "max_concurrent";
    /// Rule: whether the request is logged, where the site's requests are.
    access_log: bool, unless "the site's log has it",
        example "false";
    /// Rule: a name and a password are asked for.
    auth: Inline<Auth>,
        example "{ users = \"/etc/sendoff/admins\", realm = \"Administration\" }", also "auth_basic" "basic_auth" "basicauth" "AuthType";
    /// Rule: a FastCGI application is asked whether the client may have what it asks for, by its address or as a table
    /// (fastcgi.md, "Authorizers").
    authorize: Short<Authorize>,
        example "\"unix:/run/authorizer.sock\"", also "authorizer" "auth_request" "forward_auth" "FastCgiAccessAuthorizer" "FcgidAccessChecker" "external_auth";
    /// Rule: static files pass through a FastCGI application, which gets each as the data of a filter; its response goes to the client
    /// (fastcgi.md, "Filters").
    filter: AppAddress,
        example "\"unix:/run/filter.sock\"", also "SetOutputFilter" "ExtFilterDefine" "FastCgiFilter";
    /// Rule: only these networks may ask.
    allow_from: List<Client>,
        example "[\"10.0.0.0/8\"]", also "allow" "Require" "remote_ip" "Allow";
    /// Rule: these networks may not ask; the longest network that contains the address decides.
    deny_from: List<Client>,
        example "[\"10.66.0.0/16\"]", also "Deny";
    /// Rule: whether applications may name files and URLs in response fields such as `X-Sendfile` (named-files.md).
    name_files: bool, unless "PHP and FastCGI applications may; with `proxy`, if the site has `sendfile_from`",
        example "false";
    /// Rule, with `proxy`: clients get 404. Only other applications of the site lead requests here, by `X-Accel-Redirect` and
    /// `X-Reproxy-URL` (named-files.md).
    internal: Yes,
        example "true";
    /// Handler: the file at the path is sent. What looks like a script is refused.
    statics as "static": Yes,
        example "true", also "file_server" "static_files";
    /// Handler: a PHP worker runs the script at the path, or this one.
    php: Php,
        example "\"/index.php\"", also "script";
    /// The pool of the handler `php`.
    pool: Free, unless "the pool of the site",
        example "\"reports\"";
    /// Handler: a FastCGI application, by its address; `pool:NAME` is the program of a pool.
    fastcgi: AppAddress,
        example "\"unix:/run/app.sock\"", also "fastcgi_pass" "php_fastcgi";
    /// With `fastcgi`: only paths that lead to a file of the site go to the application.
    only_files: Yes,
        example "true";
    /// Handler: an application that speaks HTTP, SCGI or AJP, by its URL, or with more about it as a table (gateway.md).
    proxy: Short<Proxy>,
        example "\"http://127.0.0.1:8080\"", also "proxy_pass" "reverse_proxy" "ProxyPass" "scgi_pass" "JkMount" "upstream" "backend";
    /// Handler: a redirect.
    redirect: Destination,
        example "\"https://example.org$uri\"", also "redir" "Redirect" "RedirectMatch" "return";
    /// Handler: this text.
    respond: Template,
        example "\"ok\"", also "body";
    /// Handler: an error page.
    deny: Yes,
        example "true", also "forbidden" "abort";
    /// Handler: the metrics of the server, for Prometheus (operate.md). Say who may see them: `allow_from`, `auth`, or an address
    /// of their own.
    metrics: Yes,
        example "true", also "prometheus" "stub_status" "server-status" "metrics_path";
    /// Handler: a page with live figures of the server, for people (metrics.md). The same route must say by `allow_from` or `auth` who may see
    /// it.
    status_page: Yes,
        example "true", also "server_status" "mod_status" "dashboard";
    /// Handler: `ready`, and 503 from the signal that ends the server on (`drain_delay`), for load balancers.
    ready: Yes,
        example "true", also "health" "healthz" "readiness";
    /// The status of `redirect` (302 without it), `respond` (200) or `deny` (403).
    status: Number<200, 599>,
        example "301", also "code";
    /// The media type of `respond`.
    content_type: MimeType, unless "`text/plain; charset=utf-8`",
        example "\"application/json\"", also "default_type" "type";
}

section! {
    /// Users with passwords (basic authentication). Write it as one value: `auth = { users = "..." }`.
    Auth "auth"

    /// A file of lines `NAME:HASH`, as `htpasswd` writes them (bcrypt, apr1, sha).
    users: FilePath,
        example "\"/etc/sendoff/admins\"", also "auth_basic_user_file" "AuthUserFile" "file";
    /// What the client shows its user.
    realm: Free = Free("Restricted".to_owned()),
        example "\"Administration\"", also "AuthName" "name";
}

section! {
    /// A FastCGI application in the role of an authorizer (fastcgi.md). Write it as one value:
    /// `authorize = { fastcgi = "...", script = "..." }`, or shorter `authorize = "unix:/run/authorizer.sock"`.
    Authorize "authorize"

    /// Its address; `pool:NAME` is the program of a pool, `upstream:NAME` an upstream.
    fastcgi: AppAddress,
        example "\"unix:/run/authorizer.sock\"", also "to" "address" "server" "url" "socket";
    /// The script that answers, where the application is php-fpm: `SCRIPT_FILENAME`.
    script: FilePath, unless "the file at the path of the request",
        example "\"/srv/access/check.php\"", also "file" "SCRIPT_FILENAME";
}

section! {
    /// An application that requests are passed on to (gateway.md). Write it as one value: `proxy = { to = "...", host = "..." }`, or
    /// shorter `proxy = "http://127.0.0.1:8080"`.
    Proxy "proxy"

    /// Its URL: `http://`, `https://`, `scgi://` or `ajp://`, then a host and a port, `unix:` and the path of a socket, or `upstream:` and
    /// the name of an upstream (upstreams.md).
    to: ProxyUrl,
        example "\"http://unix:/run/app.sock\"", also "url" "address" "server" "dial";
    /// With HTTP, the `Host` field of requests: `client` for the host that the client asked, `upstream` for that of `to`, or a text.
    host: ProxyHost = ProxyHost::Client,
        example "\"upstream\"", also "ProxyPreserveHost" "header_up";
    /// Which fields tell the application about the client; `off`: it gets what the client has sent of them.
    forwarded: ForwardedFields = ForwardedFields::XForwarded,
        example "\"Forwarded\"", also "ProxyAddHeaders";
    /// How long a connection may take to be made.
    connect_timeout: PositiveTime = PositiveTime(seconds(5)),
        example "\"2s\"", also "proxy_connect_timeout" "scgi_connect_timeout" "dial_timeout" "connectiontimeout";
    /// How long the first byte of the response may take.
    first_byte_timeout: PositiveTime, unless "as `timeout`",
        example "\"5m\"", also "response_header_timeout";
    /// How long the application may neither send anything nor take anything of the request.
    timeout: PositiveTime = PositiveTime(seconds(60)),
        example "\"2m\"", also "proxy_read_timeout" "proxy_send_timeout" "scgi_read_timeout" "read_timeout" "ProxyTimeout";
    /// How long a response may take in all.
    total_timeout: PositiveTime, unless "as long as it likes",
        example "\"10m\"";
    /// How long nothing may pass in either direction of a WebSocket, or after another change of the protocol.
    tunnel_timeout: PositiveTime = PositiveTime(seconds(3600)),
        example "\"1d\"", also "stream_timeout";
    /// With HTTP, whether clients may change to another protocol, such as WebSocket.
    upgrade: bool = true,
        example "false";
    /// With https, the name that the certificate of the application must have.
    tls_name: HostText, unless "the host of `to`",
        example "\"app.internal\"", also "proxy_ssl_name" "tls_server_name";
    /// With https, the roots in PEM that its certificate must lead to.
    roots: FilePath, unless "those of the system",
        example "\"/etc/sendoff/internal-ca.pem\"", also "proxy_ssl_trusted_certificate" "SSLProxyCACertificateFile" "tls_trusted_ca_certs";
    /// With https, whether its certificate is checked.
    verify: bool = true,
        example "false", also "proxy_ssl_verify" "SSLProxyVerify";
    /// Whether a connection begins with a header of the PROXY protocol (version 2), which names the client. Connections are then not
    /// kept.
    proxy_protocol: bool = false,
        example "true", also "ProxyProtocol" "send-proxy-v2";
    /// With AJP, the secret of its connector.
    secret: Free, unless "none",
        example "\"s3cret\"", also "requiredSecret" "worker.secret";
    /// With AJP, the size of the largest packet, as the connector has it: from 8192 to 65536.
    packet_size: Number<8192, 65536> = Number(8192),
        example "16384", also "max_packet_size" "packetSize" "ProxyIOBufferSize";
}

section! {
    /// How a site is met under TLS. Write it as one value: `tls = { certificate = "...", key = "..." }`, or shorter
    /// `tls = "auto"`. Files are read again by `sendoff reload`.
    Tls "tls"

    /// A file in PEM with the certificate and behind it those of its issuers (`fullchain.pem`); `auto`: the
    /// server obtains one from `acme_directory` and renews it; `self-signed`: it makes one, once, and keeps it.
    certificate: CertificateFrom,
        example "\"/etc/letsencrypt/live/example.org/fullchain.pem\"", also "cert" "ssl_certificate" "SSLCertificateFile" "chain";
    /// The file with the private key, in PEM. It is read before the server gives up root.
    key: FilePath,
        example "\"/etc/letsencrypt/live/example.org/privkey.pem\"", also "ssl_certificate_key" "SSLCertificateKeyFile" "private_key";
    /// A file with a response of the issuer's OCSP responder in DER, which is sent along.
    ocsp: FilePath,
        example "\"/etc/sendoff/example.ocsp\"", also "ssl_stapling_file";
    /// Clients show certificates of these issuers: a file in PEM.
    client_issuers: FilePath,
        example "\"/etc/sendoff/staff.pem\"", also "ssl_client_certificate" "SSLCACertificateFile" "client_ca";
    /// Whether clients without a certificate are refused.
    client_certificates: ClientCertificates = ClientCertificates::Required,
        example "\"optional\"", also "ssl_verify_client" "SSLVerifyClient";
    /// The oldest version of TLS that is spoken.
    oldest: TlsVersion = TlsVersion::Tls12,
        example "\"1.3\"", also "ssl_protocols" "SSLProtocol" "min_version";
}

section! {
    /// A pool of PHP workers; or, with `command`, of processes of another program, which answer FastCGI requests
    /// (pools.md).
    Pool "[[pool]]"

    /// Its name, by which sites and routes refer to it.
    name: Free = Free("default".to_owned()),
        example "\"blog\"";
    /// The program that its processes run, with its arguments, in place of PHP. It finds the listening socket as descriptor 0, where FastCGI
    /// programs expect it. A name without a slash is looked for in the `PATH` of `env`, or else in the system's folders. One text is
    /// split at spaces; no shell reads it.
    command: Command, unless "PHP",
        example "[\"sendoff-python\", \"shop.wsgi:application\"]", also "program" "exec" "ExecStart" "bin-path";
    /// The PHP script that boots the application once in each worker, and takes its requests by `sendoff_handle_request()`
    /// (worker-mode.md). It answers what leads to no file, and its own path. Other scripts run as usual, in a pool like this one
    /// whose workers are started on demand.
    php_worker: FilePath, unless "none",
        example "\"/srv/shop/public/index.php\"", also "worker" "worker_script";
    /// With `php_worker`, folders: when a source file below them changes, the workers boot again. For developers.
    watch: List<FilePath>, unless "none",
        example "[\"/srv/shop\"]";
    /// The user that its scripts run as. Scripts run as root only if this or the server's `user` says so.
    user: Free, unless "the user of the server",
        example "\"blog\"", also "User" "username" "run_as";
    /// The group that its scripts run as, in place of the login group of its user; the user's other groups stay.
    group: Free, unless "the login group of its user",
        example "\"www-data\"", also "Group";
    /// Requests that scripts work on at the same time; `auto`: as many as would wait otherwise; `ondemand`: as `auto`, and
    /// an idle pool has no process. With `command`, the number of its processes, 1 if it is not given.
    workers: Count = Count::Auto,
        example "16", also "pm.max_children" "max_children" "processes";
    /// With `command`, the requests that one of its processes serves at a time, such as its threads: no more connections are made than all
    /// processes take.
    requests_per_process: Number<1, 10000>, unless "found out",
        example "4", also "threads" "concurrency";
    /// With `workers = "auto"`, workers that are kept while no request comes.
    min_workers: Number<1, 1024>, unless "2 per core",
        example "4", also "pm.min_spare_servers" "min_spare_servers" "pm.start_servers";
    /// With `auto` and `ondemand`, workers that there may be.
    max_workers: Number<1, 1024>, unless "one per 128 MiB of the machine's memory, at most 256",
        example "50";
    /// Time after which `auto` and `ondemand` end workers that had no request.
    worker_idle_timeout: PositiveTime = PositiveTime(seconds(30)),
        example "\"10s\"", also "pm.process_idle_timeout" "process_idle_timeout" "idle_timeout";
    /// Settings on top of php.ini, in its syntax. Scripts may change them where PHP allows it.
    php_ini: IniSettings = IniSettings::none(),
        example "{ memory_limit = \"256M\" }", also "ini";
    /// Settings on top of those, with values that are taken as they are. Scripts may change them where PHP allows it.
    php_value: IniSettings = IniSettings::none(),
        example "{ date.timezone = \"Europe/Berlin\" }", also "php_flag" "php_values";
    /// As `php_value`, for settings that scripts and `.user.ini` files cannot change.
    php_admin_value: IniSettings = IniSettings::none(),
        example "{ open_basedir = \"/var/www:/tmp\" }", also "php_admin_flag" "php_admin_values";
    /// Environment variables of scripts. Beside `USER` and `HOME` they see no others.
    env: Map<ParamName, Raw>, unless "none",
        example "{ APP_ENV = \"production\" }", also "environment" "environ";
    /// Permissions that files made by scripts do not get, in octal.
    umask: Umask, unless "that of the server",
        example "\"027\"";
    /// The folder that is `/` for scripts.
    chroot: FilePath, unless "the system's",
        example "\"/srv/jail\"";
    /// The working folder of workers between requests, inside `chroot`.
    chdir: FilePath = FilePath("/".into()),
        example "\"/var/www\"", also "cwd" "working_directory";
    /// The memory of its own that a worker may have; PHP's `memory_limit` counts only what scripts allocate.
    memory_limit: Size, unless "any",
        example "\"1G\"", also "rlimit_as" "RLimitMEM";
    /// Requests that may wait for a worker, or for a process of the program; what is more gets 503 with `Retry-After`.
    max_waiting: Number<0, 1_000_000> = Number(sendoff_config::PoolConfig::MAX_WAITING),
        example "100", also "queue";
    /// The descriptors (files, connections, pipes) that a worker may have open.
    max_open_files: Number<64, 1048576>, unless "as many as the server",
        example "1024", also "rlimit_nofile";
    /// The processes and threads that the user of the pool may have; a script that would start one more is refused. The kernel counts all
    /// of that user, whatever started them.
    max_processes: Number<1, 4194304>, unless "as many as the server",
        example "200", also "rlimit_nproc" "RLimitNPROC";
    /// The core file of a worker that crashes.
    max_core: Size, unless "the limit of the server",
        example "\"0\"", also "rlimit_core";
    /// The memory of all processes of the pool together, with what they have started. The kernel ends a process if it cannot free
    /// enough; the log says so, and another one starts. (`memory_limit` is for each worker.) This key and the next two take a control group
    /// that the server may divide (security.md).
    total_memory: Size, unless "any",
        example "\"2G\"", also "memory_max" "MemoryMax" "memory.max" "MemoryLimit";
    /// The processors that all processes of the pool together keep busy: a number, or a share of the machine's.
    total_cpu: Processors, unless "all",
        example "\"1.5\"", also "cpu_max" "cpu.max" "CPUQuota";
    /// The processes and threads of the pool, its master included; a script that would start one more is refused.
    total_processes: Number<2, 4194304>, unless "any",
        example "200", also "pids_max" "pids.max" "TasksMax";
    /// Whether scripts do without programs that change their user, such as `sudo` and most forms of `sendmail`, and can send signals to
    /// nothing but themselves and what they have started (security.md).
    no_new_privileges: bool = false,
        example "true", also "no_new_privs" "NoNewPrivileges";
    /// Where scripts are logged that run for long, each with its backtrace.
    slow_log: FilePath, unless "nowhere",
        example "\"/var/log/sendoff/slow.log\"", also "slowlog";
    /// How long a script runs before it is in the slow log.
    slow_after: PositiveTime = PositiveTime(seconds(5)),
        example "\"2s\"", also "request_slowlog_timeout";
    /// The path that is answered with php-fpm's status page, without a worker, on every site whose scripts the pool runs; `?full`,
    /// `?json`, `?xml`, `?html` and `?openmetrics` as there. The site's routes and `.htaccess` files say who may see it.
    status_path: UrlPath, unless "none",
        example "\"/fpm-status\"", also "pm.status_path";
    /// The path that is answered with `ping_response`, without a worker and also while all are busy.
    ping_path: UrlPath, unless "none",
        example "\"/fpm-ping\"", also "ping.path";
    /// What `ping_path` is answered with.
    ping_response: Free = Free("pong".to_owned()),
        example "\"ok\"", also "ping.response";
    /// Requests after which a worker is replaced; 0: never.
    max_requests: Number<0, { u64::MAX }> = Number(0),
        example "1000", also "pm.max_requests";
    /// With `php_worker`, the memory of PHP at which a worker is replaced, when its request has ended.
    max_memory: Size, unless "any",
        example "\"256M\"";
    /// With `php_worker`, the age at which a worker is replaced, when its request has ended.
    max_age: PositiveTime, unless "any",
        example "\"1h\"";
    /// How long a script may send nothing before it counts as stuck; 0: for ever.
    request_timeout: Time = Time(seconds(300)),
        example "\"2m\"", also "request_terminate_timeout" "timeout";
    /// What keeps a file as the script read it until it is sent: a lease on it, or a copy.
    snapshot: Snapshot = Snapshot::Lease,
        example "\"copy\"";
}

section! {
    /// An application that runs on several hosts (upstreams.md). Sites and routes refer to it by `upstream:NAME` where the
    /// address of an application may stand.
    Upstream "[[upstream]]"

    /// Its name.
    name: Free = Free("default".to_owned()),
        example "\"shop\"";
    /// Its hosts: `HOST:PORT` (each address of the name is a host), `unix:/PATH`, or `srv:NAME` for what the SRV records of a name
    /// say. `weight=N` behind a host is its share of requests, 1 if it is not given; a `spare` one gets requests while no other is up.
    hosts: List<Backend>,
        example "[\"app1:9000 weight=2\", \"app2:9000\"]", also "server" "servers" "to" "BalancerMember";
    /// Connections to each host at a time: as many as it has processes.
    connections: Number<1, 65535>, unless "what the host says, or is found to take",
        example "16", also "max_conns" "keepalive" "max";
    /// Failures in a row after which a host is taken for down.
    fails: Number<1, 1000> = Number(3),
        example "1", also "max_fails";
    /// The time until a host that is down gets another request; it doubles with each further failure, up to a minute.
    retry_after: PositiveTime = PositiveTime(seconds(1)),
        example "\"5s\"", also "fail_timeout" "fail_duration" "retry";
    /// The time in which a host that has come back gets its whole share of requests.
    slow_start: Time = Time(seconds(10)),
        example "\"0s\"", also "slowstart";
    /// How often each host is connected to, to see whether it is there.
    probe: PositiveTime, unless "only requests tell",
        example "\"5s\"", also "check" "health_check" "health_interval";
}
