//! One exchange between a client and the server: what a protocol asks of the server ([`service`]), what a handler answers to
//! ([`responder`]), and what is counted of clients and their connections meanwhile.
#![forbid(unsafe_code)]

pub mod clients;
pub mod layer;
pub mod lifecycle;
pub mod rates;
pub mod responder;
pub mod service;
