//! Pools, in place of php-fpm.

use super::location::{Kind, Known};
use sendoff_convert_document::Section;

/// The pool of the site, in place of its php-fpm.
pub(super) fn pool(
    known: &[Known<'_>],
    groups: &mut Vec<Section>,
    site: &mut Section,
) -> Option<String> {
    let mut addresses = known.iter().filter_map(|one| match &one.kind {
        Kind::Php { address, .. } => Some((address, one.location.directive)),
        _ => None,
    });
    let (address, _) = addresses.next()?;
    for (other, location) in addresses {
        if let Some(location) = location.filter(|_| other != address) {
            let text = format!(
                "a second php-fpm ({other}) has no equal here: the scripts run in the pool of {address}"
            );
            site.left_out(&location.place, text);
        }
    }
    let name = sendoff_convert_document::pool::name_of(address.trim_start_matches("unix:"));
    let mut section = Section::new("pool");
    section.comment(format!(
        "In place of php-fpm at {address}: its user and its settings are in its file in pool.d."
    ));
    section.set("name", name.clone());
    if !groups.contains(&section) {
        groups.push(section);
    }
    Some(name)
}
