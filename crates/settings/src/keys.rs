//! The keys of the configuration file. The struct, reader, printer, documents and schema of each
//! section are made from these declarations.

use std::time::Duration;

use sendoff_config::{CipherSuite, KeyExchange, PoolConfig, TUNNEL_TIMEOUT};
use sendoff_setting_values::{
    AcmeDirectory, App, AppAddress, AuthorityUrl, Backend, Balance, Caching, Candidate,
    CertificateFrom, Charset, Client, ClientCertificates, Coding, CollectorUrl, Command, Compress,
    CookieDomain, CookieName, CookiePath, Count, Delivery, Destination, Email, Ending, EngineUrl,
    Expression, FieldName, FieldTest, FileName, FilePath, FleetName, ForwardedFields, Free,
    Frequency, FrontController, HeaderOp, HeaderText, HostName, HostText, Hsts, Htaccess,
    IniSettings, Keep, LineFormat, List, Listen, LogPath, Map, MapName, MapPattern, MapSource,
    MapTest, MapValue, Matching, Method, MimeType, Number, ParamName, Php, PhpProgram,
    PositiveTime, Prefix, Processors, ProxyField, ProxyHost, ProxyUrl, QueryName, Raw, Replacement,
    Share, SitemapAddress, Size, Snapshot, Status, Symlinks, Template, Time, TlsVersion, Umask,
    UrlPath, UrlStart, Yes,
};

use crate::nested::{Inline, Named, Sections, Short};
use crate::section::{Key, Section, section};

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// The keys of all sections, by their titles.
const SECTIONS: &[(&str, &[Key])] = &[
    (Top::TITLE, Top::KEYS),
    (Site::TITLE, Site::KEYS),
    (RequestMap::TITLE, RequestMap::KEYS),
    (Route::TITLE, Route::KEYS),
    (Pool::TITLE, Pool::KEYS),
    (Upstream::TITLE, Upstream::KEYS),
    (Sticky::TITLE, Sticky::KEYS),
    (Probe::TITLE, Probe::KEYS),
    (Auth::TITLE, Auth::KEYS),
    (Authorize::TITLE, Authorize::KEYS),
    (Proxy::TITLE, Proxy::KEYS),
    (Tls::TITLE, Tls::KEYS),
    (Traces::TITLE, Traces::KEYS),
    (Fleet::TITLE, Fleet::KEYS),
];

section! {
    /// Keys of the whole server. They stand before the first section.
    Top "the top level"

    /// Further files, with `*` and `?` in their names. Their sections count as if they stood here.
    include: List<FilePath>,
        example "\"/etc/sendoff/sites/*.toml\"", also "import" "IncludeOptional";
    /// Addresses of the sites that name none. `8080` is port 8080 of every address of the machine.
    /// `tls` behind an address: clients speak TLS there. `h3` behind `tls`: they may also speak
    /// HTTP/3, at the same port of UDP (http3.md). `proxy_protocol` behind it: connections begin
    /// with a header of the PROXY protocol.
    listen: List<Listen> = List::of([Listen::tcp(std::net::Ipv4Addr::LOCALHOST.into(), 8080)]),
        example "[\"80\", \"443 tls\"]", also "Listen" "bind" "port" "address";
    /// The user that the server and PHP run as if root starts the server.
    user: Free, unless "the owner of the first site's root",
        example "\"www-data\"", also "User" "username" "run_as";
    /// Event loops that speak HTTP.
    threads: Number<1, 63>, unless "one per core",
        example "4", also "worker_processes";
    /// The lowest level of events that are logged: `error`, `warn`, `info` or `debug`. The
    /// environment variable `SENDOFF_LOG` overrides it.
    log: Free = Free("info".to_owned()),
        example "\"warn\"", also "error_log" "ErrorLog" "log_level" "LogLevel";
    /// The access log: a path, `-` for standard output, or `off`.
    access_log: LogPath, unless "nowhere",
        example "\"/var/log/sendoff/access.log\"", also "CustomLog";
    /// The format of a line of the access log: `combined`, `json`, or a text with variables.
    access_log_format: LineFormat = LineFormat("combined".to_owned()),
        example "\"$remote_addr $request $status $request_time\"", also "log_format" "LogFormat";
    /// Gives each request an id: `REQUEST_ID` for scripts, `$request_id` in the access log.
    request_id: bool = false,
        example "true";
    /// Proxies whose statements about the client's address are trusted (`X-Forwarded-For` and the
    /// like, `Forwarded`, PROXY protocol).
    trusted_proxies: List<Client>, unless "none",
        example "[\"10.0.0.0/8\", \"::1\"]", also "set_real_ip_from" "RemoteIPTrustedProxy" "trust_proxy";
    /// Treats every process that connects to a UNIX socket as a trusted proxy.
    trust_unix: bool = false,
        example "true";
    /// The request field in which trusted proxies name the client. With `X-Forwarded-For`, the
    /// fields -Proto, -Host and -Port are read as well, unless `alone` stands behind it; `last`
    /// reads the last address alone, also if it is a trusted proxy's. Another field, such as
    /// `CF-Connecting-IP`, has one address, and nothing else is read. `none` reads no field: only
    /// the header of the PROXY protocol names clients.
    proxy_field: ProxyField = ProxyField::XForwardedFor,
        example "\"CF-Connecting-IP\"", also "real_ip_header" "RemoteIPHeader";
    /// The largest request body, unless a route says otherwise.
    max_body: Size = Size(1 << 30),
        example "\"64M\"", also "client_max_body_size" "LimitRequestBody" "max_body_size";
    /// Time limit for receiving a request head.
    head_timeout: PositiveTime = PositiveTime(seconds(30)),
        example "\"10s\"", also "client_header_timeout" "read_header";
    /// The longest pause that a client may make within a request body.
    body_timeout: PositiveTime = PositiveTime(seconds(60)),
        example "\"60s\"", also "client_body_timeout" "read_body";
    /// Time after which a connection without a request is closed.
    idle_timeout: PositiveTime = PositiveTime(seconds(75)),
        example "\"15s\"", also "keepalive_timeout" "KeepAliveTimeout" "idle";
    /// The longest time in which a client may read nothing of its response.
    send_timeout: PositiveTime = PositiveTime(seconds(60)),
        example "\"60s\"", also "write";
    /// The largest number of connections at a time. At the limit, the connections that have been
    /// idle for longest are closed; if none is idle, new connections wait.
    max_connections: Number<1, 10_000_000>, unless "half of the open files that the server may have",
        example "20000", also "worker_connections" "MaxRequestWorkers" "MaxClients" "maxconn" "server.max-connections";
    /// The largest number of connections of one client at a time; further connections are closed at
    /// once. A client is an IPv4 address or a /64 network of IPv6. Trusted proxies have no limit;
    /// behind the PROXY protocol, the address in its header counts.
    max_connections_per_client: Number<1, 10_000_000>, unless "half of all; any number from addresses of this machine",
        example "100", also "limit_conn" "limit_conn_zone" "max_conn_per_ip" "MaxConnPerIP";
    /// The lowest rate in bytes per second at which a client may send a request body. A client
    /// starts with `body_timeout` of time left; each byte adds time, but never to more than
    /// `body_timeout`. 0: no lowest rate. (The head has `head_timeout` in all.)
    min_body_rate: Size = Size(sendoff_config::Limits::RATE),
        example "\"1K\"", also "RequestReadTimeout" "MinRate";
    /// The lowest rate in bytes per second at which a client may read its response, counted as for
    /// `min_body_rate` but with `send_timeout`. A client above this rate is not disconnected for
    /// being slow.
    min_send_rate: Size = Size(sendoff_config::Limits::RATE),
        example "\"1K\"", also "min_read_rate";
    /// Memory for response bytes that wait for clients. When it is used up, the connection that
    /// holds most of it is cut.
    max_queued: Size, unless "an eighth of the machine's memory",
        example "\"256M\"";
    /// Time in which the server still answers as before after it was told to end, while routes with
    /// `ready` already answer 503.
    drain_delay: Time = Time(seconds(0)),
        example "\"10s\"", also "shutdown_delay" "preStop";
    /// Time limit for open responses after `drain_delay`; then the server ends.
    shutdown_timeout: Time = Time(seconds(30)),
        example "\"2m\"", also "process_control_timeout" "worker_shutdown_timeout" "GracefulShutdownTimeout" "grace_period";
    /// The folder for what the server keeps across restarts: certificates that it made or obtained,
    /// and their keys.
    state: FilePath, unless "`/var/lib/sendoff`; without root `~/.local/state/sendoff`",
        example "\"/var/lib/sendoff\"", also "storage" "data_dir";
    /// The folder of the page cache (`page_cache`). The server makes it, and only the front can
    /// enter it.
    page_cache_folder: FilePath, unless "`/var/cache/sendoff`; without root `~/.cache/sendoff`",
        example "\"/var/cache/sendoff\"", also "fastcgi_cache_path" "proxy_cache_path" "CacheRoot";
    /// The largest size of the page cache.
    page_cache_size: Size = Size(1 << 30),
        example "\"256M\"", also "max_size";
    /// The certificate authority for `tls = "auto"`: the URL of its ACME directory, `letsencrypt`,
    /// or `staging` for Let's Encrypt's test authority.
    acme_directory: AcmeDirectory = AcmeDirectory::lets_encrypt(),
        example "\"staging\"", also "acme_ca" "MDCertificateAuthority" "acme_server";
    /// The e-mail address that the authority may write to.
    acme_email: Email, unless "nowhere",
        example "\"admin@example.org\"", also "email" "MDContactEmail" "acme_contact";
    /// The root certificates, in PEM, for the TLS connection to the authority.
    acme_roots: FilePath, unless "those of the system",
        example "\"/etc/sendoff/authority.pem\"", also "acme_ca_root";
    /// The authority's name for the account that you have with it (external account binding, RFC
    /// 8555 §7.3.4), if it signs for its customers only.
    acme_account_id: Free,
        example "\"kid-1\"", also "acme_eab_id" "key_id" "MDExternalAccountBinding";
    /// The file with the key of that account, in base64.
    acme_account_key: FilePath,
        example "\"/etc/sendoff/acme.key\"", also "acme_eab_key" "mac_key";
    /// A program that publishes TXT records, by which names are then proven (DNS-01), wildcards
    /// too. It is called as `PROGRAM present NAME VALUE` and `PROGRAM cleanup NAME VALUE`.
    acme_dns: FilePath,
        example "\"/etc/sendoff/dns.sh\"", also "dns" "MDChallengeDns01" "dns_challenge";
    /// The time from the end of that program until the authority is told to look.
    acme_dns_wait: Time = Time(seconds(10)),
        example "\"1m\"", also "propagation_delay";
    /// The cipher suites of TLS that clients may choose from, by their names in OpenSSL or in the
    /// registry of IANA. If no suite of a version of TLS is listed, all of its suites are allowed.
    tls_ciphers: List<CipherSuite>, unless "all",
        example "[\"TLS_AES_256_GCM_SHA384\", \"ECDHE-ECDSA-AES256-GCM-SHA384\"]", also "ssl_ciphers" "SSLCipherSuite" "ssl_conf_command" "cipher_suites";
    /// The groups for the key exchange of TLS, the preferred one first. A group whose share the
    /// client has sent is preferred to the others.
    tls_groups: List<KeyExchange>, unless "all",
        example "[\"X25519MLKEM768\", \"X25519\"]", also "ssl_ecdh_curve" "SSLOpenSSLConfCmd" "curves";
    /// Traces of requests for OpenTelemetry (traces.md).
    traces: Inline<Traces>, unless "requests are not traced",
        example "{ endpoint = \"http://127.0.0.1:4318/v1/traces\" }", also "otel_exporter" "tracing" "opentelemetry";
    /// Other nodes with which this one acts as one (fleet.md).
    fleet: Inline<Fleet>, unless "the node is alone",
        example "{ engine = \"redis://10.0.0.31:6379\", name = \"shop\" }", also "cluster" "redis" "storage";
    /// The sites.
    site: Sections<Site> = Sections(Vec::new()),
        example "see below", also "server" "sites" "VirtualHost" "vhost";
    /// The pools: of PHP workers, or of another program. Without one of PHP workers, there is one
    /// with the defaults.
    pool: Sections<Pool> = Sections(Vec::new()),
        example "see below", also "pools" "php";
    /// Applications that run on several hosts.
    upstream: Sections<Upstream> = Sections(Vec::new()),
        example "see below", also "upstreams" "balancer" "backend";
}

