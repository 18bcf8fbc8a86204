//! Response heads as data. The code that writes their bytes is in `sendoff_http1`, because workers
//! use it, too.

mod end;
mod field;
mod head;

pub use end::ResponseEnd;
pub use field::Field;
pub use head::{ResponseHead, append_fields};
pub use sendoff_http1::{BadHead, CgiHead, Framing, MAX_CGI_HEAD as MAX_HEAD};
