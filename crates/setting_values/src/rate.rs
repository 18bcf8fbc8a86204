//! Request rates of clients.

use std::time::Duration;

use sendoff_config::Rate;

use crate::read::{Scope, Wrong};
use crate::value::Word;

/// The largest number of requests per unit of time, and at once.
const MOST: u32 = 1_000_000;

/// The units of time, and their lengths.
const UNITS: [(&str, Duration); 4] = [
    ("s", Duration::from_secs(1)),
    ("m", Duration::from_secs(60)),
    ("h", Duration::from_secs(3600)),
    ("d", Duration::from_secs(86_400)),
];

/// A number of requests per unit of time, and the number that may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frequency {
    /// Requests, not zero.
    requests: u32,
    /// The unit of time, by its place in [`UNITS`].
    unit: usize,
    /// Requests at once, not zero; `None`: the number of requests per unit of time.
    burst: Option<u32>,
}

impl Frequency {
    /// The rate in the resolved configuration.
    #[must_use]
    pub fn resolved(self) -> Rate {
        let interval = UNITS[self.unit].1 / self.requests;
        Rate { interval, burst: self.burst.unwrap_or(self.requests) }
    }
}

impl Word for Frequency {
    const KIND: &'static str = "a rate such as \"10/s\" or \"100/m burst=20\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let wrong = || Wrong::new(format!("expected {}", Self::KIND));
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
            number.ok_or_else(|| {
                Wrong::new(format!("\"{text}\" is no number from 1 to {MOST}"))
                    .help(format!("expected {}", Self::KIND))
            })
        };
        let mut words = text.split_whitespace();
        let (requests, unit) =
            words.next().and_then(|rate| rate.split_once('/')).ok_or_else(wrong)?;
        let requests = number(requests)?;
        let known = UNITS.iter().position(|(name, _)| *name == unit);
        let unit = known.ok_or_else(|| {
            let says = format!("\"{unit}\" is no unit of time");
            Wrong::new(says).help("expected s, m, h or d, as in \"10/s\"")
        })?;
        let burst = match words.next() {
            None => None,
            Some(word) => Some(number(word.strip_prefix("burst=").ok_or_else(wrong)?)?),
        };
        match words.next() {
            None => Ok(Self { requests, unit, burst }),
            Some(_) => Err(wrong()),
        }
    }

    fn text(&self) -> String {
        let rate = format!("{}/{}", self.requests, UNITS[self.unit].0);
        self.burst.map_or(rate.clone(), |burst| format!("{rate} burst={burst}"))
    }
}
