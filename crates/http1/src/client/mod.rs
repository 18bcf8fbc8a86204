//! The client's side of HTTP/1.1, for upstreams that speak it: request heads out, responses in. No I/O and no clock.
//!
//! As in requests, there is one way to read where a response ends. What two recipients could read differently is refused, because
//! the bytes that follow would belong to another request's response.
//!
//! ```text
//!           ResponseDecoder
//!  bytes ───────────────────▶ Interim* ─┬─ Head ─ Data* ─ End
//!                                       └─ Switch ─ (bytes of the other protocol)
//! ```

mod hop_by_hop;
mod request;
mod response;

pub use hop_by_hop::HopByHop;
pub use request::RequestEncoder;
pub use response::{Reply, ResponseDecoder};