section! {
    /// Traces of requests, which a collector gets by OTLP over HTTP (traces.md).
    Traces "[traces]"

    /// The URL of the collector: `http://` or `https://`, a host and a port, and a path; without a
    /// path it is `/v1/traces`. In place of a host and a port, `unix:` and the path of a socket.
    endpoint: CollectorUrl,
        example "\"http://127.0.0.1:4318/v1/traces\"", also "url" "exporter" "address" "collector";
    /// The share of requests that are recorded, from 0 to 1 or in percent. If a trusted proxy sends
    /// `traceparent`, its flag decides instead.
    sample: Share = Share::ALL,
        example "0.1", also "sampler" "sampling" "ratio" "sampleRate" "otel_trace";
    /// The most requests that are recorded per second.
    limit: Number<1, 1_000_000> = Number(100),
        example "20", also "rate" "most";
    /// The name of the server in traces, `service.name`.
    service_name: Free = Free("sendoff".to_owned()),
        example "\"shop\"", also "otel_service_name" "serviceName" "name" "service";
    /// Further fields of requests to the collector.
    headers: Map<FieldName, Free>, unless "none",
        example "{ Authorization = \"Bearer 8f2a\" }", also "header" "http_headers";
    /// With `https://`, a file with the root certificates, in PEM, for the collector's certificate.
    roots: FilePath, unless "the system's",
        example "\"/etc/sendoff/internal-ca.pem\"", also "trusted_certificate" "ca";
}

section! {
    /// Several nodes that act as one by a Redis or Valkey that they share (fleet.md).
    Fleet "[fleet]"

    /// The URL of the Redis or Valkey: `redis://`, or `rediss://` for TLS, a host and a port, 6379
    /// without one, and the number of a database behind a slash. In place of a host and a port,
    /// `unix:` and the path of a socket.
    engine: EngineUrl,
        example "\"rediss://engine.internal:6379/2\"", also "url" "redis" "valkey" "address";
    /// The name of the fleet, the same on all of its nodes. All keys in the engine begin with it and
    /// a colon.
    name: FleetName = FleetName("sendoff".to_owned()),
        example "\"shop\"", also "prefix" "key_prefix" "cluster";
    /// The user of the engine.
    user: Free, unless "the engine's default",
        example "\"shop\"", also "username" "login";
    /// A file with the user's password; a line end behind it does not count.
    password_file: FilePath, unless "no password",
        example "\"/etc/sendoff/engine-password\"", also "password" "auth" "requirepass";
    /// A file with a secret that only the nodes have, of at least 32 characters: with it they share
    /// the certificates of `tls = "auto"`, and what they share in secret is sealed.
    secret_file: FilePath, unless "certificates are of each node",
        example "\"/etc/sendoff/fleet-secret\"", also "secret" "encryption_key" "shared_secret";
    /// With `rediss://`, a file with the root certificates, in PEM, for the engine's certificate.
    roots: FilePath, unless "the system's",
        example "\"/etc/sendoff/internal-ca.pem\"", also "trusted_certificate" "ca" "cafile";
}

