//! Rules about clients: addresses, passwords, limits. A rule that cannot be expressed refuses.

use super::addresses::Clients;
use super::authorize;

use super::leftover::MODULES;
use super::scope::Scope;
use super::tree::Directive;
use sendoff_convert_document::Section;

/// Parts of the names of directives about access: what an unknown one protects must stay closed.
const GUARDS: [&str; 21] = [
    "access",
    "auth",
    "captcha",
    "crl",
    "deny",
    "guard",
    "jwt",
    "ldap",
    "naxsi",
    "ocsp",
    "oidc",
    "protect",
    "referers",
    "reject",
    "rewrite_by_lua",
    "saml",
    "secrules",
    "secur",
    "shib",
    "verify",
    "waf",
];

/// Directives with such a name that have an equal, or protect nothing.
const HARMLESS: [&str; 9] = [
    "access_log",
    "auth_basic",
    "auth_basic_user_file",
    "auth_delay",
    "auth_request",
    "auth_request_set",
    "deny",
    "ssl_verify_client",
    "ssl_verify_depth",
];

/// True for a directive that may be about access and has no equal.
pub(super) fn may_guard(directive: &Directive) -> bool {
    let name = directive.name.to_ascii_lowercase();
    let is_about_applications = || MODULES.iter().any(|module| name.starts_with(module));
    GUARDS.iter().any(|part| name.contains(part))
        && directive.word() != "off"
        && !HARMLESS.contains(&&*name)
        && !is_about_applications()
}

/// True for a rule of the TLS handshake, which nginx applies before every answer.
fn is_of_handshake(directive: &Directive) -> bool {
    directive.name.starts_with("ssl_")
}

/// The rule of the TLS handshake that no key expresses, if there is one: nginx refuses clients before
/// it looks at any location.
pub(super) fn handshake<'d>(scope: &Scope<'d>) -> Option<&'d Directive> {
    unknown(scope).filter(|found| is_of_handshake(found))
}

/// The effect of access rules on a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Every request is refused.
    Refused,
    /// The keys of the route say which requests are let through.
    Restricted,
}

/// Adds the rules to a route.
pub(super) fn rules(scope: &Scope<'_>, route: &mut Section) -> Access {
    if let Some(reason) = unknown(scope) {
        route.left_out(
            &reason.place,
            format!("{} has no equal: every request is refused", reason.text()),
        );
        route.set("deny", true);
        return Access::Refused;
    }
    if question(scope, route) == Access::Refused {
        return Access::Refused;
    }
    let rules = scope.group(&["allow", "deny"]);
    let clients = Clients::of(&rules);
    let satisfy = scope.get("satisfy");
    let asks_password = scope.peek("auth_basic").is_some_and(|auth| auth.word() != "off");
    let clients = match satisfy.filter(|satisfy| satisfy.word() == "any" && asks_password) {
        None => clients,
        Some(_) if clients == Clients::None => Clients::Everyone,
        // Every address is enough.
        Some(_) if clients == Clients::Everyone && !rules.is_empty() => {
            scope.group(&["auth_basic", "auth_basic_user_file"]);
            return Access::Restricted;
        }
        Some(_) if rules.is_empty() => clients,
        Some(satisfy) => {
            route.left_out(
                &satisfy.place,
                "satisfy any has no equal: both the address and the password are required",
            );
            clients
        }
    };
    if !rules.is_empty()
        && clients != Clients::None
        && let Some(directive) = hides_client(scope)
    {
        let text = format!(
            "{} has no equal, so clients have no address that rules can name: every request is refused",
            directive.text()
        );
        route.left_out(&directive.place, text);
        route.set("deny", true);
        return Access::Refused;
    }
    let mut by_password = Section::default();
    // nginx looks at the address first: a client that it refuses is asked for no password.
    let asked = password(scope, &mut by_password);
    if clients != Clients::None {
        route.absorb(by_password);
    }
    let refused = clients.set(&rules, route) || asked == Access::Refused;
    if refused { Access::Refused } else { Access::Restricted }
}

/// Adds the web service that is asked about each request.
fn question(scope: &Scope<'_>, route: &mut Section) -> Access {
    let Some(asked) = scope.get("auth_request").filter(|asked| asked.word() != "off") else {
        return Access::Restricted;
    };
    if let Err(why) = authorize::set(asked, scope, route) {
        let text = format!("{} has no equal: {why}; every request is refused", asked.text());
        route.left_out(&asked.place, text);
        route.set("deny", true);
        return Access::Refused;
    }
    scope.all("auth_request_set");
    if let Some(any) = scope.peek("satisfy").filter(|satisfy| satisfy.word() == "any") {
        let text = "satisfy any has no equal beside auth_request: both are required";
        route.left_out(&any.place, text);
    }
    Access::Restricted
}

