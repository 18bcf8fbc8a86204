//! Checks of a route's paths.

use sendoff_setting_values::{At, Place};

use super::context::Context;
use crate::keys::Route;

/// Checks that in `try_files` only the last element is a status, and that it is not the only
/// element.
pub(super) fn of_try_files(section: &Route, context: &mut Context<'_>) {
    let Some(list) = &section.try_files else { return };
    let Some((_, tried)) = list.value.0.split_last() else { return };
    for At { place, .. } in tried.iter().filter(|at| at.value.is_status()) {
        context
            .problems
            .error(*place, "a status may only be the last of try_files")
            .help("what follows it would never be tried");
    }
    if tried.is_empty() {
        context
            .problems
            .warning(list.place, "nothing is tried: the last of try_files is taken in any case")
            .help("for example: try_files = [\"$path\", \"$path/\", \"/index.php\"]");
    }
}

/// Warns of an expression for paths without their leading slash, as `.htaccess` files have them.
pub(super) fn expression_can_match(section: &Route, context: &mut Context<'_>) {
    let Some(At { value, place }) = &section.matching else { return };
    let Some(rest) = value.text.strip_prefix('^') else { return };
    let literal = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    // A single letter may be optional.
    let is_fixed =
        rest == "$" || literal > 1 || literal == 1 && !rest[1..].starts_with(['?', '*', '{']);
    if is_fixed && !value.text.contains('|') && *place != Place::Default {
        context
            .problems
            .warning(*place, "paths begin with a slash, so this never matches")
            .help(format!("write match = '^/{rest}'"));
    }
}
