//! The CGI/1.1 meta-variables (RFC 3875 §4.1) of a request.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use http::HeaderMap;
use http::header::{CONTENT_TYPE, COOKIE};
use sendoff_config::FastCgiAuthorizer;
use sendoff_fastcgi::handover::ACCEL_PARAM;
use sendoff_message::request::{Request, Scheme, TlsFacts, decode_path, protocol};
use sendoff_site_files::router::{Script, Upstream};
use sendoff_site_files::sendable::Sendable;
use sendoff_upstream::fastcgi_request::RequestMessageBuilder;

use crate::ApplicationRequest;

/// Client fields that are not passed on. `Proxy` would become `HTTP_PROXY`, which programs take for
/// a setting (CVE-2016-5385). Frameworks take the other two for statements of the server about how
/// it sends files.
pub const NOT_FROM_CLIENTS: [&str; 3] = ["proxy", "x-sendfile-type", "x-accel-mapping"];

/// Parameters that the server does not set in every request, and that `.htaccess` files must not
/// set either.
const NOT_FROM_FOLDERS: [&[u8]; 12] = [
    b"AUTH_TYPE",
    b"FCGI_ROLE",
    b"HTTP_PROXY",
    b"HTTP_X_ACCEL_MAPPING",
    b"HTTP_X_SENDFILE_TYPE",
    b"PATH_TRANSLATED",
    b"PHP_ADMIN_VALUE",
    b"PHP_VALUE",
    ACCEL_PARAM,
    b"SENDOFF_ACCEPT",
    b"SENDOFF_CHANNEL",
    b"SENDOFF_FRONT",
];

const SCRIPT_FILENAME: &[u8] = b"SCRIPT_FILENAME";

/// Parameters that authorizers do not get (FastCGI 1.0 §6.3).
const NOT_FOR_AUTHORIZERS: [&[u8]; 4] =
    [b"CONTENT_LENGTH", b"PATH_INFO", b"PATH_TRANSLATED", b"SCRIPT_NAME"];

/// The parameters of a request that `script` answers. File paths are given as the workers see them:
/// their pool may have a root directory of its own.
pub fn parameters(asked: &ApplicationRequest<'_>, script: &Script) -> RequestMessageBuilder {
    let ApplicationRequest { config, site, .. } = *asked;
    let mut builder = RequestMessageBuilder::new();
    let chroot = match script.upstream {
        Upstream::Workers(pool) => config.pools[pool].chroot.as_deref(),
        Upstream::Application(number) => chroot_of(asked, number),
    };
    let paths = [&script.filename, site.router.root_bytes()].map(|path| inside(chroot, path));
    write(asked, [&script.name, &script.path_info], paths, |name, value| {
        builder.param(name, value);
    });
    if matches!(script.upstream, Upstream::Workers(_)) {
        let table = accel(&site.sendable, chroot);
        if !table.is_empty() {
            builder.param(ACCEL_PARAM, &table);
        }
    }
    builder
}

/// The value of [`ACCEL_PARAM`]; empty: the site has no `accel`.
fn accel(sendable: &Sendable, chroot: Option<&Path>) -> Vec<u8> {
    let mut table = Vec::new();
    for (prefix, folder) in sendable.accel() {
        for text in [prefix, inside(chroot, folder.as_os_str().as_bytes())] {
            table.extend_from_slice(text);
            table.push(0);
        }
    }
    table
}

/// The root directory of a FastCGI application of the site; `None`: the server's own, or unknown.
fn chroot_of<'a>(asked: &ApplicationRequest<'a>, application: usize) -> Option<&'a Path> {
    let ApplicationRequest { config, site, .. } = *asked;
    let pool = config.pool_at(&config.sites[site.number].fastcgi[application].address)?;
    config.pools[pool].chroot.as_deref()
}

/// The parameters of the question to an authorizer.
pub fn of_question(
    asked: &ApplicationRequest<'_>,
    authorizer: &FastCgiAuthorizer,
) -> RequestMessageBuilder {
    let mut builder = RequestMessageBuilder::new();
    let chroot = chroot_of(asked, authorizer.application);
    let (path, root) = (&asked.request.path[..], asked.site.router.root_bytes());
    let filename = [root, path].concat();
    let paths = [&filename[..], root].map(|path| inside(chroot, path));
    let script = authorizer.script.as_ref().map(|script| script.as_os_str().as_bytes());
    write(asked, [path, b""], paths, |name, value| {
        let is_own = script.is_some() && name == SCRIPT_FILENAME;
        if !is_own && !NOT_FOR_AUTHORIZERS.contains(&name) {
            builder.param(name, value);
        }
    });
    if let Some(script) = script {
        builder.param(SCRIPT_FILENAME, inside(chroot, script));
    }
    builder
}

