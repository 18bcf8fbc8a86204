//! One exchange between a client and the server: the [`service`] that answers for a protocol, the
//! way of the response ([`sink`]), its [`client`], the [`tunnel`] that may follow it, and the counts
//! and limits of clients and their connections.
#![forbid(unsafe_code)]

pub mod client;
pub mod clients;
pub mod head_filter;
pub mod lifecycle;
pub mod rates;
pub mod service;
pub mod sink;
pub mod tunnel;
