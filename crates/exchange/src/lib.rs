//! One exchange between a client and the server: what a protocol asks of the server ([`service`]), the way of the response
//! ([`sink`]), its [`client`], and what is counted of clients and their connections meanwhile.
#![forbid(unsafe_code)]

pub mod client;
pub mod clients;
pub mod layer;
pub mod lifecycle;
pub mod rates;
pub mod service;
pub mod sink;
