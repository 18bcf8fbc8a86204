//! Names of charsets.

/// The longest name, in bytes; the longest registered one has 45.
const MAX: usize = 64;

/// True if the value is a valid name of a charset (RFC 2978 §2.3).
#[must_use]
pub fn is_charset(value: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'+-^_`{}~.:".contains(byte);
    (1..=MAX).contains(&value.len()) && value.iter().all(is_part)
}