/// Writes the parameters of a request for an application that is not a file: the first `prefix`
/// bytes of the path become `SCRIPT_NAME`, the rest `PATH_INFO`.
pub fn of_folder(asked: &ApplicationRequest<'_>, prefix: usize, param: impl FnMut(&[u8], &[u8])) {
    let (path, root) = (&asked.request.path, asked.site.router.root_bytes());
    let filename = [root, &path[..]].concat();
    let (name, rest) = path.split_at(prefix.min(path.len()));
    write(asked, [name, rest], [&filename, root], param);
}

/// Writes all parameters. `names` are `SCRIPT_NAME` and `PATH_INFO`, `paths` are `SCRIPT_FILENAME`
/// and `DOCUMENT_ROOT`.
fn write(
    asked: &ApplicationRequest<'_>,
    names: [&[u8]; 2],
    paths: [&[u8]; 2],
    mut put: impl FnMut(&[u8], &[u8]),
) {
    let ApplicationRequest { site, request, effects, user, .. } = *asked;
    let own = |name: &str| effects.params.iter().any(|(known, _)| known == name.as_bytes());
    let (has_own, has_environment) =
        (!effects.params.is_empty(), !effects.environment().is_empty());
    let mut written: Vec<Vec<u8>> = Vec::new();
    let mut param = |name: &str, value: &[u8]| {
        if !has_own || !own(name) {
            put(name.as_bytes(), value);
        }
        if has_environment {
            written.push(name.as_bytes().to_vec());
        }
    };
    of_request(&mut param, request, names, paths, &site.software, user);
    if !user.is_empty() {
        param("AUTH_TYPE", b"Basic");
    }
    if site.sendable.is_set_up() {
        param("HTTP_X_SENDFILE_TYPE", b"X-Sendfile");
    }
    if site.speaks_lscache() {
        let edition = if site.assembles(effects) { LSCACHE_WITH_ESI } else { LSCACHE };
        edition.into_iter().for_each(|(name, value)| param(name, value));
        // The WordPress plugin limits cookies of commenters to this path.
        let asked = request.uri.split(|&byte| byte == b'?').next().unwrap_or_default();
        if let Ok(path) = decode_path(asked) {
            param("SCRIPT_URL", &path);
        }
    }
    for (name, value) in &effects.params {
        put(name, value);
    }
    // Authors of `.htaccess` files decide neither which script runs nor which user asks.
    let is_free = |name: &[u8]| {
        !written.iter().any(|known| known == name)
            && !effects.params.iter().any(|(known, _)| known == name)
            && !NOT_FROM_FOLDERS.contains(&name)
    };
    for (name, value) in effects.environment().iter().filter(|(name, _)| is_free(name)) {
        put(name, value);
    }
}

/// Parameters by which LSCache's plugins recognise a server that obeys them. They leave ESI alone on
/// a server of this edition.
const LSCACHE: [(&str, &[u8]); 2] = [("X-LSCACHE", b"on"), ("LSWS_EDITION", b"Openlitespeed")];

/// The same for a site that assembles pages. Plugins look for `esi`, or for another edition.
const LSCACHE_WITH_ESI: [(&str, &[u8]); 2] =
    [("X-LSCACHE", b"on,esi"), ("LSWS_EDITION", b"LiteSpeed")];

