//! Upstreams, which answer requests: workers of the pool, FastCGI applications that were started elsewhere, and applications that speak
//! HTTP, SCGI or AJP.
//!
//! Imports point one way: `exchange` and `status` use `fastcgi`, `gateway` and `worker`; `fastcgi` and `gateway` use `hosts`, `fastcgi` also `worker`, because an application may answer
//! on a link and share memory; both use the other files of this folder, which use neither.

mod cgi;
mod error;
mod exchange;
mod fastcgi;
mod gateway;
pub(crate) mod hosts;
mod inbox;
mod packets;
mod queue;
mod script_log;
mod status;
mod worker;

pub use cgi::{RequestMessage, RequestMessageBuilder, StreamedRequest};
pub use error::{Retry, UpstreamError, UpstreamErrorKind};
pub use exchange::Exchange;
pub use fastcgi::application::{Application, ApplicationLoad, FastcgiExchange};
pub(crate) use fastcgi::attached::{Attached, attached, sweep, tend};
pub use fastcgi::channel::Channel;
pub use fastcgi::program::Program;
pub use fastcgi::shared::Over;
pub(crate) use gateway::tend_gateways;
pub use gateway::{
    Gateway, GatewayExchange, GatewayHost, GatewayOver, GatewayRequest, Kind as GatewayKind,
    Patience as GatewayPatience, Stream as GatewayStream,
};
pub use inbox::{Event, ResponseEnd};
pub(crate) use packets::Packets;
pub use queue::QueueLimits;
pub(crate) use status::upstreams_status;
pub use worker::claims::{Claim, Claims};
pub use worker::deadline::{Deadlines, enforce};
pub use worker::link::{Link, Links, LocalPool, WorkerExchange};
pub use worker::master::Master;
pub use worker::pool::{Pool, Ticket, WorkerId};
pub use worker::register::{NewLink, Origin, receive_workers};
pub use worker::report::{Described, OpcacheReport, PhpReport, PoolReport, WorkerReport};
pub use worker::tuner::tune;
