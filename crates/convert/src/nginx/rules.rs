//! Rules about responses and parameters of scripts.

use super::scope::Scope;
use super::text::{Use, translate};
use super::units;
use crate::document::Section;

/// Parameters of FastCGI that Sendoff sets itself.
const OWN_PARAMETERS: [&str; 27] = [
    "QUERY_STRING",
    "REQUEST_METHOD",
    "CONTENT_TYPE",
    "CONTENT_LENGTH",
    "SCRIPT_NAME",
    "REQUEST_URI",
    "DOCUMENT_URI",
    "DOCUMENT_ROOT",
    "SERVER_PROTOCOL",
    "REQUEST_SCHEME",
    "GATEWAY_INTERFACE",
    "SERVER_SOFTWARE",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REMOTE_USER",
    "SERVER_ADDR",
    "SERVER_PORT",
    "SERVER_NAME",
    "REDIRECT_STATUS",
    "HTTP_HOST",
    "SCRIPT_FILENAME",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "ORIG_PATH_INFO",
    "PHP_SELF",
    "AUTH_USER",
    "AUTH_TYPE",
];

/// The fields of responses: `add_header` and `expires`.
pub(super) fn of_response(scope: &Scope<'_>, route: &mut Section) {
    for added in scope.all("add_header") {
        let (name, value) = (added.word(), added.words.get(1).map_or("", String::as_str));
        if value.is_empty() {
            continue;
        }
        match translate(value, scope, Use::Value) {
            Ok(value) => {
                // nginx adds a second field if the application sends one.
                route.set_in("response_headers", &format!("+{name}"), value);
                if !added.words.iter().any(|word| word == "always") {
                    route.note(
                        &added.place,
                        "add_header without \"always\": here error pages have the field, too",
                    );
                }
            }
            Err(variable) => route.left_out(
                &added.place,
                format!("add_header {name} has no equal: {variable} is not known"),
            ),
        }
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

/// `access_log off` of a location.
pub(super) fn of_log(scope: &Scope<'_>, route: &mut Section) {
    let own = scope.own().iter().find(|directive| directive.name == "access_log");
    match own {
        Some(log) if log.word() == "off" => route.set("access_log", false),
        Some(log) => {
            route.left_out(&log.place, format!("{} within a location has no equal", log.text()));
        }
        None => {}
    }
}

/// The parameters and the time limit of scripts.
pub(super) fn of_scripts(scope: &Scope<'_>, route: &mut Section) {
    for parameter in scope.all("fastcgi_param") {
        let (name, value) = (parameter.word(), parameter.words.get(1).map_or("", String::as_str));
        match name {
            _ if OWN_PARAMETERS.contains(&name) || name == "HTTPS" && value == "$https" => {}
            "HTTP_PROXY" if value.is_empty() => {
                route.set_in("request_headers", "Proxy", false);
            }
            "PHP_VALUE" | "PHP_ADMIN_VALUE" => route.left_out(
                &parameter.place,
                format!(
                    "{name} has no equal here: write the settings into php_admin_value of [[pool]]"
                ),
            ),
            _ => match translate(value, scope, Use::Value) {
                Ok(value) => route.set_in("params", name, value),
                Err(variable) => route.left_out(
                    &parameter.place,
                    format!("fastcgi_param {name} has no equal: {variable} is not known"),
                ),
            },
        }
    }
    if let Some(limit) = scope.get("fastcgi_read_timeout") {
        match units::time(limit.word()) {
            Some(time) => route.set("request_timeout", time),
            None => route.left_out(&limit.place, format!("{} has no equal", limit.text())),
        }
    }
}