section! {
    /// A site: its hosts, its folder, and the settings for its requests.
    Site "[[site]]"

    /// The hosts that the site answers for. A site without hosts answers for every host that no
    /// other site names.
    hosts: List<HostName>, unless "every other host",
        example "[\"example.org\", \"*.example.org\"]", also "host" "server_name" "ServerName" "ServerAlias" "names" "domain" "domains";
    /// The folder with its files and scripts.
    root: FilePath,
        example "\"/var/www/example\"", also "document_root" "DocumentRoot" "documentroot" "folder" "path" "dir";
    /// Its addresses, as in the top level.
    listen: List<Listen>, unless "those of the top level",
        example "\"[::]:8080\"", also "Listen" "bind" "port" "address";
    /// The site's certificate: files, `auto`, or `self-signed`. The site is then reached at its
    /// addresses with `tls`, or, if it has none, at port 443 of every address.
    tls: Short<Tls>, unless "no TLS",
        example "{ certificate = \"fullchain.pem\", key = \"privkey.pem\" }", also "ssl" "TLS";
    /// Redirects requests without TLS to https.
    https_redirect: bool, unless "true with `tls`",
        example "false", also "force_https" "redirect_https";
    /// Time in which browsers use only https for this site (`Strict-Transport-Security`).
    hsts: Hsts, unless "nothing is said",
        example "\"365d, includeSubDomains\"", also "strict_transport_security";
    /// Its name in logs and metrics. Requests to a site purge pages of sites with its name only. A site
    /// without a name whose first host another site has, at another address, is called
    /// `HOST at ADDRESS`; a site without hosts is `default`.
    name: Free, unless "its first host",
        example "\"shop\"";
    /// An application whose vendor's rules apply: `sendoff check --print` shows them. The site's
    /// own keys and routes come first.
    app: App,
        example "\"wordpress\"", also "application" "preset";
    /// Names of index files, in order: the first that exists in a folder answers for the folder.
    index: List<FileName> = List::of(["index.php", "index.html"].map(|name| FileName(name.to_owned()))),
        example "[\"index.html\"]", also "DirectoryIndex";
    /// The script that answers for paths that lead to no file. There may be one for the site, one
    /// per folder, the nearest `index.php` above the path, or none. With `htaccess = true` the
    /// default is "off": the `.htaccess` files name the script. Otherwise an `.htaccess` file that
    /// names a script takes precedence over the default.
    front_controller: FrontController = FrontController::Script(UrlPath("/index.php".to_owned())),
        example "{ \"/\" = \"/index.php\", \"/shop\" = \"/shop/index.php\" }", also "FallbackResource" "fallback";
    /// Folders outside the root that are served at a path of the site.
    alias: Map<Prefix, FilePath>, unless "none",
        example "{ \"/javascript\" = \"/usr/share/javascript\" }", also "Alias" "aliases";
    /// Allowed targets of symbolic links: only files inside the root (`inside`), also outside files
    /// of the owner of the link (`owner`), or every file (`any`).
    symlinks: Symlinks = Symlinks::Owner,
        example "\"inside\"", also "disable_symlinks" "FollowSymLinks" "follow_symlinks";
    /// Folders outside the root into which symbolic links may always lead.
    follow_symlinks_into: List<FilePath>, unless "none",
        example "\"/usr/share/php\"";
    /// The pool that runs its PHP scripts.
    pool: Free, unless "the first pool of PHP workers",
        example "\"blog\"";
    /// Runs PHP scripts. `false`: the site needs no PHP on the machine, and its scripts are refused,
    /// except those that a route with `php` names.
    php: bool = true,
        example "false";
    /// The only scripts that run: paths, or folders with a slash at the end. Others are refused.
    php_only: List<UrlPath>, unless "all scripts run",
        example "[\"/index.php\", \"/admin/\"]", also "scripts";
    /// Runs a script even if the user of its workers may write to the root, to a folder on the way
    /// to the script, or to the script itself, as in folders of uploads (operate.md, "Folders that
    /// scripts may write to").
    scripts_in_writable_folders: bool = true,
        example "false";
    /// Names (`composer.json`) or endings (`*.sql`) of files that are normally refused and that
    /// this site serves.
    serve: List<FileName>, unless "none",
        example "[\"composer.json\"]", also "allow_files" "expose";
    /// Media types by file name ending, in addition to the built-in ones.
    media_types: Map<Ending, MimeType>, unless "the built-in ones",
        example "{ mjs = \"text/javascript\" }", also "types" "AddType" "mime_types" "mime";
    /// Keeps pages of applications for other requests, as `page_cache` of a route does; routes may
    /// say otherwise. Only here: `lscache` obeys the fields of LSCache's plugins (lscache.md).
    page_cache: Keep, unless "`off`",
        example "\"lscache\"", also "CacheLookup" "enableCache";
    /// A sitemap. The server makes the pages in it while workers are idle, at its start and after
    /// purges, so that clients find them in the page cache (page-cache.md, "Warming"). A URL if
    /// `hosts` names no host, or if clients reach the site at another port.
    warm: SitemapAddress, unless "pages are made when clients ask for them",
        example "\"/sitemap.xml\"", also "warmup" "preload" "crawler" "sitemap" "prefetch";
    /// Puts fragments in their places in pages of applications that ask for it, and tells
    /// applications so (esi.md); routes may say otherwise.
    esi: bool = false,
        example "true", also "esi_enable" "do_esi";
    /// Networks and addresses whose requests `PURGE`, `BAN` and `PURGEKEYS` remove pages of the
    /// site from the page cache, as plugins for Varnish send them (page-cache.md).
    purge_from: List<Client>, unless "no client may",
        example "\"127.0.0.1\"", also "purge_acl" "invalidators" "purgers";
    /// Compresses all responses, none, or only static files, for clients that accept it.
    compress: Compress = Compress::Off,
        example "true", also "gzip" "encode" "brotli" "zstd" "compression" "gzip_static" "precompressed" "SetOutputFilter";
    /// The content codings that may be used. Among codings that a client accepts equally, the first
    /// in this list is chosen.
    compress_with: List<Coding> = List::of([Coding::Zstd, Coding::Brotli, Coding::Gzip]),
        example "[\"gzip\"]", also "codings" "encodings";
    /// Media types that are compressed; `text/*` stands for all of text, `*/*+json` for all types
    /// that end in `+json`.
    compress_types: List<MimeType>, unless "text, scripts, JSON, XML, SVG, WebAssembly, fonts that are not compressed already",
        example "[\"text/*\", \"application/json\"]", also "gzip_types" "brotli_types" "AddOutputFilterByType";
    /// The length from which bodies are compressed.
    compress_min_length: Size = Size(sendoff_config::Compression::MIN_LENGTH),
        example "\"256\"", also "gzip_min_length" "minimum_length";
    /// Compresses also responses over TLS to requests that carry credentials and come from a page
    /// of another site. The BREACH attack needs such responses.
    compress_cross_site: bool = false,
        example "true";
    /// Pages of the site for error statuses; the status stays. Routes and `.htaccess` files apply
    /// to them, too: a page that they deny is not shown.
    error_pages: Map<Status, UrlPath>, unless "the built-in ones",
        example "{ 404 = \"/404.html\" }", also "error_page" "ErrorDocument" "errors" "handle_errors";
    /// While this file exists, every request is answered with 503.
    maintenance: FilePath,
        example "\"/run/example.maintenance\"";
    /// The value of `SERVER_SOFTWARE` for scripts.
    server_software: Free, unless "`Sendoff/` and the version",
        example "\"Apache\"";
    /// The file for this site's requests, instead of the server's access log; `-` is standard
    /// output, `off` nowhere. Sites may share a file.
    access_log: LogPath, unless "where the server's are",
        example "\"/var/log/sendoff/shop.log\"", also "CustomLog";
    /// The format of its lines.
    access_log_format: LineFormat, unless "that of the top level",
        example "\"json\"", also "log_format" "LogFormat";
    /// Obeys `.htaccess` files. "auto": the files decide for a path on which one lies; for other
    /// paths only the site's own rules hold. `true`: the files decide everything, as in Apache, and
    /// without one no script answers for a path that leads to no file (htaccess.md).
    htaccess: Htaccess = Htaccess::Auto,
        example "true", also "AllowOverride" "allow_override";
    /// FastCGI applications: the files or the folder that each one answers for, and its address, or
    /// `pool:NAME` for the program of a pool.
    fastcgi: Map<Matching, AppAddress>, unless "none",
        example "{ \".php\" = \"unix:/run/php/php8.2-fpm.sock\" }", also "fastcgi_pass" "php_fastcgi" "ProxyPassMatch";
    /// The longest time in which a FastCGI application may send nothing while it has a request.
    fastcgi_timeout: PositiveTime = PositiveTime(seconds(60)),
        example "\"5m\"", also "fastcgi_read_timeout" "ProxyTimeout";
    /// Folders outside the root whose files applications may name in `X-Sendfile`.
    sendfile_from: List<FilePath>, unless "none",
        example "\"/var/lib/moodle\"", also "XSendFilePath";
    /// The folder that a URI prefix in `X-Accel-Redirect` stands for.
    accel: Map<UrlPath, FilePath>, unless "files beneath the root",
        example "{ \"/protected\" = \"/var/lib/files\" }", also "internal" "x_accel";
    /// The way in which responses leave the workers.
    delivery: Delivery = Delivery::Auto,
        example "\"file\"";
    /// Lua scripts that run before the routes are tried; each may change the request or answer it
    /// (lua.md).
    lua_before: List<FilePath>, unless "none",
        example "\"/etc/sendoff/before.lua\"", also "attract_raw_url_to";
    /// Its maps.
    map: Named<RequestMap> = Named(Vec::new()),
        example "see below", also "maps" "geo" "geoip2" "split_clients" "vars";
    /// Its routes.
    route: Sections<Route> = Sections(Vec::new()),
        example "see below", also "location" "routes" "Location" "handle" "rule" "rules";
}

