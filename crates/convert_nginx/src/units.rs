//! Times and sizes.

/// A time in Sendoff's form; `None` if it is not one. nginx also has months, years and several
/// units in one text.
pub(super) fn time(text: &str) -> Option<String> {
    let seconds = seconds(text)?;
    Some(match text.strip_suffix("ms") {
        Some(number) => format!("{}ms", number.parse::<u64>().ok()?),
        None if seconds > 0 && seconds % 86400 == 0 => format!("{}d", seconds / 86400),
        None if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        None if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        None => format!("{seconds}s"),
    })
}

/// A time in seconds.
pub(super) fn seconds(text: &str) -> Option<u64> {
    if let Some(number) = text.strip_suffix("ms") {
        return number.parse::<u64>().ok().map(|number| number / 1000);
    }
    let (mut total, mut number) = (0_u64, String::new());
    for sign in text.chars() {
        if sign.is_ascii_digit() {
            number.push(sign);
            continue;
        }
        let unit = match sign {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86400,
            'w' => 7 * 86400,
            'M' => 30 * 86400,
            'y' => 365 * 86400,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    match number.is_empty() {
        true if text.is_empty() => None,
        true => Some(total),
        false => total.checked_add(number.parse().ok()?),
    }
}

/// A size in Sendoff's form.
pub(super) fn size(text: &str) -> Option<String> {
    let upper = text.to_ascii_uppercase();
    let number = upper.strip_suffix(['K', 'M', 'G']).unwrap_or(&upper);
    number.parse::<u64>().ok().map(|_| upper)
}
