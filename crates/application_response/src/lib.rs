//! The response of an application, whichever kind of upstream sends it.
//!
//! [`exchange::UpstreamExchange`] yields the events of a worker, a FastCGI application or a proxied
//! host. [`beginning`] reads them up to the end of the head, [`relay`] passes the body on to a sink;
//! [`failure`] maps errors to statuses. The other modules read and obey single fields of a head.
#![forbid(unsafe_code)]

pub mod beginning;
pub mod companions;
pub mod exchange;
pub mod failure;
pub mod fields;
pub mod host_cookie;
pub mod named_url;
pub mod rate_limit;
pub mod relay;
pub mod sendfile2;
