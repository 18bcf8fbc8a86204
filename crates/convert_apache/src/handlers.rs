//! Handlers of files: the scripts that do not run, and handlers that have no equal.
//!
//! Sendoff runs each script of a site that has a pool. Apache runs those that a directive names, and
//! sends the source of others; so other scripts are refused here.

use sendoff_convert_document::expression::{matches, quote};
use sendoff_convert_document::{Directive, Section};

use super::areas::{self, Condition, Surely};
use super::php::is_php;
use super::sections::{Kind, Part};

/// Handlers that send files as they are.
const PLAIN: [&str; 3] = ["none", "default-handler", "off"];
/// Handlers of single endings without an effect on the files behind them: `type-map` chooses one of
/// several forms of a document.
const HARMLESS: [&str; 2] = ["type-map", "default-handler"];
/// A path that leads to a script, behind the conditions of a route.
const SCRIPT: &str = r"(?i)(?s:.*?)\.ph";

/// The effect of a directive on the files of its section.
enum Effect {
    /// Scripts are files.
    ScriptsOff,
    /// A handler that has no equal has the files with these endings, or all without any.
    Other(Vec<String>),
    None,
}

/// Adds the routes of scripts that do not run, and of handlers that have no equal. Applications
/// answer the paths in `elsewhere`.
pub(super) fn routes(parts: &[Part<'_>], elsewhere: &[String], routes: &mut Vec<Section>) {
    routes.extend(others(parts, elsewhere));
    for part in parts {
        for directive in &part.directives {
            let (behind, endings) = match effect(directive) {
                Effect::ScriptsOff => (SCRIPT.to_owned(), Vec::new()),
                Effect::Other(endings) => (with_one_of(&endings), endings),
                Effect::None => continue,
            };
            let Some(condition) = part.area.without(std::iter::empty()) else { continue };
            let mut route = Section::new("site.route");
            if let Some(text) = condition.matching(&behind) {
                route.set("match", text);
            }
            let is_off = matches!(effect(directive), Effect::ScriptsOff);
            match is_off {
                true if directive.name == "forcetype" => {
                    directive.left_out(&mut route, "a type of some paths; scripts are refused");
                }
                true => {
                    let text = format!("{}: scripts are refused", directive.text());
                    route.note(&directive.place, text);
                }
                false if endings.is_empty() => {
                    directive.left_out(&mut route, "its requests are refused");
                }
                false => directive.left_out(&mut route, "these files are refused"),
            }
            route.set("deny", true);
            if part.area.surely == Surely::None && is_off {
                route.comment("These are perhaps more paths than in Apache.");
            }
            routes.push(route);
        }
    }
}

/// An expression for paths that lead to a file with one of these endings, of which a name may have
/// several; without endings, for every path.
fn with_one_of(endings: &[String]) -> String {
    match endings {
        [] => String::new(),
        endings => {
            let quoted: Vec<String> = endings.iter().map(|ending| quote(ending)).collect();
            format!(r"(?i)(?s:.*?)\.(?:{})(?:[./]|\z)", quoted.join("|"))
        }
    }
}

/// The endings that a directive names, without their dots.
fn endings(words: &[String]) -> Vec<String> {
    let bare = words.iter().map(|word| word.trim_start_matches('.').to_ascii_lowercase());
    bare.filter(|ending| !ending.is_empty()).collect()
}

/// True for an ending of scripts.
fn is_of_php(ending: &str) -> bool {
    ending.contains("ph")
}

fn effect(directive: &Directive) -> Effect {
    let word = directive.word().to_ascii_lowercase();
    let is_plain = PLAIN.contains(&word.as_str());
    let has_php = |words: &[String]| endings(words).iter().any(|ending| is_of_php(ending));
    let behind = directive.words.get(1..).unwrap_or_default();
    match directive.name.as_str() {
        _ if is_php(directive) => Effect::None,
        "sethandler" if is_plain => Effect::ScriptsOff,
        "sethandler" => Effect::Other(Vec::new()),
        "php_admin_flag" | "php_flag" | "php_admin_value" | "php_value"
            if word == "engine" && !is_on(behind.first().map_or("", String::as_str)) =>
        {
            Effect::ScriptsOff
        }
        "removehandler" | "removetype" if has_php(&directive.words) => Effect::ScriptsOff,
        // A type also stands for a handler.
        "forcetype" | "addtype" if word.starts_with("application/x-httpd-") => {
            Effect::Other(endings(behind))
        }
        "forcetype" if word != "none" => Effect::ScriptsOff,
        "addtype" | "addhandler" if has_php(behind) => Effect::ScriptsOff,
        "addhandler" if !HARMLESS.contains(&word.as_str()) => Effect::Other(endings(behind)),
        _ => Effect::None,
    }
}

/// True for a value of PHP's settings that stands for "on".
fn is_on(value: &str) -> bool {
    matches!(&*value.to_ascii_lowercase(), "on" | "yes" | "true")
        || value.parse::<i64>().is_ok_and(|number| number != 0)
}

/// The scripts of one handler.
enum Reach {
    /// Every script of the site.
    Every,
    /// Scripts whose paths meet these look-aheads.
    Only(String),
    /// None is known.
    None,
}

/// The route that refuses scripts which no handler runs.
fn others(parts: &[Part<'_>], elsewhere: &[String]) -> Option<Section> {
    let mut route = Section::new("site.route");
    let mut conditions: String =
        elsewhere.iter().map(|path| format!("(?!{})", areas::beneath(path).may)).collect();
    let around = conditions.clone();
    let mut has_handler = false;
    for part in parts {
        for directive in part.directives.iter().filter(|one| is_php(one)) {
            has_handler = true;
            match reach(part, directive, &around) {
                Reach::Every => return None,
                Reach::Only(text) => conditions.push_str(&format!("(?!{text})")),
                Reach::None => {
                    let text = "the scripts that it runs are not known; they are refused";
                    directive.left_out(&mut route, text);
                }
            }
        }
    }
    if !has_handler {
        return None;
    }
    route.comment("No directive has these scripts run.");
    if let Some(text) = Condition(conditions).matching(SCRIPT) {
        route.set("match", text);
    }
    route.set("deny", true);
    Some(route)
}

fn reach(part: &Part<'_>, directive: &Directive, around: &str) -> Reach {
    if part.kind == Kind::If {
        return Reach::None;
    }
    let names_php = |words: &[String]| endings(words).iter().any(|ending| ending == "php");
    let area = match directive.name.as_str() {
        "proxypassmatch" => part.area.and(&areas::matching(directive.word())),
        "addtype" | "addhandler" if !names_php(&directive.words) => return Reach::None,
        _ => part.area.clone(),
    };
    let Some(surely) = area.sure() else { return Reach::None };
    let own = surely.strip_prefix(around).unwrap_or(surely);
    match own.is_empty() || is_every_script(own) {
        true => Reach::Every,
        false if part.kind == Kind::Files => Reach::Only(with_path_info(surely)),
        false => Reach::Only(surely.to_owned()),
    }
}

/// True if look-aheads hold for each path that ends with `.php`: nothing in front of the ending
/// counts.
fn is_every_script(ahead: &str) -> bool {
    const ANY: [&str; 12] = [
        "(?s:.*?)", "(?s:.*)", "(?-s:", "[^/]*?", "[^/]*", "[^/]+", "(?=", "(?i:", "(?:", "^/",
        ".*", ".+",
    ];
    let mut rest = ahead.replace("[.]", r"\.");
    for text in ANY {
        rest = rest.replace(text, "(");
    }
    let Some((front, ending)) = rest.split_once(r"\.") else { return false };
    let is_plain = |text: &str, more: &str| {
        text.chars().all(|c| c.is_ascii_lowercase() || "()/".contains(c) || more.contains(c))
    };
    let begins = !front.contains(|c: char| c.is_ascii_alphanumeric());
    let is_known =
        is_plain(front, "") && is_plain(&ending.replace(r"\z", ""), "|?[]0123456789-*.$");
    let paths = ["/a.php", "/x/b-1.php", "/x.y/.z/index.php", "/uploads/evil.php"];
    begins && is_known && paths.iter().all(|path| matches(&format!("^{ahead}"), path))
}

/// The look-aheads for a script also for a path info behind it, which names no other script.
fn with_path_info(ahead: &str) -> String {
    ahead.replace(r"\z)", r"(?:/(?!(?i)(?s:.*?)\.ph)|\z))")
}
