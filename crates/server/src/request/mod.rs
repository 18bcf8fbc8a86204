//! A request with its body, before it is decided who answers it.

mod body;
mod path;

pub use body::{Body, BodyStore};
pub use path::{BadPath, decode_path};
