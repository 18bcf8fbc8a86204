//! Upstreams, which run scripts: workers of the pool, and FastCGI applications that were started elsewhere.
//!
//! Imports point one way: `exchange` uses `fastcgi` and `worker`; `fastcgi` uses `hosts`, and `worker`, because an application may answer
//! on a link and share memory; both use the other files of this folder, which use neither.

mod cgi;
mod error;
mod exchange;
mod fastcgi;
pub(crate) mod hosts;
mod inbox;
mod packets;
mod queue;
mod script_log;
mod worker;

pub use cgi::{RequestMessage, RequestMessageBuilder, StreamedRequest};
pub use error::{Retry, UpstreamError, UpstreamErrorKind};
pub use exchange::Exchange;
pub use fastcgi::application::{Application, ApplicationLoad, FastcgiExchange};
pub(crate) use fastcgi::attached::{Attached, attached, sweep, tend, upstreams_status};
pub use fastcgi::channel::Channel;
pub use fastcgi::program::Program;
pub use inbox::Event;
pub(crate) use packets::Packets;
pub use queue::QueueLimits;
pub use worker::claims::{Claim, Claims};
pub use worker::deadline::{Deadlines, enforce};
pub use worker::link::{Link, Links, LocalPool, WorkerExchange};
pub use worker::master::Master;
pub use worker::pool::{Pool, Ticket, WorkerId};
pub use worker::register::{NewLink, Origin, receive_workers};
pub use worker::report::{Described, PoolReport, WorkerReport};
pub use worker::tuner::tune;
