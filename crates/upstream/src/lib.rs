//! The common parts of all upstreams: the requests sent to them, the events of a response and their
//! queue, the queue of waiting requests, errors, and hosts. The crates `upstream_worker`,
//! `upstream_fastcgi` and `upstream_gateway` speak to workers, to FastCGI applications, and to
//! applications over HTTP, SCGI, uwsgi and AJP; `upstream_http2` has the streams of HTTP/2.
#![forbid(unsafe_code)]

pub mod body;
pub mod error;
pub mod fastcgi_request;
pub mod hosts;
pub mod inbox;
pub mod packets;
pub mod queue;
pub mod script_log;
