//! Values with units, as an operator writes them.

use std::time::Duration;

/// A time: `30s`, `500ms`, `2m`, `1h`, `30d`; a number without a unit is seconds. Fractions are
/// allowed (`0.5`, `1.5m`), and zero.
///
/// # Errors
/// A sentence that says what was expected.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 30s, 500ms or 2m");
    let (number, unit) = split(text);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let number = decimal(number).ok_or_else(wrong)?;
    // A time that does not fit into a `Duration` is a mistake.
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// A time that is not zero.
///
/// # Errors
/// A sentence that says what was expected.
pub fn positive_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        time if time.is_zero() => Err("the time must be more than 0".to_owned()),
        time => Ok(time),
    }
}

/// A number of bytes: `4096`, `64K`, `100M`, `1G`; the units are powers of 1024.
///
/// # Errors
/// A sentence that says what was expected.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size such as 4096, 64K, 100M or 1G");
    let (number, unit) = split(text);
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Splits a text into its number and its unit.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// Digits with at most one point among them. (Rust's own parser also takes `inf` and `1e9`.)
fn decimal(text: &str) -> Option<f64> {
    text.starts_with(|c: char| c.is_ascii_digit()).then(|| text.parse().ok())?
}
