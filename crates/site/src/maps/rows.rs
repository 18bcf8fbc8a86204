//! The rows of a map, and the row that fits a part of a request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use pcre2::bytes::Regex;
use sendoff_config::{MapPattern, MapRow, Network};

use super::Row;
use crate::matching::{self, MATCH_LIMIT, TooHard};
use crate::text::{Groups, Text};

/// The fewest steps that one expression of a map may take, however many there are. A map has at
/// most 1000 (`settings/resolve/maps.rs`): 10,000,000 steps together, which take a tenth of a
/// second.
const FEWEST_STEPS: u32 = 10_000;

/// The rows, by the kinds of their patterns.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// By the text in small letters.
    texts: HashMap<Box<[u8]>, Rc<Row>>,
    /// By the ending of a host, which begins with a dot.
    beneath: HashMap<Box<[u8]>, Rc<Row>>,
    /// In the order of the configuration.
    expressions: Vec<(Regex, Rc<Row>)>,
    networks: Networks,
}

/// Rows of networks.
#[derive(Debug, Default)]
struct Networks {
    /// The kinds of the networks, the longest prefix first.
    kinds: Vec<Kind>,
    rows: HashMap<(Kind, u128), Rc<Row>>,
}

/// A kind of network: the version of its addresses, and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Kind {
    prefix: u8,
    is_v4: bool,
}

impl Rows {
    /// # Errors
    /// An expression is not valid.
    pub(super) fn compile(rows: &[MapRow]) -> Result<Self, String> {
        let is_expression = |row: &&MapRow| matches!(row.pattern, MapPattern::Expression(_));
        let expressions = rows.iter().filter(is_expression).count().max(1);
        let share = MATCH_LIMIT / u32::try_from(expressions).unwrap_or(u32::MAX);
        let mut this = Self::default();
        for MapRow { pattern, value } in rows {
            let row = |pattern: String| {
                Rc::new(Row { pattern: Some(pattern.into()), value: Text::of_map(value) })
            };
            let lower = |text: &str| text.as_bytes().to_ascii_lowercase().into_boxed_slice();
            match pattern {
                MapPattern::Text(text) => {
                    this.texts.entry(lower(text)).or_insert_with(|| row(text.clone()));
                }
                MapPattern::Beneath(ending) => {
                    let row = || row(format!("*{ending}"));
                    this.beneath.entry(lower(ending)).or_insert_with(row);
                }
                MapPattern::Expression(expression) => {
                    let steps = share.max(FEWEST_STEPS);
                    let compiled = matching::compile_with(expression, steps)?;
                    this.expressions.push((compiled, row(format!("~{expression}"))));
                }
                MapPattern::Network(network) => {
                    let shown = format!("{}/{}", network.address, network.prefix);
                    this.networks.add(*network, row(shown));
                }
            }
        }
        this.networks.kinds.sort_unstable_by(|one, other| other.cmp(one));
        this.networks.kinds.dedup();
        Ok(this)
    }

    /// The row that fits a text, and what its pattern matched.
    pub(super) fn of_text(&self, text: &[u8]) -> Result<Option<(Rc<Row>, Groups)>, TooHard> {
        if !self.texts.is_empty() || !self.beneath.is_empty() {
            let lower = text.to_ascii_lowercase();
            let found = self.texts.get(&*lower).or_else(|| self.beneath(&lower));
            if let Some(row) = found {
                return Ok(Some((Rc::clone(row), Groups::whole(text))));
            }
        }
        for (expression, row) in &self.expressions {
            if let Some(groups) = matching::groups(expression, text)? {
                return Ok(Some((Rc::clone(row), groups)));
            }
        }
        Ok(None)
    }

    /// The row of the longest ending of a host.
    fn beneath(&self, host: &[u8]) -> Option<&Rc<Row>> {
        if self.beneath.is_empty() {
            return None;
        }
        let dots = host.iter().enumerate().filter(|(at, byte)| **byte == b'.' && *at > 0);
        dots.map(|(at, _)| &host[at..]).find_map(|ending| self.beneath.get(ending))
    }

    /// The row of the longest network that contains an address.
    pub(super) fn of_address(&self, address: Option<IpAddr>) -> Option<(Rc<Row>, Groups)> {
        let address = address?;
        let row = self.networks.find(address)?;
        Some((Rc::clone(row), Groups::whole(address.to_string().as_bytes())))
    }
}

impl Networks {
    fn add(&mut self, network: Network, row: Rc<Row>) {
        let kind = Kind { prefix: network.prefix, is_v4: network.address.is_ipv4() };
        self.kinds.push(kind);
        self.rows.entry((kind, kind.first(network.address))).or_insert(row);
    }

    fn find(&self, address: IpAddr) -> Option<&Rc<Row>> {
        let mut kinds = self.kinds.iter().filter(|kind| kind.is_v4 == address.is_ipv4());
        kinds.find_map(|kind| self.rows.get(&(*kind, kind.first(address))))
    }
}

impl Kind {
    /// The first address of the network of this kind that contains the address.
    fn first(self, address: IpAddr) -> u128 {
        let (bits, width) = match address {
            IpAddr::V4(address) => (address.to_bits().into(), 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let suffix = u32::from(width - self.prefix.min(width));
        let mask = u128::MAX.checked_shl(suffix).unwrap_or(0);
        bits & mask
    }
}
