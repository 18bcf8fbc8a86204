//! Pages of applications that are kept for other requests (`docs/page-cache.md`, RFC 9111).
//!
//! ```text
//!                  judged worth keeping, and complete            the time is over
//!  first request ────────────────────────────────────▶ fresh ─────────────────────▶ stale
//!  others wait for it                                    ▲                            │
//!                                                        └── made anew, or still valid ┘
//! ```
//!
//! [`key`] says which requests get the same page, [`freshness`] for how long, [`page`] what a kept page is and how it lies on disk,
//! [`store`] where the pages are, [`flights`] that one request makes a page while others wait for it, [`recorder`] how a page is kept
//! while a client gets it, [`recording`] where its body is meanwhile, [`purge`] which pages are forgotten before their time is over, and [`journal`] how other fronts hear of that. The
//! handler is `handlers/cached.rs`.
#![forbid(unsafe_code)]

mod address;
mod flights;
mod freshness;
mod journal;
mod key;
mod page;
mod purge;
mod recorder;
mod recording;
mod store;

pub use flights::{Flight, Ticket};
pub use key::Key;
pub use page::{Failure, Page, Validity};
pub use purge::Begun;
pub use purge::Purge;
pub use recorder::{Ended, Order, Recorder};
pub use store::PageCache;

/// Bytes that one page may have. A larger one is more likely a download, which would push out many pages.
const LARGEST: usize = 8 << 20;
