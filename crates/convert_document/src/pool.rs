//! Pools in place of php-fpm.

/// The name of a pool for the scripts that went to php-fpm at this address, which has no scheme:
/// the last part of a path without `.sock`, in the letters that names of pools have.
#[must_use]
pub fn name_of(address: &str) -> String {
    let file = address.rsplit('/').next().unwrap_or_default().trim_end_matches(".sock");
    let letter = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    file.chars().map(letter).collect()
}
