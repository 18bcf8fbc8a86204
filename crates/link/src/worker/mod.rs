//! The worker's end: assembles requests from records, and turns responses into records.
//!
//! ```text
//!   RecordPart, descriptors ──▶ Requests ──▶ Event            (request.rs: one request at a time)
//!                            │ Request
//!   the application's        ▼
//!   output ───────────▶ Response, ClientWriter ──▶ Queue       ──▶ bytes and descriptors for one sendmsg(2)
//!                       (response.rs, direct.rs)   (queue.rs)
//! ```
//! A worker has one [`Requests`], one [`Response`] and one [`Queue`] for all its links, because it
//! serves one request at a time. The caller owns the sockets, the files, the shared memory and the
//! lock around the queue.

mod body;
mod chunks;
mod direct;
mod error;
mod params;
mod peer;
mod queue;
mod request;
mod response;

pub use body::{Body, ReadStep};
pub use chunks::Chunks;
pub use direct::{ClientWriter, FRONT_TAKES, Offer, Unsent, Wire, Writing};
pub use error::Error;
pub use params::{MAX_PARAMS, MAX_PARAMS_LEN, Params};
pub use peer::{Peer, Role, Roles};
pub use queue::Queue;
pub use request::{AfterSend, Event, Request, Requests};
pub use response::{COPY_LIMIT, End, FLUSH_LIMIT, JOIN_LIMIT, OpenResponse, Response};
