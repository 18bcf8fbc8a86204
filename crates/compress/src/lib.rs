//! Compression of responses (`docs/compression.md`).
//!
//! ```text
//!  handler ── segments ──▶ filters ──▶ Compressed ── compressed segments ──▶ protocol
//!                                        │    ▲
//!                            Encoder ◀───┘    └── Cache (files that were compressed before)
//! ```
//!
//! [`policy`] decides by the request and the response head, [`accept`] reads `Accept-Encoding`, [`etag`] keeps conditional requests
//! right, [`input`] is what waits to be compressed. [`compressed`] puts them together; handlers and protocols do not notice.
#![forbid(unsafe_code)]

mod accept;
mod cache;
mod compressed;
mod encoder;
mod etag;
mod input;
mod policy;

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Version};
use tokio::sync::Semaphore;

use accept::Accepted;
use cache::Cache;
use encoder::Budget;

pub use compressed::Compressed;
pub use policy::{Maker, Policy, vary};

/// Threads that compress beside the event loops. Two leave most of a large machine to pages that are being made.
const THREADS: usize = 2;

/// What all event loops share.
#[derive(Debug)]
pub struct Compressor {
    budget: Arc<Budget>,
    cache: Arc<Cache>,
    threads: Arc<Semaphore>,
}

impl Compressor {
    /// No buffers are in use, and no file is kept.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::default(),
            cache: Arc::default(),
            threads: Arc::new(Semaphore::new(THREADS)),
        })
    }
}

/// Replaces the tags of compressed responses in a request's conditions by those that applications know. Returns `If-None-Match` as
/// the client has sent it, if it is another one now.
pub fn translate_tags(headers: &mut HeaderMap, version: Version) -> Option<HeaderValue> {
    let accepted = Accepted::of(headers, version);
    etag::translate(headers, accepted)
}