section! {
    /// A map: a table that gives a value for a part of the request (maps.md). Routes compare the
    /// value (`when`), and their texts contain it (`$map_NAME`). The map of NAME belongs to the
    /// site above it, and is written behind the site's own keys.
    RequestMap "[site.map.NAME]"

    /// The part of the request: a field, a cookie or a parameter by its name, or one of the words.
    /// Texts get several fields of one name as one text with `, ` between them, and the first of
    /// several cookies or parameters; conditions and limits look at each. What a request does not
    /// have is the empty text. A country is two capital letters.
    from: MapSource,
        example "\"cookie:version\"", also "source" "variable" "input";
    /// The rows: pattern and value. A pattern is a whole text, in small or capital letters, or `~`
    /// and an expression (PCRE2) that matches anywhere. Texts come before expressions, and
    /// expressions are tried in order. For `host`, `*.example.org` stands for all names below. For
    /// `client`, patterns are networks, and the longest that contains the address counts.
    values: Map<MapPattern, MapValue>,
        example "{ \"beta\" = \"new\", '~^test-(\\d+)$' = \"test$1\" }", also "rows" "mappings" "table";
    /// The value if no row fits.
    default: MapValue = MapValue::empty(),
        example "\"old\"", also "else" "otherwise";
    /// With `country`, the database in MaxMind's format, such as GeoLite2-Country.mmdb. The server
    /// reads it at its start, and a new file at a reload.
    database: FilePath,
        example "\"/var/lib/GeoIP/GeoLite2-Country.mmdb\"", also "mmdb" "GeoIPDBFile" "geoip_country" "db_path";
}

