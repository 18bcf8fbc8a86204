//! Rules about responses and parameters of scripts.

use super::scope::Scope;
use super::text::{Use, translate};
use super::tree::Directive;
use super::{authorize, units};
use sendoff_convert_document::Section;

/// Parameters of FastCGI that Sendoff sets itself, with the values that nginx's own files and
/// common advice give them.
const OWN_PARAMETERS: [(&str, &[&str]); 25] = [
    ("QUERY_STRING", &["$query_string", "$args"]),
    ("REQUEST_METHOD", &["$request_method"]),
    ("CONTENT_TYPE", &["$content_type", "$http_content_type"]),
    ("CONTENT_LENGTH", &["$content_length", "$http_content_length"]),
    ("SCRIPT_NAME", &["$fastcgi_script_name"]),
    ("REQUEST_URI", &["$request_uri"]),
    ("DOCUMENT_URI", &["$document_uri", "$uri"]),
    ("DOCUMENT_ROOT", &["$document_root", "$realpath_root"]),
    ("SERVER_PROTOCOL", &["$server_protocol"]),
    ("REQUEST_SCHEME", &["$scheme"]),
    ("GATEWAY_INTERFACE", &["CGI/1.1"]),
    ("SERVER_SOFTWARE", &["nginx", "nginx/$nginx_version"]),
    ("REMOTE_ADDR", &["$remote_addr"]),
    ("REMOTE_PORT", &["$remote_port"]),
    ("REMOTE_USER", &["$remote_user"]),
    ("SERVER_ADDR", &["$server_addr"]),
    ("SERVER_PORT", &["$server_port"]),
    ("SERVER_NAME", &["$server_name", "$host", "$http_host"]),
    ("REDIRECT_STATUS", &["200"]),
    ("HTTP_HOST", &["$http_host", "$host", "$host$is_request_port$request_port"]),
    ("HTTPS", &["$https"]),
    ("PATH_INFO", &["$fastcgi_path_info", "$path_info"]),
    (
        "PATH_TRANSLATED",
        &[
            "$document_root$fastcgi_path_info",
            "$document_root$path_info",
            "$realpath_root$fastcgi_path_info",
        ],
    ),
    ("ORIG_PATH_INFO", &["$fastcgi_path_info"]),
    ("PHP_SELF", &["$fastcgi_script_name"]),
];

/// Values of `SCRIPT_FILENAME` that name the file at the path.
const FILES_AT_PATH: [&str; 6] = [
    "$document_root$fastcgi_script_name",
    "$document_root/$fastcgi_script_name",
    "$realpath_root$fastcgi_script_name",
    "$document_root$uri",
    "$document_root$document_uri",
    "$request_filename",
];

/// The fields of responses: `add_header` and `expires`.
pub(super) fn of_response(scope: &Scope<'_>, route: &mut Section) {
    for added in scope.all("add_header") {
        response_field(added, scope, route);
    }
    if let Some(expires) = scope.get("expires") {
        match (expires.word(), expires.words.len()) {
            ("off", _) => {}
            ("max", 1) => route.set("cache", "3650d"),
            ("epoch", 1) | ("-1", 1) => route.set("cache", "no-cache"),
            (time, 1) => match units::seconds(time) {
                Some(_) => route.set("cache", units::time(time).unwrap_or_default()),
                None => route.left_out(&expires.place, format!("{} has no equal", expires.text())),
            },
            _ => route.left_out(&expires.place, format!("{} has no equal", expires.text())),
        }
    }
    for hidden in scope.all("fastcgi_hide_header") {
        route.set_in("response_headers", hidden.word(), false);
    }
}

fn response_field(added: &Directive, scope: &Scope<'_>, route: &mut Section) {
    let (name, value) = (added.word(), added.words.get(1).map_or("", String::as_str));
    let is_replaced = ["last-modified", "etag"].contains(&&*name.to_ascii_lowercase());
    if value.is_empty() {
        if is_replaced {
            route.set_in("response_headers", name, false);
        }
        return;
    }
    match translate(value, scope, Use::Value) {
        Ok(value) => {
            // nginx adds a second field if the application sends one.
            let key = if is_replaced { name.to_owned() } else { format!("+{name}") };
            route.add_in("response_headers", &key, value);
            if !added.words.iter().any(|word| word == "always") {
                let text = "add_header without \"always\": here error pages have the field, too";
                route.note(&added.place, text);
            }
        }
        Err(variable) => route.left_out(
            &added.place,
            format!("add_header {name} has no equal: {variable} is not known"),
        ),
    }
}

/// `access_log off` and `gzip off` of a location.
pub(super) fn of_location(scope: &Scope<'_>, route: &mut Section) {
    match scope.own("access_log") {
        Some(log) if log.word() == "off" => route.set("access_log", false),
        Some(log) => {
            route.left_out(&log.place, format!("{} within a location has no equal", log.text()));
        }
        None => {}
    }
    match scope.own("gzip") {
        Some(gzip) if gzip.word() == "off" => route.set("compress", false),
        Some(gzip) if !scope.is_site_compressed() => {
            let text = "gzip on within a location has no equal if the server has it off";
            route.left_out(&gzip.place, text);
        }
        _ => {}
    }
}

