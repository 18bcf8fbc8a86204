//! `Header`, `RequestHeader`, `SetEnv` and what sections say about bodies.

use sendoff_convert_document::{Directive, Section};

use super::sections::{Kind, Part};

/// Adds the routes with rules, in Apache's order: later ones win.
pub(super) fn routes(parts: &[Part<'_>], site: &mut Section, routes: &mut Vec<Section>) {
    for part in parts {
        if part.kind == Kind::If {
            for directive in part.directives.iter().filter(|one| is_rule(one)) {
                directive.left_out(site, "the condition of its section is not understood");
            }
            continue;
        }
        let Some(condition) = part.area.without(std::iter::empty()) else { continue };
        let mut route = Section::new("site.route");
        condition.set(&mut route);
        let mut made = Section::default();
        let mut refused = false;
        for directive in &part.directives {
            refused |= rule(directive, &mut made);
        }
        if refused {
            let mut closed = Section::new("site.route");
            condition.set(&mut closed);
            closed.set("deny", true);
            route.absorb_comments(made);
            routes.extend([route, closed]);
        } else if !made.is_empty() {
            route.absorb(made);
            routes.push(route);
        } else {
            site.absorb_comments(made);
        }
    }
}

fn is_rule(directive: &Directive) -> bool {
    matches!(
        directive.name.as_str(),
        "header" | "requestheader" | "setenv" | "limitrequestbody" | "expiresdefault"
    )
}

/// Adds one rule. Returns true if the requests have to be refused.
fn rule(directive: &Directive, made: &mut Section) -> bool {
    match directive.name.as_str() {
        "header" => {
            if let Err(why) = header(directive, "response_headers", made) {
                directive.left_out(made, why);
            }
        }
        "requestheader" => {
            // An application may trust the field.
            if let Err(why) = header(directive, "request_headers", made) {
                directive.left_out(made, &format!("{why}; the requests are refused"));
                return true;
            }
        }
        "setenv" => match &directive.words[..] {
            [name] if is_plain(name) => made.set_in("params", name, ""),
            [name, value] if is_plain(name) => {
                made.set_in("params", name, value.replace('$', "$$"));
            }
            _ => directive.left_out(made, "its name"),
        },
        "limitrequestbody" => match directive.word().parse::<i64>() {
            // Sendoff's largest size in place of no limit.
            Ok(size @ 1..) => made.set("max_body", size),
            Ok(0) => made.set("max_body", "1G"),
            _ => directive.left_out(made, "it is no size"),
        },
        "expiresdefault" => match expires(directive.word()) {
            Some(seconds) => made.set("cache", format!("{seconds}s")),
            None => directive.left_out(made, "its time"),
        },
        _ => {}
    }
    false
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// `[always] ACTION NAME [VALUE]`
fn header(
    directive: &Directive,
    key: &'static str,
    made: &mut Section,
) -> Result<(), &'static str> {
    let mut words = directive.words.iter().map(String::as_str).peekable();
    words.next_if(|word| {
        word.eq_ignore_ascii_case("always") || word.eq_ignore_ascii_case("onsuccess")
    });
    let action = words.next().unwrap_or_default().to_ascii_lowercase();
    let name = words.next().unwrap_or_default().trim_end_matches(':');
    let value = words.next();
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if words.next().is_some() {
        return Err("it has a condition");
    }
    if !is_name {
        return Err("its name");
    }
    match (action.as_str(), value) {
        ("unset", None) => made.set_in(key, name, false),
        ("set" | "add" | "setifempty", Some(value)) => {
            let plain = value.replace("%%", "");
            if plain.contains('%') {
                return Err("its value has variables");
            }
            let value = value.replace("%%", "%").replace('$', "$$");
            let name = match action.as_str() {
                "add" => format!("+{name}"),
                "setifempty" => format!("?{name}"),
                _ => name.to_owned(),
            };
            match action.as_str() {
                "add" => made.add_in(key, &name, value),
                _ => made.set_in(key, &name, value),
            }
        }
        _ => return Err("this change of a field"),
    }
    Ok(())
}

/// `access plus 1 month`, in seconds.
fn expires(text: &str) -> Option<i64> {
    let mut words = text
        .split_whitespace()
        .skip_while(|word| matches!(word.to_ascii_lowercase().as_str(), "access" | "now" | "plus"));
    if text.to_ascii_lowercase().starts_with('m') {
        return None;
    }
    let mut total = 0_i64;
    while let Some(number) = words.next() {
        let number: i64 = number.parse().ok()?;
        let unit = words.next()?.to_ascii_lowercase();
        let seconds = match unit.trim_end_matches('s') {
            "second" => 1,
            "minute" => 60,
            "hour" => 3600,
            "day" => 86_400,
            "week" => 604_800,
            "month" => 2_592_000,
            "year" => 31_536_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(seconds)?)?;
    }
    (total > 0).then_some(total)
}
