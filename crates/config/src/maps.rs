//! Maps of a site: tables that give a value for a part of the request.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::pool::FileVersion;
use crate::route::Network;

/// A map: the value of the first row that fits the part of the request. Rows with texts come first,
/// then endings of hosts, the longest first, then expressions, in order; of networks, the longest
/// that contains the client's address fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestMap {
    /// Its name, by which routes refer to it: small letters, digits and underscores.
    pub name: String,
    /// The part of the request that the rows are compared with.
    pub source: MapSource,
    /// The rows, in the order of the configuration.
    pub rows: Vec<MapRow>,
    /// The value if no row fits: a text, in which `$host` and the like stand for parts of the
    /// request.
    pub default: String,
}

/// The part of a request that a map is about. What a request does not have is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapSource {
    /// The fields of this name, joined by `, ` (RFC 9110 §5.3); `Cookie` by `; `.
    Header(String),
    /// The first cookie of this name, as sent.
    Cookie(String),
    /// The first parameter of this name in the query, decoded.
    Query(String),
    /// The client's address; the rows have networks.
    Client,
    /// The host that the client named, in lower case, without the port.
    Host,
    /// The path, decoded and normalised.
    Path,
    /// The method.
    Method,
    /// `http` or `https`.
    Scheme,
    /// The country of the client's address, as two capital letters.
    Country {
        /// A database in MaxMind's format.
        #[serde(with = "crate::path::one")]
        database: PathBuf,
        /// Its version: a reload notices another one.
        version: FileVersion,
    },
}

/// A row of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapRow {
    /// The part of the request that it is for.
    pub pattern: MapPattern,
    /// The value, a text as the default. `$0` is what the pattern matched, `$1` to `$9` are the
    /// groups of an expression.
    pub value: String,
}

/// The pattern of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapPattern {
    /// The whole text; small and capital letters are the same.
    Text(String),
    /// Hosts with this ending: `.example.org` for `*.example.org`.
    Beneath(String),
    /// A PCRE2 expression that matches anywhere in the text.
    Expression(String),
    /// Addresses of this network.
    Network(Network),
}

/// A condition on the value of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapCondition {
    /// The name of the map.
    pub map: String,
    /// One of these must hold.
    pub tests: Vec<MapTest>,
}

/// A test of the value of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapTest {
    /// It is this text.
    Is(String),
    /// It is another text.
    IsNot(String),
    /// It is not empty.
    Filled,
    /// It is empty.
    Empty,
}