section! {
    /// A route: conditions on the request, rules that change it, and a handler that answers. A site
    /// tries its routes in order. A route whose conditions all hold applies its rules; if it has a
    /// handler (`static`, `php`, `fastcgi`, `proxy`, `redirect`, `respond`, `deny`), the handler
    /// answers and no further route is tried. A path that no route answers is looked up in the
    /// root.
    Route "[[site.route]]"

    /// Condition: these paths.
    path: List<UrlPath>,
        example "[\"/\", \"/status\"]", also "paths" "exact" "location";
    /// Condition: these folders and everything beneath them.
    prefix: List<Prefix>,
        example "\"/admin\"", also "prefixes" "folder" "directory" "Directory";
    /// Condition: paths with one of these endings, in small or capital letters.
    extension: List<Ending>,
        example "[\"png\", \"webp\"]", also "extensions" "ext" "suffix" "ending";
    /// Condition: paths in which the expression (PCRE2) matches. Its groups are `$1` to `$9` in the
    /// texts of the route.
    matching as "match": Expression,
        example "'^/old/(.+)$'", also "regex" "regexp" "matches" "path_regexp" "LocationMatch" "expression" "pattern";
    /// Condition: these methods; `GET` includes `HEAD`.
    method: List<Method>,
        example "[\"POST\", \"PUT\"]", also "methods" "limit_except" "Limit";
    /// Condition: request fields. An expression for the value, with `!` in front to match all other
    /// values; `true`: the field is present. Of a list, all must hold. Of several fields with one
    /// name, one is enough, or all as one text with `, ` between them, each also without white space
    /// of ISO 8859-1 around it, which some programs remove. `Cookie` fields are one text;
    /// it is compared as sent and as programs read it (maps.md), and a condition with `!` holds if
    /// none of these texts matches.
    header: Map<FieldName, List<FieldTest>>,
        example "{ Cookie = 'session=' }", also "headers" "field";
    /// Condition: parameters of the query string, as for `header`. Names and values are compared as
    /// PHP reads them (`?+a.b%00=%63` is `c` for `a_b`, `a[]` is an element of `a`), and also as
    /// other programs read them: `?[a]`, `?a]` and `?x;a` are `a` for some. A condition holds if it
    /// holds for one of the values that some program may read, with `!` also if a program does not
    /// find the parameter. Some programs remove white space and control characters around a value:
    /// `^delete$` holds for `?action=delete%00` and `?action=+delete`, too.
    query: Map<QueryName, List<FieldTest>>,
        example "{ v = true }", also "args" "params_get" "query_string";
    /// Condition: values of the site's maps. The value as a text, with `!` in front for all other
    /// values; `true`: the value is not empty. Of a list, one is enough.
    when: Map<MapName, List<MapTest>>,
        example "{ version = \"new\" }", also "condition" "var" "vars";
    /// Rule: the new path and, behind `?`, the new query; without `?` the query stays.
    rewrite: Replacement,
        example "\"/index.php?p=$1\"", also "RewriteRule" "uri";
    /// Rule: paths that are tried in order; the first that exists becomes the path. A path with a
    /// slash at its end must be a folder. The last path is used without a check, or is a status
    /// such as `=404`.
    try_files: List<Candidate>,
        example "[\"$path\", \"$path/\", \"/index.php\"]", also "try" "try_file";
    /// Rule: changes of request fields: `+NAME` adds, `?NAME` sets where it is missing, `false`
    /// removes.
    request_headers: Map<HeaderOp, HeaderText>,
        example "{ X-Forwarded-Proto = \"https\", Proxy = false }", also "RequestHeader" "request_header" "proxy_set_header";
    /// Rule: changes of response fields, as for `request_headers`. `Server = false` removes the
    /// server's own as well; `Date` stays.
    response_headers: Map<HeaderOp, HeaderText>,
        example "{ X-Frame-Options = \"SAMEORIGIN\" }", also "add_header" "Header" "response_header" "set_headers";
    /// Rule: Lua scripts that run before the handler, in order; each may change the request or
    /// answer it (lua.md).
    lua: List<FilePath>,
        example "\"/etc/sendoff/auth.lua\"", also "attract_physical_path_to" "access_by_lua_file" "content_by_lua_file" "LuaHookAccessChecker";
    /// Rule: Lua scripts that run when the head of the response is known; each may change it.
    lua_response: List<FilePath>,
        example "\"/etc/sendoff/head.lua\"", also "attract_response_start_to" "header_filter_by_lua_file";
    /// Rule: the `Cache-Control` of responses, unless the application sets it itself.
    cache: Caching,
        example "\"365d, immutable\"", also "expires" "cache_control" "ExpiresDefault" "Expires";
    /// Rule: the time for which pages of applications stay in the page cache: as the application
    /// says (`http`), this time if the application says nothing, or not at all (`off`). `stale 1h`:
    /// an old page may be sent for that long while a new one is made or cannot be made. `cookies`:
    /// requests with cookies get cached pages too (page-cache.md).
    page_cache: Keep,
        example "\"10m, stale 1h\"", also "fastcgi_cache" "fastcgi_cache_valid" "proxy_cache" "proxy_cache_valid" "CacheEnable";
    /// Rule: puts fragments in their places in pages of applications that ask for it, as for the
    /// site (esi.md).
    esi: bool, unless "the site's choice",
        example "true", also "esi_enable" "do_esi";
    /// Rule: lets requests with the method `PURGE` remove pages from the page cache. Combine it
    /// with `allow_from`: each removed page costs the application work (page-cache.md).
    purge: bool, unless "as earlier routes say, or they may not",
        example "true", also "fastcgi_cache_purge" "proxy_cache_purge" "cache_purge";
    /// Rule: compression of responses, as for the site.
    compress: Compress,
        example "false", also "gzip" "encode" "brotli" "zstd" "compression" "SetOutputFilter";
    /// Rule: parameters for scripts, in place of the server's own of the same name.
    params: Map<ParamName, Template>,
        example "{ APP_ENV = \"production\" }", also "fastcgi_param" "env" "SetEnv" "environment";
    /// Rule: the largest request body.
    max_body: Size,
        example "\"512M\"", also "client_max_body_size" "LimitRequestBody" "max_body_size";
    /// Rule: `proxy` and FastCGI applications get the request body while it arrives, instead of
    /// when it is complete (gateway.md).
    stream_body: bool, unless "false",
        example "true", also "proxy_request_buffering" "fastcgi_request_buffering" "request_buffers";
    /// Rule: the longest time in which a script may send nothing; 0: no limit.
    request_timeout: Time,
        example "\"10m\"", also "fastcgi_read_timeout" "timeout" "max_execution_time";
    /// Rule: the longest time without a byte in either direction of a WebSocket to a FastCGI
    /// application or a pool. `proxy` has a `tunnel_timeout` of its own.
    tunnel_timeout: PositiveTime, unless "1h",
        example "\"1d\"";
    /// Rule: the largest number of requests per time of one client and, behind `burst=`, of
    /// requests at once. A client is an IPv4 address or a /64 network of IPv6. Further requests get
    /// 429 with `Retry-After`. Nodes of a fleet count together.
    rate: Frequency,
        example "\"10/s burst=20\"", also "limit_req" "rate_limit" "limit_req_zone" "throttle";
    /// Rule: the largest number of requests of one client that are in flight. Further requests get
    /// 429 with `Retry-After`.
    concurrency: Number<1, 1_000_000>,
        example "10", also "limit_concurrency" "max_concurrent";
    /// Rule: `rate` and `concurrency` of this route count requests by the value of this map, such as
    /// a key of an interface, in place of the client. A request with several values, from several
    /// parameters or fields, counts for each. Requests with the empty value alone are not limited.
    limit_by: MapName, unless "by client",
        example "\"api_key\"", also "rate_by" "limit_key";
    /// Rule: the largest rate of a response body, in bytes per second; the first second's bytes
    /// leave at once. 0: no limit.
    limit_rate: Size, unless "no limit",
        example "\"500K\"", also "rate-limit" "kbytes-per-second";
    /// Rule: the charset for responses of text whose `Content-Type` names none: HTML, plain text, XML,
    /// JavaScript and RSS.
    charset: Charset,
        example "\"utf-8\"", also "default_charset" "AddDefaultCharset";
    /// Rule: writes the request to the site's access log.
    access_log: bool, unless "the site's log has it",
        example "false";
    /// Rule: the client must send a name and a password.
    auth: Inline<Auth>,
        example "{ users = \"/etc/sendoff/admins\", realm = \"Administration\" }", also "auth_basic" "basic_auth" "basicauth" "AuthType";
    /// Rule: an application decides whether the client may make the request: a FastCGI application,
    /// whose address may stand alone (fastcgi.md, "Authorizers"), or a web service, as a table with
    /// `url` (authorize.md).
    authorize: Short<Authorize>,
        example "\"unix:/run/authorizer.sock\"", also "authorizer" "auth_request" "forward_auth" "FastCgiAccessAuthorizer" "FcgidAccessChecker" "external_auth";
    /// Rule: static files pass through a FastCGI application, which gets each as the data of a
    /// filter; its response goes to the client (fastcgi.md, "Filters").
    filter: AppAddress,
        example "\"unix:/run/filter.sock\"", also "SetOutputFilter" "ExtFilterDefine" "FastCgiFilter";
    /// Rule: only clients from these networks may make the request.
    allow_from: List<Client>,
        example "[\"10.0.0.0/8\"]", also "allow" "Require" "remote_ip" "Allow";
    /// Rule: clients from these networks may not make the request; the longest network that
    /// contains the address decides.
    deny_from: List<Client>,
        example "[\"10.66.0.0/16\"]", also "Deny";
    /// Rule: lets applications name files and URLs in response fields such as `X-Sendfile`
    /// (named-files.md).
    name_files: bool, unless "PHP and FastCGI applications may; with `proxy`, if the site has `sendfile_from`",
        example "false";
    /// Rule: clients get 404. Only applications of the site may lead requests here: to files by
    /// `X-Sendfile` and `X-Accel-Redirect`, to a `proxy` by `X-Accel-Redirect` and `X-Reproxy-URL`
    /// (named-files.md).
    internal: Yes,
        example "true";
    /// Handler: the file at the path is sent. Files that look like scripts are refused.
    statics as "static": Yes,
        example "true", also "file_server" "static_files";
    /// Handler: as `static`, and folders without an index file are listed (listing.md).
    listing: Yes,
        example "true", also "autoindex" "browse" "directory_listing" "dir-listing.activate" "Indexes";
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
    /// Handler: an application that speaks HTTP, SCGI, uwsgi or AJP: its URL, or a table with its
    /// URL and further keys (gateway.md).
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
    /// Handler: the metrics of the server, for Prometheus (operate.md). Restrict them with
    /// `allow_from`, `auth`, or an address of their own.
    metrics: Yes,
        example "true", also "prometheus" "stub_status" "server-status" "metrics_path";
    /// Handler: a page with live figures of the server, for people (metrics.md). The same route
    /// must restrict it with `allow_from` or `auth`.
    status_page: Yes,
        example "true", also "server_status" "mod_status" "dashboard";
    /// Handler: answers `ready`, and 503 as soon as the server was told to end (`drain_delay`), for
    /// load balancers.
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
    /// Users with passwords (basic authentication). Write it as one value:
    /// `auth = { users = "..." }`.
    Auth "auth"

    /// A file of lines `NAME:HASH`, as `htpasswd` writes them (bcrypt, SHA-512 and SHA-256 crypt,
    /// apr1, sha). Users with other hashes are refused, and the log and `sendoff check` name each
    /// kind.
    users: FilePath,
        example "\"/etc/sendoff/admins\"", also "auth_basic_user_file" "AuthUserFile" "file";
    /// The name of the protected area, which browsers show when they ask for the password.
    realm: Free = Free("Restricted".to_owned()),
        example "\"Administration\"", also "AuthName" "name";
}

