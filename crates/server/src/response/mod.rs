//! Response heads: from what an application says to what the client is told. What makes the bytes is in `sendoff_http1`,
//! where workers find it too.

mod head;

pub use head::{ResponseHead, append_fields};
pub use sendoff_http1::{BadHead, CgiHead, Framing, MAX_CGI_HEAD as MAX_HEAD};