/// The parameters and the time limit of scripts.
pub(super) fn of_scripts(scope: &Scope<'_>, route: &mut Section) {
    for parameter in scope.all("fastcgi_param") {
        script_parameter(parameter, scope, route);
    }
    if let Some(limit) = scope.get("fastcgi_read_timeout") {
        match units::time(limit.word()) {
            Some(time) => route.set("request_timeout", time),
            None => route.left_out(&limit.place, format!("{} has no equal", limit.text())),
        }
    }
}

/// The file at the path, which Sendoff does not name to an application for all paths of a location.
pub(super) fn file_of_application(scope: &Scope<'_>, route: &mut Section) {
    let parameters = scope.all("fastcgi_param");
    let file = parameters.iter().rfind(|parameter| parameter.word() == "SCRIPT_FILENAME");
    let value = file.and_then(|parameter| parameter.words.get(1)).map_or("", String::as_str);
    if FILES_AT_PATH.contains(&&*value.replace(['{', '}'], ""))
        && let Some(root) = scope.peek("root")
    {
        let file = format!("{}$path", root.word().trim_end_matches('/').replace('$', "$$"));
        route.set_in("params", "SCRIPT_FILENAME", file);
    }
}

fn script_parameter(parameter: &Directive, scope: &Scope<'_>, route: &mut Section) {
    let (name, value) = (parameter.word(), parameter.words.get(1).map_or("", String::as_str));
    let plain = value.replace(['{', '}'], "");
    let mut own = OWN_PARAMETERS.iter().filter(|(own, _)| *own == name);
    match name {
        _ if own.any(|(_, values)| values.contains(&&*plain)) => {}
        "SCRIPT_FILENAME" if FILES_AT_PATH.contains(&&*plain) => {}
        "SCRIPT_FILENAME" => match translate(value, scope, Use::Value) {
            // A script of the site has a key of its own.
            Ok(file) if is_of_root(&file, scope) => {}
            _ => route.left_out(
                &parameter.place,
                format!("{} has no equal: the script at the path runs", parameter.text()),
            ),
        },
        "HTTP_PROXY" if value.is_empty() => route.set_in("request_headers", "Proxy", false),
        "PHP_VALUE" | "PHP_ADMIN_VALUE" => route.left_out(
            &parameter.place,
            format!(
                "{name} has no equal here: write the settings into php_admin_value of [[pool]]"
            ),
        ),
        _ => any_parameter(parameter, scope, route),
    }
}

/// A parameter of an application over uwsgi or SCGI. Its path is its path info.
pub(super) fn application_parameter(parameter: &Directive, scope: &Scope<'_>, route: &mut Section) {
    let (name, value) = (parameter.word(), parameter.words.get(1).map_or("", String::as_str));
    let plain = value.replace(['{', '}'], "");
    let mut own = OWN_PARAMETERS.iter().filter(|(own, _)| *own == name);
    match (name, &*plain) {
        ("PATH_INFO", "$document_uri" | "$uri" | "$fastcgi_script_name") => {}
        ("SCRIPT_NAME", "") | ("SCGI", "1") => {}
        ("SCRIPT_NAME" | "PATH_INFO", _) => any_parameter(parameter, scope, route),
        _ if own.any(|(_, values)| values.contains(&&*plain)) => {}
        ("HTTP_PROXY", "") => route.set_in("request_headers", "Proxy", false),
        _ => any_parameter(parameter, scope, route),
    }
}

/// A parameter that Sendoff does not set itself.
fn any_parameter(parameter: &Directive, scope: &Scope<'_>, route: &mut Section) {
    let (name, value) = (parameter.word(), parameter.words.get(1).map_or("", String::as_str));
    if authorize::grant(parameter, scope).is_some() {
        return;
    }
    let translated = translate(value, scope, Use::Value);
    if let Some(field) = name.strip_prefix("HTTP_") {
        // nginx does not pass on the client's field of this name.
        let field = field.replace('_', "-");
        match &translated {
            Ok(value) if !value.is_empty() => {
                route.set_in("request_headers", &field, value.clone());
            }
            _ => route.set_in("request_headers", &field, false),
        }
    }
    match translated {
        Ok(_) if name.starts_with("HTTP_") => {}
        Ok(value) => route.set_in("params", name, value),
        Err(variable) => route.left_out(
            &parameter.place,
            format!("{} {name} has no equal: {variable} is not known", parameter.name),
        ),
    }
}

/// True for the file at the path, and for one script below the root.
fn is_of_root(file: &str, scope: &Scope<'_>) -> bool {
    let root = scope.peek("root").map(Directive::word).unwrap_or_default();
    let rest = file.strip_prefix(root.trim_end_matches('/'));
    rest.is_some_and(|rest| rest == "$path" || rest.starts_with('/') && !rest.contains('$'))
}