section! {
    /// The application that decides whether the client may make a request: a web service
    /// (authorize.md) or a FastCGI application in the role of an authorizer (fastcgi.md). Write it
    /// as one value: `authorize = { url = "...", copy_headers = [...] }`, or
    /// `authorize = { fastcgi = "...", script = "..." }`, or shorter
    /// `authorize = "unix:/run/authorizer.sock"`.
    Authorize "authorize"

    /// The address of a FastCGI application; `pool:NAME` is the program of a pool, `upstream:NAME`
    /// an upstream.
    fastcgi: AppAddress,
        example "\"unix:/run/authorizer.sock\"", also "socket";
    /// With `fastcgi`, the script that answers, where the application is php-fpm:
    /// `SCRIPT_FILENAME`.
    script: FilePath, unless "the file at the path of the request",
        example "\"/srv/access/check.php\"", also "file" "SCRIPT_FILENAME";
    /// The URL of a web service, as for `proxy`, with the path that is asked for. Behind the path of
    /// a socket, a colon and the path.
    url: AuthorityUrl,
        example "\"http://127.0.0.1:9091/api/verify\"", also "to" "uri" "address" "server" "forward_auth";
    /// With `url`, the fields of an answer that allows the request which become fields of the
    /// request. Fields of these names that a client sends itself are removed, for the whole site.
    copy_headers: List<FieldName>, unless "none",
        example "[\"Remote-User\", \"Remote-Groups\"]", also "authResponseHeaders" "auth_request_set" "headers";
    /// With `url`, the field of the answer that names the user, for the access log and
    /// `REMOTE_USER`.
    user: FieldName, unless "none",
        example "\"Remote-User\"", also "remote_user";
    /// With `url`, the host of the question, as for `proxy`.
    host: ProxyHost = ProxyHost::Client,
        example "\"upstream\"";
    /// With `url`, the time limit for the whole answer.
    timeout: PositiveTime = PositiveTime(seconds(10)),
        example "\"2s\"", also "proxy_read_timeout";
    /// With `url` and TLS, the name that the service's certificate must have.
    tls_name: HostText, unless "the host of `url`",
        example "\"auth.internal\"", also "tls_server_name";
    /// With `url` and TLS, a file with the root certificates, in PEM, for the service's certificate.
    roots: FilePath, unless "the system's",
        example "\"/etc/sendoff/internal-ca.pem\"", also "ca" "proxy_ssl_trusted_certificate";
    /// With `url` and TLS, checks the service's certificate.
    verify: bool = true,
        example "false", also "insecureSkipVerify";
}

section! {
    /// An application that requests are passed on to (gateway.md). Write it as one value:
    /// `proxy = { to = "...", host = "..." }`, or shorter `proxy = "http://127.0.0.1:8080"`.
    Proxy "proxy"

    /// Its URL: `http://`, `https://`, `h2://` (HTTP/2, gRPC), `h2s://`, `scgi://`, `uwsgi://` or
    /// `ajp://`, then a host and a port, `unix:` and the path of a socket, or `upstream:` and the
    /// name of an upstream (upstreams.md).
    to: ProxyUrl,
        example "\"http://unix:/run/app.sock\"", also "url" "address" "server" "dial";
    /// With HTTP and HTTP/2, the host of requests: `client` for the host that the client named,
    /// `upstream` for the host of `to`, or a text.
    host: ProxyHost = ProxyHost::Client,
        example "\"upstream\"", also "ProxyPreserveHost" "header_up";
    /// The fields that tell the application about the client; `off`: the application gets these
    /// fields as the client sent them.
    forwarded: ForwardedFields = ForwardedFields::XForwarded,
        example "\"Forwarded\"", also "ProxyAddHeaders";
    /// Time limit for making a connection.
    connect_timeout: PositiveTime = PositiveTime(seconds(5)),
        example "\"2s\"", also "proxy_connect_timeout" "scgi_connect_timeout" "grpc_connect_timeout" "uwsgi_connect_timeout" "dial_timeout" "connectiontimeout";
    /// Time limit for the first byte of the response.
    first_byte_timeout: PositiveTime, unless "as `timeout`",
        example "\"5m\"", also "response_header_timeout";
    /// The longest time in which the application may neither send nor read anything.
    timeout: PositiveTime = PositiveTime(seconds(60)),
        example "\"2m\"", also "proxy_read_timeout" "proxy_send_timeout" "scgi_read_timeout" "grpc_read_timeout" "uwsgi_read_timeout" "read_timeout" "ProxyTimeout";
    /// Time limit for the whole response.
    total_timeout: PositiveTime, unless "as long as it likes",
        example "\"10m\"";
    /// The longest time without a byte in either direction of a WebSocket or of another upgraded
    /// connection.
    tunnel_timeout: PositiveTime = PositiveTime(TUNNEL_TIMEOUT),
        example "\"1d\"", also "stream_timeout";
    /// Lets clients change to another protocol, such as WebSocket; with HTTP/2 only to WebSocket.
    upgrade: bool = true,
        example "false";
    /// With HTTP/2, passes calls of gRPC-Web on as calls of gRPC (gateway.md).
    grpc_web: bool = false,
        example "true";
    /// With HTTP/1.1, accepts response heads whose lines end with LF alone, as some old applications
    /// send them.
    bare_line_feeds: bool = false,
        example "true";
    /// With https and h2s, the name that the application's certificate must have.
    tls_name: HostText, unless "the host of `to`",
        example "\"app.internal\"", also "proxy_ssl_name" "tls_server_name";
    /// With https and h2s, the root certificates, in PEM, for the application's certificate.
    roots: FilePath, unless "those of the system",
        example "\"/etc/sendoff/internal-ca.pem\"", also "proxy_ssl_trusted_certificate" "SSLProxyCACertificateFile" "tls_trusted_ca_certs";
    /// With https and h2s, checks the application's certificate.
    verify: bool = true,
        example "false", also "proxy_ssl_verify" "SSLProxyVerify";
    /// Begins each connection with a header of the PROXY protocol (version 2), which names the
    /// client. Such connections are not reused. Not with HTTP/2.
    proxy_protocol: bool = false,
        example "true", also "ProxyProtocol" "send-proxy-v2";
    /// With HTTP and HTTP/2, takes the `prefix` of the route off the paths of requests, names it in
    /// `X-Forwarded-Prefix`, and puts it before the paths of redirects and cookies (gateway.md).
    strip_prefix: bool = false,
        example "true", also "handle_path" "stripprefix";
    /// With HTTP and HTTP/2, beginnings of URLs in `Location`, `Content-Location` and `Refresh` of
    /// responses, and their replacements; the longest that fits counts. `{}`: URLs stay as they are.
    redirects: Map<UrlStart, UrlStart>, unless "the address of the application becomes the client's",
        example "{ \"http://app.internal/base/\" = \"/shop/\" }", also "proxy_redirect" "grpc_redirect";
    /// With HTTP and HTTP/2, beginnings of the `Path` of cookies that the application sets, and
    /// their replacements, as for `redirects`.
    cookie_paths: Map<CookiePath, CookiePath>, unless "as the application sets them, behind a stripped prefix",
        example "{ \"/base/\" = \"/shop/\" }", also "proxy_cookie_path" "ProxyPassReverseCookiePath";
    /// With HTTP and HTTP/2, the `Domain` of cookies that the application sets, and their
    /// replacements; an empty one removes it.
    cookie_domains: Map<HostText, CookieDomain>, unless "as the application sets them",
        example "{ \"app.internal\" = \"shop.example.org\" }", also "proxy_cookie_domain" "ProxyPassReverseCookieDomain";
    /// With AJP, the secret of its connector.
    secret: Free, unless "none",
        example "\"s3cret\"", also "requiredSecret" "worker.secret";
    /// With AJP, the size of the largest packet, as the connector has it: from 8192 to 65536.
    packet_size: Number<8192, 65536> = Number(8192),
        example "16384", also "max_packet_size" "packetSize" "ProxyIOBufferSize";
}

