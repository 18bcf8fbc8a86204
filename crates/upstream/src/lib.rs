//! What all upstreams share: the request that is sent to them, the events of a response and where they wait, requests that wait for a
//! free place, errors, and hosts. The crates `upstream_worker`, `upstream_fastcgi` and `upstream_gateway` speak to workers, FastCGI
//! applications, and applications over HTTP, SCGI and AJP.
#![forbid(unsafe_code)]

pub mod cgi;
pub mod error;
pub mod hosts;
pub mod inbox;
pub mod packets;
pub mod queue;
pub mod script_log;