/// The directive that no rule can express, if there is one.
fn unknown<'d>(scope: &Scope<'d>) -> Option<&'d Directive> {
    if let Some(found) = scope.holding(may_guard) {
        found.take();
        return Some(found);
    }
    if let Some(limit) = scope.own("limit_except") {
        limit.take_whole();
        return Some(limit);
    }
    let has_issuers = scope.peek("ssl_client_certificate").is_some();
    scope.peek("ssl_verify_client").filter(|verify| match verify.word() {
        "on" | "optional" => !has_issuers,
        "optional_no_ca" => true,
        _ => false,
    })
}

/// The directive that makes a client's address something that Sendoff does not know: trusted
/// proxies belong to the whole server.
fn hides_client<'d>(scope: &Scope<'d>) -> Option<&'d Directive> {
    ["set_real_ip_from", "real_ip_header"]
        .into_iter()
        .find_map(|name| scope.peek(name).filter(|_| !scope.is_outermost(name)))
}

fn password(scope: &Scope<'_>, route: &mut Section) -> Access {
    let users = scope.word("auth_basic_user_file");
    let Some(auth) = scope.get("auth_basic").filter(|auth| auth.word() != "off") else {
        return Access::Restricted;
    };
    match users {
        Some(users) if !users.contains('$') => {
            route.set_in("auth", "users", users);
            route.set_in("auth", "realm", auth.word());
            if auth.word().contains('$') {
                let text =
                    format!("{} has no equal: everyone is asked for a password", auth.text());
                route.left_out(&auth.place, text);
            }
            Access::Restricted
        }
        _ => {
            route.left_out(
                &auth.place,
                "auth_basic without a file of users that can be named: every request is refused",
            );
            route.set("deny", true);
            Access::Refused
        }
    }
}

/// The limits of requests, and of their bodies.
pub(super) fn limits(scope: &Scope<'_>, outer: &Scope<'_>, route: &mut Section) {
    for limit in scope.all("limit_req") {
        let option = |name: &str| limit.words.iter().find_map(|word| word.strip_prefix(name));
        let zone = option("zone=").unwrap_or_default();
        let zones = outer.all("limit_req_zone");
        let name = format!("zone={zone}:");
        let zone = zones.iter().find(|zone| zone.words.iter().any(|word| word.starts_with(&name)));
        let rate =
            zone.and_then(|zone| zone.words.iter().find_map(|word| word.strip_prefix("rate=")));
        let by_client =
            zone.is_some_and(|zone| matches!(zone.word(), "$binary_remote_addr" | "$remote_addr"));
        let rate = rate.and_then(|rate| {
            rate.strip_suffix("r/s")
                .map(|n| format!("{n}/s"))
                .or(rate.strip_suffix("r/m").map(|n| format!("{n}/m")))
        });
        match rate {
            Some(rate) if by_client && !route.has("rate") => {
                let burst =
                    option("burst=").map(|burst| format!(" burst={burst}")).unwrap_or_default();
                route.set("rate", rate + &burst);
                let delays = if limit.words.iter().any(|word| word == "nodelay") || burst.is_empty()
                {
                    ""
                } else {
                    "; requests within the burst are not delayed"
                };
                route.note(
                    &limit.place,
                    format!("limit_req: further requests get 429, not 503{delays}"),
                );
            }
            _ => route.left_out(
                &limit.place,
                format!(
                    "{} has no equal: only one limit, per client, can be expressed",
                    limit.text()
                ),
            ),
        }
    }
    for limit in scope.all("limit_conn") {
        let zones = outer.all("limit_conn_zone");
        let name = format!("zone={}:", limit.word());
        let zone = zones.iter().find(|zone| zone.words.iter().any(|word| word.starts_with(&name)));
        let by_client =
            zone.is_some_and(|zone| matches!(zone.word(), "$binary_remote_addr" | "$remote_addr"));
        match limit.words.get(1).and_then(|number| number.parse::<i64>().ok()) {
            Some(number @ 1..=1_000_000) if by_client && !route.has("concurrency") => {
                route.set("concurrency", number);
                route.note(&limit.place, "limit_conn: further requests get 429, not 503");
            }
            _ => route.left_out(&limit.place, format!("{} has no equal", limit.text())),
        }
    }
    if let Some(limit) = scope.get("limit_rate") {
        match super::units::size(limit.word()) {
            Some(size) => route.set("limit_rate", size),
            None => route.left_out(&limit.place, format!("{} has no equal", limit.text())),
        }
    }
    if let Some(charset) = scope.get("charset").filter(|charset| charset.word() != "off") {
        match charset.word().starts_with('$') {
            false => route.set("charset", charset.word()),
            true => route.left_out(&charset.place, format!("{} has no equal", charset.text())),
        }
    }
    if let Some(limit) = scope.get("client_max_body_size") {
        match super::units::size(limit.word()) {
            Some(size) if size.trim_matches(['0', 'K', 'M', 'G']).is_empty() => {
                route.set("max_body", "1024G");
            }
            Some(size) => route.set("max_body", size),
            None => route.left_out(&limit.place, format!("{} has no equal", limit.text())),
        }
    }
}
