//! Response heads as data. The code that writes their bytes is in `sendoff_http1`, because workers
//! use it, too.

mod end;
mod head;

pub use end::ResponseEnd;
pub use head::{ResponseHead, append_fields};
pub use sendoff_http1::{
    BadHead, BadLine, CgiHead, Field, Framing, MAX_CGI_HEAD as MAX_HEAD, Trailers,
};
