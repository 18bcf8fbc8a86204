//! Compression of responses (`docs/compression.md`).
//!
//! ```text
//!  handler ── segments ──▶ filters ──▶ Compressed ── compressed segments ──▶ protocol
//!                                        │    ▲
//!                            Encoder ◀───┘    └── Cache (files that were compressed before)
//! ```
//!
//! [`policy`] decides by the request and the response head, [`accept`] reads `Accept-Encoding`,
//! [`etag`] translates the tags of conditional requests, [`input`] queues the pieces that wait to
//! be compressed. [`compressed`] combines them; handlers and protocols do not notice.
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
use encoder::EncoderMemory;

pub use compressed::Compressed;
pub use policy::{Policy, Producer, vary};

/// Threads that compress beside the event loops. Two leave most of a large machine to scripts.
const THREADS: usize = 2;

/// The state that all event loops share.
#[derive(Debug)]
pub struct Compressor {
    budget: Arc<EncoderMemory>,
    cache: Arc<Cache>,
    threads: Arc<Semaphore>,
}

impl Compressor {
    /// A compressor with an unused budget and an empty cache.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::default(),
            cache: Arc::default(),
            threads: Arc::new(Semaphore::new(THREADS)),
        })
    }
}

/// Replaces the tags of compressed responses in a request's conditions by the tags that
/// applications know. Returns the client's value of `If-None-Match` if it was changed.
pub fn translate_tags(headers: &mut HeaderMap, version: Version) -> Option<HeaderValue> {
    let accepted = Accepted::of(headers, version);
    etag::translate(headers, accepted)
}