/// Writes the parameters that do not depend on the site's features, in the order of nginx's
/// `fastcgi.conf`.
fn of_request(
    param: &mut impl FnMut(&str, &[u8]),
    request: &Request,
    [name, path_info]: [&[u8]; 2],
    [filename, document_root]: [&[u8]; 2],
    software: &[u8],
    user: &[u8],
) {
    param("SCRIPT_FILENAME", filename);
    param("QUERY_STRING", request.query.as_deref().unwrap_or_default());
    param("REQUEST_METHOD", request.method.as_str().as_bytes());
    param("CONTENT_TYPE", request.headers.get(CONTENT_TYPE).map_or(b"", |value| value.as_bytes()));
    let length = if request.has_body { request.body.len().to_string() } else { String::new() };
    param("CONTENT_LENGTH", length.as_bytes());
    param("SCRIPT_NAME", name);
    param("PATH_INFO", path_info);
    param("REQUEST_URI", &request.uri);
    // Without the path info, as nginx sets it after `try_files $fastcgi_script_name`.
    param("DOCUMENT_URI", if name.is_empty() { path_info } else { name });
    param("DOCUMENT_ROOT", document_root);
    param("SERVER_PROTOCOL", protocol(request.version).as_bytes());
    param("REQUEST_SCHEME", request.scheme.as_str().as_bytes());
    if request.scheme == Scheme::Https {
        param("HTTPS", b"on");
    }
    if let Some(tls) = &request.tls {
        of_tls(param, tls);
    }
    param("GATEWAY_INTERFACE", b"CGI/1.1");
    param("SERVER_SOFTWARE", software);
    param("REMOTE_ADDR", &request.peer.address());
    port(param, "REMOTE_PORT", request.peer.port());
    param("SERVER_ADDR", &request.local.address());
    port(param, "SERVER_PORT", request.port);
    param("SERVER_NAME", request.host_name().as_bytes());
    if let Some(id) = &request.id {
        param("REQUEST_ID", id.as_bytes());
    }
    param("REMOTE_USER", user);
    param("REDIRECT_STATUS", b"200");
    fields(param, &request.headers);
}

/// The client's TLS connection, under the names of Apache's mod_ssl.
fn of_tls(param: &mut impl FnMut(&str, &[u8]), tls: &TlsFacts) {
    param("SSL_PROTOCOL", tls.version.as_bytes());
    param("SSL_CIPHER", tls.cipher.as_bytes());
    if let Some(name) = &tls.server_name {
        param("SSL_TLS_SNI", name.as_bytes());
    }
    let Some(certificate) = &tls.client_certificate else {
        return param("SSL_CLIENT_VERIFY", b"NONE");
    };
    param("SSL_CLIENT_VERIFY", b"SUCCESS");
    param("SSL_CLIENT_S_DN", certificate.subject.as_bytes());
    param("SSL_CLIENT_I_DN", certificate.issuer.as_bytes());
    param("SSL_CLIENT_M_SERIAL", certificate.serial.as_bytes());
    param("SSL_CLIENT_CERT", certificate.pem.as_bytes());
}

/// A path as seen by processes whose root directory is `chroot`. A path outside `chroot` is
/// unchanged.
fn inside<'a>(chroot: Option<&Path>, path: &'a [u8]) -> &'a [u8] {
    let beneath = chroot.and_then(|root| path.strip_prefix(root.as_os_str().as_bytes()));
    match beneath {
        Some([]) => b"/",
        Some(path @ [b'/', ..]) => path,
        Some(_) | None => path,
    }
}

fn port(param: &mut impl FnMut(&str, &[u8]), name: &str, number: Option<u16>) {
    let Some(mut rest) = number else { return param(name, b"") };
    let mut digits = *b"00000";
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b"0123456789"[usize::from(rest % 10)];
        rest /= 10;
        if rest == 0 {
            return param(name, &digits[from..]);
        }
    }
}

/// The request's fields as `HTTP_*` (RFC 3875 §4.1.18). Fields that also have a parameter of their
/// own are included, as in nginx.
fn fields(param: &mut impl FnMut(&str, &[u8]), headers: &HeaderMap) {
    let mut name = String::with_capacity(64);
    // The map yields all values of a field in succession.
    let mut all = headers.iter().peekable();
    while let Some((key, first)) = all.next() {
        let mut joined = None;
        while let Some((_, value)) = all.next_if(|(next, _)| *next == key) {
            let joined = joined.get_or_insert_with(|| first.as_bytes().to_vec());
            joined.extend_from_slice(if key == COOKIE { b"; " } else { b", " });
            joined.extend_from_slice(value.as_bytes());
        }
        if !NOT_FROM_CLIENTS.contains(&key.as_str()) && write_name(key.as_str(), &mut name) {
            param(&name, joined.as_deref().unwrap_or(first.as_bytes()));
        }
    }
}

