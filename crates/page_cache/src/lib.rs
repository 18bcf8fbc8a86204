//! Pages of applications that are kept for other requests (`docs/page-cache.md`, RFC 9111).
//!
//! ```text
//!                  judged worth keeping, and complete            the time is over
//!  first request ────────────────────────────────────▶ fresh ─────────────────────▶ stale
//!  others wait for it                                    ▲                            │
//!                                                        └── made anew, or still valid ┘
//! ```
//!
//! - [`key`]: the requests that get the same page
//! - [`freshness`]: for how long
//! - [`lscache`]: the language of LSCache's plugins
//! - [`page`]: a kept page and its form on disk
//! - [`store`]: the folder of pages and this process's index of it
//! - [`flights`]: one request makes a page while others wait for it
//! - [`recorder`]: keeps a page while a client gets it
//! - [`recording`]: the body of a page while it is made
//! - `tags`: the tags of pages in the fields of CDNs
//! - `orders`: purges as plugins for Varnish request them
//! - [`purge`]: pages that are forgotten before their time is over
//! - [`journal`]: tells other fronts of purges
//! - `warm`: the store as seen by the walk that makes pages before clients ask for them
//!
//! The handler is `handlers/cached.rs`.
#![forbid(unsafe_code)]

mod address;
mod bodies;
mod flights;
mod freshness;
mod journal;
mod key;
mod lscache;
mod orders;
mod page;
mod purge;
mod recorder;
mod recording;
mod store;
mod tags;
mod warm;

pub use flights::{Flight, MakePermit};
pub use key::Key;
pub use lscache::{LsCacheRequest, NamedPurge, purges, without_ignored};
pub use orders::{METHODS as PURGE_METHODS, ordered};
pub use page::{OriginFailure, Page, Validity};
pub use purge::{FragmentPurge, Purge, PurgeCount};
pub use recorder::{ApplicationOutcome, Recorder, RecordingContext};
pub use store::{PageCache, PurgeListener};

/// Most bytes of one page. A larger response is more likely a download, which would push out many
/// pages.
const LARGEST: usize = 8 << 20;
