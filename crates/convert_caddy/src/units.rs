//! Times.

/// A time such as `1m30s` in Sendoff's form; `None`: it is no time, or it is zero.
pub(super) fn time(text: &str) -> Option<String> {
    let (mut rest, mut total) = (text, 0.0_f64);
    while !rest.is_empty() {
        let end = rest.find(|sign: char| !sign.is_ascii_digit() && sign != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = &rest[end..];
        let length = unit.find(|s: char| s.is_ascii_digit()).unwrap_or(unit.len());
        let milliseconds = match &unit[..length] {
            "ms" => 1.0,
            "s" => 1000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            _ => return None,
        };
        total += number * milliseconds;
        rest = &unit[length..];
    }
    // A year: longer than any limit makes sense.
    if !(1.0..=31_536_000_000.0).contains(&total) {
        return None;
    }
    match total % 1000.0 == 0.0 {
        true => Some(format!("{}s", total / 1000.0)),
        false => Some(format!("{}ms", total.round())),
    }
}