section! {
    /// The TLS settings of a site. Write them as one value:
    /// `tls = { certificate = "...", key = "..." }`, or shorter `tls = "auto"`. Files are read
    /// again by `sendoff reload`.
    Tls "tls"

    /// A PEM file with the certificate, followed by the certificates of its issuers
    /// (`fullchain.pem`); `auto`: the server obtains a certificate from `acme_directory` and renews
    /// it; `self-signed`: the server makes one once and keeps it.
    certificate: CertificateFrom,
        example "\"/etc/letsencrypt/live/example.org/fullchain.pem\"", also "cert" "ssl_certificate" "SSLCertificateFile" "chain";
    /// The file with the private key, in PEM. It is read before the server gives up root.
    key: FilePath,
        example "\"/etc/letsencrypt/live/example.org/privkey.pem\"", also "ssl_certificate_key" "SSLCertificateKeyFile" "private_key";
    /// A file with a response of the issuer's OCSP responder in DER, which is sent along. It must
    /// be about this certificate.
    ocsp: FilePath,
        example "\"/etc/sendoff/example.ocsp\"", also "ssl_stapling_file";
    /// A PEM file with the issuers of client certificates. With it, clients are asked for a
    /// certificate.
    client_issuers: FilePath,
        example "\"/etc/sendoff/staff.pem\"", also "ssl_client_certificate" "SSLCACertificateFile" "client_ca";
    /// Refuses clients without a certificate (`required`) or serves them, too (`optional`).
    client_certificates: ClientCertificates = ClientCertificates::Required,
        example "\"optional\"", also "ssl_verify_client" "SSLVerifyClient";
    /// The oldest version of TLS that is spoken.
    oldest: TlsVersion = TlsVersion::Tls12,
        example "\"1.3\"", also "ssl_protocols" "SSLProtocol" "min_version";
}

section! {
    /// A pool of PHP workers; or, with `command`, of processes of another program, which answer
    /// FastCGI requests (pools.md).
    Pool "[[pool]]"

    /// Its name, by which sites and routes refer to it.
    name: Free = Free("default".to_owned()),
        example "\"blog\"";
    /// The program that its processes run, with its arguments, in place of PHP. It finds the
    /// listening socket as descriptor 0, where FastCGI programs expect it. A name without a slash
    /// is looked up in the `PATH` of `env`, or else in the system's folders. A command in one text
    /// is split at spaces, without a shell.
    command: Command, unless "PHP",
        example "[\"sendoff-python\", \"shop.wsgi:application\"]", also "program" "exec" "ExecStart" "bin-path";
    /// The stock PHP program that hosts its PHP workers, by version or by path (pools.md), or
    /// `"libphp"` for `sendoff-php`. A version is looked up as `php-fpm8.2`, `php-cgi8.2`, `php-fpm`
    /// and `php-cgi` in the system's folders.
    php: PhpProgram, unless "the newest that is installed with its module, or sendoff-php",
        example "\"8.2\"", also "php_version" "php_binary";
    /// The PHP script that boots the application once in each worker and takes its requests by
    /// `sendoff_handle_request()` (worker-mode.md). It answers for its own path and for paths that
    /// lead to no file. Other scripts run as usual, in a pool like this one whose workers are
    /// started on demand.
    php_worker: FilePath, unless "none",
        example "\"/srv/shop/public/index.php\"", also "worker" "worker_script";
    /// With `php_worker`, folders: when a source file below them changes, the workers boot again.
    /// For developers.
    watch: List<FilePath>, unless "none",
        example "[\"/srv/shop\"]";
    /// The user that its scripts run as. Scripts run as root only if this or the server's `user`
    /// says so.
    user: Free, unless "the user of the server",
        example "\"blog\"", also "User" "username" "run_as";
    /// The group that its scripts run as, in place of the login group of its user; the user's other
    /// groups stay.
    group: Free, unless "the login group of its user",
        example "\"www-data\"", also "Group";
    /// The number of workers, which is the number of scripts that run at the same time. `auto`: as
    /// many as requests need. `ondemand`: as `auto`, and an idle pool has no process. With
    /// `command`, the number of its processes (default 1).
    workers: Count = Count::Auto,
        example "16", also "pm.max_children" "max_children" "processes";
    /// With `command`, the number of requests that one process serves at a time, such as its
    /// threads. The server makes no more connections than all processes together take.
    requests_per_process: Number<1, 10000>, unless "found out",
        example "4", also "threads" "concurrency";
    /// With `command`, memory for fragments of pages that its processes share, from 8M to 4G
    /// (fragments.md). Purges of the site's pages by tags then concern its fragments, too. (For PHP:
    /// `php_ini = { "sendoff.fragments" = "64M" }`.)
    fragments: Size, unless "what its processes share among themselves",
        example "\"32M\"";
    /// With `workers = "auto"`, the smallest number of workers, kept while no request comes.
    min_workers: Number<1, 1024>, unless "2 per core",
        example "4", also "pm.min_spare_servers" "min_spare_servers" "pm.start_servers";
    /// With `auto` and `ondemand`, the largest number of workers.
    max_workers: Number<1, 1024>, unless "one per 128 MiB of the machine's memory, at most 256",
        example "50";
    /// With `auto` and `ondemand`, time after which a worker without requests ends.
    worker_idle_timeout: PositiveTime = PositiveTime(seconds(30)),
        example "\"10s\"", also "pm.process_idle_timeout" "process_idle_timeout" "idle_timeout";
    /// Settings on top of php.ini, in its syntax. Scripts may change them where PHP allows it.
    php_ini: IniSettings = IniSettings::none(),
        example "{ memory_limit = \"256M\" }", also "ini";
    /// Further settings, with values that are taken literally. Scripts may change them where PHP
    /// allows it.
    php_value: IniSettings = IniSettings::none(),
        example "{ date.timezone = \"Europe/Berlin\" }", also "php_flag" "php_values";
    /// As `php_value`, for settings that scripts and `.user.ini` files cannot change.
    php_admin_value: IniSettings = IniSettings::none(),
        example "{ open_basedir = \"/var/www:/tmp\" }", also "php_admin_flag" "php_admin_values";
    /// Environment variables of scripts. Apart from these, scripts see only `USER` and `HOME`.
    env: Map<ParamName, Raw>, unless "none",
        example "{ APP_ENV = \"production\" }", also "environment" "environ";
    /// Permissions that are withheld from files that scripts make, in octal.
    umask: Umask, unless "that of the server",
        example "\"027\"";
    /// The folder that is `/` for scripts.
    chroot: FilePath, unless "the system's",
        example "\"/srv/jail\"";
    /// The working folder of workers between requests, inside `chroot`.
    chdir: FilePath = FilePath("/".into()),
        example "\"/var/www\"", also "cwd" "working_directory";
    /// The largest amount of private memory of a worker. (PHP's `memory_limit` counts only what
    /// scripts allocate.)
    memory_limit: Size, unless "any",
        example "\"1G\"", also "rlimit_as" "RLimitMEM";
    /// The largest number of requests that wait for a worker, or for a process of the program;
    /// further requests get 503 with `Retry-After`.
    max_waiting: Number<0, 1_000_000> = Number(PoolConfig::MAX_WAITING),
        example "100", also "queue";
    /// The largest number of descriptors (files, connections, pipes) that a worker may have open.
    max_open_files: Number<64, 1048576>, unless "as many as the server",
        example "1024", also "rlimit_nofile";
    /// The largest number of processes and threads of the pool's user; a script that would start
    /// one more is refused. The kernel counts all processes of that user, whatever started them.
    max_processes: Number<1, 4194304>, unless "as many as the server",
        example "200", also "rlimit_nproc" "RLimitNPROC";
    /// The largest size of the core file of a worker that crashes.
    max_core: Size, unless "the limit of the server",
        example "\"0\"", also "rlimit_core";
    /// The largest amount of memory of all processes of the pool together, including processes that
    /// they started. The kernel ends a process if it cannot free enough; the log says so, and
    /// another one starts. (`memory_limit` is for each worker.) This key and the next two need a
    /// control group that the server may divide (security.md).
    total_memory: Size, unless "any",
        example "\"2G\"", also "memory_max" "MemoryMax" "memory.max" "MemoryLimit";
    /// The number of processors that all processes of the pool together may keep busy, or a share
    /// of the machine's.
    total_cpu: Processors, unless "all",
        example "\"1.5\"", also "cpu_max" "cpu.max" "CPUQuota";
    /// The largest number of processes and threads of the pool, including its master; a script that
    /// would start one more is refused.
    total_processes: Number<2, 4194304>, unless "any",
        example "200", also "pids_max" "pids.max" "TasksMax";
    /// Denies scripts programs that change their user, such as `sudo` and most forms of `sendmail`,
    /// and signals to processes other than themselves and those that they started (security.md).
    no_new_privileges: bool = false,
        example "true", also "no_new_privs" "NoNewPrivileges";
    /// The file for backtraces of slow scripts.
    slow_log: FilePath, unless "nowhere",
        example "\"/var/log/sendoff/slow.log\"", also "slowlog";
    /// The running time after which a script gets into the slow log.
    slow_after: PositiveTime = PositiveTime(seconds(5)),
        example "\"2s\"", also "request_slowlog_timeout";
    /// The path that is answered with php-fpm's status page, without a worker, on every site whose
    /// scripts the pool runs; `?full`, `?json`, `?xml`, `?html` and `?openmetrics` as there. The
    /// site's routes and `.htaccess` files say who may see it.
    status_path: UrlPath, unless "none",
        example "\"/fpm-status\"", also "pm.status_path";
    /// A path that is answered with `ping_response` by the server itself, even while all workers
    /// are busy.
    ping_path: UrlPath, unless "none",
        example "\"/fpm-ping\"", also "ping.path";
    /// The answer of `ping_path`.
    ping_response: Free = Free("pong".to_owned()),
        example "\"ok\"", also "ping.response";
    /// The number of requests after which a worker is replaced; 0: never.
    max_requests: Number<0, { u64::MAX }> = Number(0),
        example "1000", also "pm.max_requests";
    /// With `php_worker`, the amount of PHP's memory above which a worker is replaced after its
    /// request.
    max_memory: Size, unless "any",
        example "\"256M\"";
    /// With `php_worker`, the age after which a worker is replaced, between two requests.
    max_age: PositiveTime, unless "any",
        example "\"1h\"";
    /// The longest time in which a script may send nothing; then it counts as stuck. 0: no limit.
    request_timeout: Time = Time(seconds(300)),
        example "\"2m\"", also "request_terminate_timeout" "timeout";
    /// The longest time in which PHP starts, with its extensions and preloaded scripts. If it takes
    /// longer, the server does not start, a reload fails, and a running server tries again.
    start_timeout: PositiveTime = PositiveTime(PoolConfig::START_TIMEOUT),
        example "\"3m\"", also "TimeoutStartSec" "process_control_timeout";
    /// Protection of a file against changes between the script's read and the end of the response:
    /// a lease on the file, or a copy of it.
    snapshot: Snapshot = Snapshot::Lease,
        example "\"copy\"";
}

