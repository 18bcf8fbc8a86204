//! Edge Side Includes (W3C Note `esi-lang`, 4 August 2001): pages that name fragments, which the
//! server puts in their places (`docs/esi.md`). Text comes in, a template comes out.
//!
//! ```text
//!  head ── asks() ──▶ body ── Template::parse() ──▶ nodes ── target() ──▶ requests for fragments
//!                                                     │
//!                        heads of all parts ─ Terms ──┴─ Merged ──▶ head of the assembled page
//! ```
//!
//! - [`body`]: the segments of a page, and their pieces
//! - [`surrogate`]: responses that ask for assembly, and the field that offers it
//! - [`template`]: the elements of a page
//! - `parser`, `tag`: from bytes to elements
//! - [`variables`]: `$(HTTP_COOKIE{name})` and the like
//! - `address`: an address with values of variables, which stay in their parts
//! - [`target`]: the address of a fragment, on the page's own host only
//! - [`terms`]: the words in the head of a part that count for the whole page
//! - [`head`]: the time for which clients may keep an assembled page
#![forbid(unsafe_code)]

mod address;
pub mod body;
pub mod head;
mod parser;
pub mod surrogate;
mod tag;
pub mod target;
pub mod template;
pub mod terms;
pub mod variables;

pub use template::Template;
