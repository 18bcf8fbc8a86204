//! gRPC-Web, the form of gRPC for browsers, whose scripts can read no trailers: they are a message
//! behind the others, and the whole body may be text (`PROTOCOL-WEB.md` of gRPC).

mod request;
mod response;

pub use request::{Unreadable, WebCall};
pub use response::WebResponse;
