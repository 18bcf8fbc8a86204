//! Upstreams, which run scripts: our own workers, and FastCGI applications that were started elsewhere.
//!
//! `fastcgi` uses `worker` (an application may answer on a link, and share memory), never the other way round.

mod cgi;
mod exchange;
mod fastcgi;
mod inbox;
mod worker;

pub use cgi::{RequestMessage, RequestMessageBuilder, StreamedRequest};
pub use exchange::Exchange;
pub use fastcgi::address::Address;
pub use fastcgi::application::{Application, ConnectError, sweep};
pub use fastcgi::channel::{Channel, Claim, Claims};
pub use inbox::Event;
pub use worker::link::{Link, Links};
pub use worker::pool::{AcquireError, Pool, Ticket, WorkerId};
pub use worker::register::{NewLink, Origin, receive_workers};
pub use worker::tuner::{Bounds, tune};
