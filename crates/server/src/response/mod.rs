//! Response heads: from what an application says to what the client is told.

mod cgi_head;
mod framing;

pub use cgi_head::{BadHead, CgiHead, MAX_HEAD};
pub use framing::{Framing, Head};