/// Writes the name of a field's parameter. Returns false if the field name has characters other
/// than letters, digits and `-`: its parameter could collide with another field's.
fn write_name(field: &str, name: &mut String) -> bool {
    name.clear();
    name.push_str("HTTP");
    for part in field.split('-') {
        name.push('_');
        name.push_str(part);
    }
    name.make_ascii_uppercase();
    field.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;

    #[test]
    fn scheme_version_and_addresses_are_those_of_the_request() {
        let mut request = Request {
            method: http::Method::POST,
            target: "/a/b?c".into(),
            uri: "/a/b?c".into(),
            path: b"/a/b".to_vec(),
            query: Some("c".into()),
            host: Some("example.org:8443".into()),
            headers: HeaderMap::new(),
            version: Version::HTTP_2,
            scheme: Scheme::Https,
            tls: None,
            port: Some(8443),
            body: sendoff_message::request::Body::Memory("xyz".into()),
            has_body: true,
            trailers: None,
            ruled: Vec::new(),
            is_internal_redirect: false,
            id: Some("id-1".into()),
            trace: None,
            listener: 0,
            peer: sendoff_message::request::Endpoint::Ip("192.0.2.1:5".parse().unwrap()),
            via: None,
            local: sendoff_message::request::Endpoint::Ip("[2001:db8::1]:8443".parse().unwrap()),
        };
        let told = |request: &Request| {
            let mut all = std::collections::HashMap::new();
            let mut note = |name: &str, value: &[u8]| {
                let value = String::from_utf8(value.to_vec()).unwrap();
                assert!(all.insert(name.to_owned(), value).is_none(), "{name} twice");
            };
            of_request(&mut note, request, [b"/a", b"/b"], [b"/srv/a", b"/srv"], b"software", b"");
            all
        };
        let all = told(&request);
        for (name, value) in [
            ("SERVER_PROTOCOL", "HTTP/2.0"),
            ("REQUEST_SCHEME", "https"),
            ("HTTPS", "on"),
            ("REMOTE_ADDR", "192.0.2.1"),
            ("SERVER_ADDR", "2001:db8::1"),
            ("SERVER_PORT", "8443"),
            ("SERVER_NAME", "example.org"),
            ("REQUEST_URI", "/a/b?c"),
            ("PATH_INFO", "/b"),
            ("DOCUMENT_ROOT", "/srv"),
            ("CONTENT_LENGTH", "3"),
            ("REQUEST_ID", "id-1"),
        ] {
            assert_eq!(all[name], value, "{name}");
        }
        request.scheme = Scheme::Http;
        (request.version, request.has_body) = (Version::HTTP_10, false);
        let all = told(&request);
        assert_eq!((&*all["SERVER_PROTOCOL"], all.get("HTTPS")), ("HTTP/1.0", None));
        assert_eq!(all["CONTENT_LENGTH"], "");
    }

    #[test]
    fn paths_are_given_as_processes_in_a_chroot_see_them() {
        for (chroot, path, expected) in [
            (None, "/srv/site/a.php", "/srv/site/a.php"),
            (Some("/srv"), "/srv/site/a.php", "/site/a.php"),
            (Some("/srv"), "/srv", "/"),
            (Some("/srv"), "/srvx/a.php", "/srvx/a.php"),
            (Some("/srv"), "/var/a.php", "/var/a.php"),
        ] {
            let inside = inside(chroot.map(Path::new), path.as_bytes());
            assert_eq!(String::from_utf8_lossy(inside), expected, "{chroot:?} {path}");
        }
    }

    #[test]
    fn fields_are_joined_and_dangerous_ones_left_out() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("cookie", "a"),
            ("cookie", "b"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("proxy", "x"),
            ("x-sendfile-type", "X-Accel-Redirect"),
            ("x-accel-mapping", "/=/etc"),
            ("x_a", "3"),
            ("x.a", "4"),
            ("x.accel.mapping", "/=/etc"),
            ("x~a", "5"),
            ("content-type", "t"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let mut seen = Vec::new();
        fields(&mut |name, value| seen.push((name.to_owned(), value.to_vec())), &headers);
        seen.sort();
        assert_eq!(
            seen,
            [
                ("HTTP_CONTENT_TYPE".to_owned(), b"t".to_vec()),
                ("HTTP_COOKIE".to_owned(), b"a; b".to_vec()),
                ("HTTP_X_A".to_owned(), b"1, 2".to_vec()),
            ]
        );
    }
}
