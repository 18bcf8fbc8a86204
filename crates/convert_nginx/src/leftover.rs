//! The directives that nothing has taken: each is named in the result, unless it needs no equal.

use super::known;
use super::tree::Directive;
use sendoff_convert_document::Section;

/// Modules that pass requests on. Without their `..._pass`, their other directives mean nothing.
pub(super) const MODULES: [&str; 6] =
    ["fastcgi_", "grpc_", "memcached_", "proxy_", "scgi_", "uwsgi_"];

/// Adds a remark about each directive of a block, and of the locations in it, that nothing has
/// taken.
pub(super) fn name_untaken(block: &[Directive], section: &mut Section) {
    for directive in block {
        if directive.name == "location" {
            name_untaken(directive.block.as_deref().unwrap_or_default(), section);
        }
        let needs_nothing = known::needs_nothing(directive) || means_nothing(directive, block);
        if !directive.is_taken() && !needs_nothing {
            let text = format!("{} has no equal here", directive.text());
            section.left_out(&directive.place, text);
        }
    }
}

/// True for a directive about a way to pass requests on that no location goes.
fn means_nothing(directive: &Directive, block: &[Directive]) -> bool {
    let module = MODULES.iter().find(|module| directive.name.starts_with(*module));
    module.is_some_and(|module| !passes(block, &format!("{module}pass")))
}

fn passes(block: &[Directive], name: &str) -> bool {
    block.iter().any(|directive| {
        directive.name == name
            || directive.block.as_deref().is_some_and(|inner| passes(inner, name))
    })
}