section! {
    /// An application that runs on several hosts (upstreams.md). Sites and routes refer to it by
    /// `upstream:NAME` where the address of an application may stand.
    Upstream "[[upstream]]"

    /// Its name.
    name: Free = Free("default".to_owned()),
        example "\"shop\"";
    /// Its hosts: `HOST:PORT` (each address of the name is a host), `unix:/PATH`, or `srv:NAME` for
    /// the hosts in the SRV records of a name. `weight=N` behind a host is its share of requests
    /// (default 1); a `spare` host gets requests only while no other host is up.
    hosts: List<Backend>,
        example "[\"app1:9000 weight=2\", \"app2:9000\"]", also "server" "servers" "to" "BalancerMember";
    /// The choice of the host for a request. `least`: the host with the fewest requests for its
    /// weight. `client`, `path` (without the query), `header:NAME` or `cookie:NAME`: requests that
    /// are alike in this go to the same host, by consistent hashing. A client is an IPv4 address or
    /// a /64 network of IPv6.
    balance: Balance = Balance(sendoff_config::Balance::Least),
        example "\"client\"", also "ip_hash" "hash" "least_conn" "lbmethod" "lb_policy" "method";
    /// Clients stay with the host that answered them first: the name of the cookie that the server
    /// sets for this, or a table.
    sticky: Short<Sticky>, unless "each request may go to any host",
        example "\"host\"", also "stickysession" "sticky_session" "sticky_cookie" "persistence";
    /// The largest number of connections to each host: the number of its processes.
    connections: Number<1, 65535>, unless "what the host says, or is found to take",
        example "16", also "max_conns" "keepalive" "max";
    /// Failures in a row after which a host is taken for down.
    fails: Number<1, 1000> = Number(3),
        example "1", also "max_fails";
    /// The time until a host that is down gets another request; it doubles with each further
    /// failure, up to a minute.
    retry_after: PositiveTime = PositiveTime(seconds(1)),
        example "\"5s\"", also "fail_timeout" "fail_duration" "retry";
    /// Time in which the share of a host that has come back grows to its full size.
    slow_start: Time = Time(seconds(10)),
        example "\"0s\"", also "slowstart";
    /// Checks of each host beside requests: the pause between two of them, or a table.
    probe: Short<Probe>, unless "only requests tell",
        example "\"5s\"", also "check" "health_check" "health_interval" "option httpchk" "health_uri";
}

section! {
    /// Clients that stay with a host (upstreams.md). Write it as one value:
    /// `sticky = { cookie = "..." }`, or shorter `sticky = "host"`.
    Sticky "sticky"

    /// The name of the cookie that the server sets. Its value names the host; it ends with the
    /// browser's session.
    cookie: CookieName,
        example "\"host\"", also "name" "insert";
    /// Instead of `cookie`: the name of a cookie of the application, such as its session. Clients
    /// get it with the host in front of its value, the application without.
    application: CookieName,
        example "\"JSESSIONID\"", also "prefix" "learn" "route";
}

section! {
    /// Checks of the hosts of an upstream (upstreams.md). Write it as one value:
    /// `probe = { every = "5s", path = "/health" }`, or shorter `probe = "5s"`: a host is up if it
    /// accepts a connection.
    Probe "probe"

    /// The pause between two checks of a host.
    every: PositiveTime = PositiveTime(seconds(5)),
        example "\"2s\"", also "interval" "inter" "health_interval";
    /// With HTTP and HTTP/2, the path of a `GET` request that a host must answer.
    path: UrlPath, unless "no request is sent",
        example "\"/health\"", also "uri" "url" "health_uri";
    /// With HTTP/2, the service that must be able to answer, as gRPC's health service
    /// (`grpc.health.v1.Health`) of the host says; an empty text asks about the host as a whole.
    grpc: Raw, unless "gRPC is not asked",
        example "\"shop.Cart\"", also "grpc_service" "health_grpc";
    /// With `path` or `grpc`, the host of this request.
    host: HostText, unless "the address of the host",
        example "\"shop.internal\"", also "Host";
    /// With `path`, the status of the answer.
    status: Number<200, 599>, unless "any from 200 to 399",
        example "204", also "expect" "health_status" "match";
    /// With `path`, a text in the body of the answer, within its first 64 KiB.
    body: Free, unless "any body",
        example "\"ready\"", also "string" "health_body" "contains";
}
