//! The operator's configuration: from the file, or from a command line, to the resolved
//! configuration.
//!
//! ```text
//!   sendoff.toml ──load──▶ Top ──resolve──▶ sendoff_config::Config
//!   command line ────────▶  │  ──print────▶ sendoff.toml
//!                           └── its declaration (keys.rs) ──▶ docs/config.md, sendoff.toml(5),
//!                                                             JSON schema, messages
//! ```
//!
//! Every key is declared once, in `keys.rs`. The crate asks the machine only through [`Machine`],
//! so that tests give the same messages everywhere.
#![forbid(unsafe_code)]

mod docs;
mod foreign;
pub mod keys;
mod load;
mod machine;
mod manual;
mod nested;
mod php_settings;
mod presets;
mod print;
mod resolve;
mod schema;
mod section;

pub use docs::docs;
pub use load::{Loaded, load, read_text};
pub use machine::{Chosen, FileKind, Machine};
pub use manual::manual;
pub use nested::{Inline, Named, Sections, Short};
pub use presets::expand;
pub use print::print;
pub use resolve::resolve;
pub use schema::schema;
