//! The client's side of HTTP/1.1, for upstreams: writes request heads, reads responses. No I/O and
//! no clock.
//!
//! As for requests, there is one way to find the end of a response. A response that two recipients
//! could read differently is refused, because the bytes behind it would count as the response to
//! another request.
//!
//! ```text
//!           ResponseDecoder
//!  bytes ───────────────────▶ Interim* ─┬─ Head ─ Data* ─ End
//!                                       └─ Switch ─ (bytes of the other protocol)
//! ```

mod hop_by_hop;
mod request;
mod response;

pub use hop_by_hop::{HopByHop, claim, is_about_client, remove_nominated};
pub use request::RequestEncoder;
pub use response::{LineEnds, Reply, ResponseDecoder};
