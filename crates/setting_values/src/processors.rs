//! Shares of the machine's processors.

use crate::read::{Scope, Wrong};
use crate::value::Word;

/// The largest number that may be written.
const MOST: u32 = 4096;
/// Parts of a processor, or of one hundredth of all processors.
const PARTS: u32 = 1000;
/// The smallest share: the kernel gives time in pieces of at least 1 ms per 100 ms.
const LEAST: u32 = 10;

/// A number of processors, or a share of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors {
    /// Thousandths of a processor, or of one hundredth of all processors; not zero.
    parts: u32,
    is_share: bool,
}

impl Processors {
    /// Thousandths of a processor on a machine with this number of processors.
    #[must_use]
    pub fn resolved(self, processors: usize) -> u32 {
        if !self.is_share {
            return self.parts;
        }
        let all = u64::from(self.parts) * processors as u64 / 100;
        u32::try_from(all).unwrap_or(u32::MAX).max(LEAST)
    }
}

impl Word for Processors {
    const KIND: &'static str =
        "a number of processors such as 2 or \"0.5\", or a share of all such as \"50%\"";
    const NUMBERS: bool = true;

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let (number, is_share) = match text.strip_suffix('%') {
            Some(share) => (share, true),
            None => (text, false),
        };
        let wrong = || Wrong::new(format!("expected {}", Self::KIND));
        let parts = thousandths(number).ok_or_else(wrong)?;
        let (least, most, unit) =
            if is_share { (PARTS, 100 * PARTS, "%") } else { (LEAST, MOST * PARTS, "") };
        if (least..=most).contains(&parts) {
            return Ok(Self { parts, is_share });
        }
        let shown = |parts| format!("{}{unit}", decimal(parts));
        Err(Wrong::new(format!("{text} is not between {} and {}", shown(least), shown(most))))
    }

    fn text(&self) -> String {
        format!("{}{}", decimal(self.parts), if self.is_share { "%" } else { "" })
    }
}

/// The thousandths in a number with up to three decimals.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let fraction: u32 = format!("{fraction:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(PARTS)?.checked_add(fraction)
}

/// Thousandths as a number.
fn decimal(parts: u32) -> String {
    let text = format!("{}.{:03}", parts / PARTS, parts % PARTS);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_shares_are_parts_of_processors() {
        let scope = Scope { folder: std::path::Path::new("/") };
        for (text, on_two) in [
            ("2", 2000),
            ("0.5", 500),
            ("1.25", 1250),
            ("50%", 1000),
            ("12.5%", 250),
            ("100%", 2000),
        ] {
            let value = Processors::parse(text, &scope).unwrap();
            assert_eq!(value.resolved(2), on_two, "{text}");
            assert_eq!(value.text(), text);
        }
        for wrong in [
            "",
            "0",
            "0.001",
            "-1",
            "1.",
            ".5",
            "1.2345",
            "1e3",
            "5000",
            "0%",
            "101%",
            "99999999999",
            "all",
        ] {
            assert!(Processors::parse(wrong, &scope).is_err(), "{wrong}");
        }
    }
}
