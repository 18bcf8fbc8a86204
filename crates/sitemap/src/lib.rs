//! Sitemaps (<https://www.sitemaps.org/protocol.html>) and the walk through their pages, without I/O:
//! bodies of responses come in, addresses come out.
//!
//! - [`location`]: an address in a sitemap
//! - [`document`]: a sitemap, or an index of sitemaps, as XML or as lines of text, also compressed
//! - [`walk`]: the order in which sitemaps and pages are requested, and the limits
#![forbid(unsafe_code)]

pub mod document;
pub mod location;
pub mod walk;

pub use document::Document;
pub use location::Location;
pub use walk::{Step, Walk};
