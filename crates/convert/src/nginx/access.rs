//! Rules about clients: addresses, passwords, limits. A rule that cannot be expressed refuses.

use super::scope::Scope;
use crate::document::Section;

/// Directives about access that have no equal: what they protect must stay closed.
const REFUSE: [&str; 9] = [
    "auth_request",
    "auth_jwt",
    "auth_digest",
    "secure_link",
    "valid_referers",
    "auth_pam",
    "access_by_lua_block",
    "access_by_lua_file",
    "js_access",
];

/// Adds the rules to a route. Returns true if the route refuses every request.
pub(super) fn rules(scope: &Scope<'_>, route: &mut Section) -> bool {
    let satisfy = scope.word("satisfy") == Some("any");
    let addresses = scope.group(&["allow", "deny"]);
    let asks_password = scope.get("auth_basic").is_some_and(|auth| auth.word() != "off");
    if satisfy && asks_password && !addresses.is_empty() {
        let place = &scope.get("satisfy").or(scope.get("auth_basic")).map(|d| d.place.clone());
        if let Some(place) = place {
            route.left_out(
                place,
                "satisfy any has no equal: both the address and the password are required",
            );
        }
    }
    for name in REFUSE {
        if let Some(directive) = scope.get(name).filter(|directive| directive.word() != "off") {
            route.left_out(
                &directive.place,
                format!("{} has no equal: every request is refused", directive.text()),
            );
            route.set("deny", true);
            return true;
        }
    }
    if let Some(directive) = scope.own().iter().find(|own| own.name == "limit_except") {
        let text = format!("{} has no equal: every request is refused", directive.text());
        route.left_out(&directive.place, text);
        route.set("deny", true);
        return true;
    }
    if let Some(directive) = scope.get("ssl_verify_client")
        && directive.word() == "optional_no_ca"
    {
        route.left_out(
            &directive.place,
            "ssl_verify_client optional_no_ca has no equal: every request is refused",
        );
        route.set("deny", true);
        return true;
    }
    password(scope, route);
    by_address(&addresses, route)
}

/// `allow` and `deny`: nginx takes the first that names the client.
fn by_address(rules: &[&super::tree::Directive], route: &mut Section) -> bool {
    let (mut allowed, mut denied) = (Vec::new(), Vec::new());
    for (number, rule) in rules.iter().enumerate() {
        let network = rule.word();
        match (&*rule.name, network) {
            ("deny", "all") if allowed.is_empty() => {
                route.set("deny", true);
                return true;
            }
            ("deny", "all") => {
                route.set_list("allow_from", allowed);
                route.set_list("deny_from", denied);
                return false;
            }
            ("allow", "all") => break,
            (_, "unix:") => {
                route.left_out(&rule.place, format!("{} unix: has no equal", rule.name));
            }
            ("allow", network) => {
                // Here the longest network decides, in nginx the first.
                if !denied.is_empty() && rules[number..].iter().any(|later| later.word() != "all") {
                    let text = "the order of allow and deny has no equal: here the longest network that contains the address decides";
                    route.note(&rule.place, text);
                }
                allowed.push(network.to_owned());
            }
            (_, network) => denied.push(network.to_owned()),
        }
    }
    route.set_list("deny_from", denied);
    false
}

fn password(scope: &Scope<'_>, route: &mut Section) {
    let Some(auth) = scope.get("auth_basic").filter(|auth| auth.word() != "off") else { return };
    match scope.word("auth_basic_user_file") {
        Some(users) if !users.contains('$') => {
            route.set_in("auth", "users", users);
            route.set_in("auth", "realm", auth.word());
        }
        _ => {
            route.left_out(
                &auth.place,
                "auth_basic without a file of users that can be named: every request is refused",
            );
            route.set("deny", true);
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
            Some(number @ 1..=1_000_000) if by_client => {
                route.set("concurrency", number);
                route.note(&limit.place, "limit_conn: further requests get 429, not 503");
            }
            _ => route.left_out(&limit.place, format!("{} has no equal", limit.text())),
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
