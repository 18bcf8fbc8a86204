//! Workers and the links to them: `docs/handover.md` seen from the front.

mod cgi;
mod files;
mod link;
mod pool;
mod register;

pub use cgi::{RequestMessage, RequestMessageBuilder};
pub use link::{Event, Exchange, Link, Links};
pub use pool::{AcquireError, Pool, Ticket, WorkerId};
pub use register::{NewLink, receive_workers};
