//! The front: speaks HTTP to clients and hands requests to workers.
//!
//! The modules in the order a request meets them: [`front`] accepts, `connection` reads, [`request`] holds what was read,
//! [`router`] decides, `handler` answers, with [`static_files`] or a worker ([`upstream`]); [`response`] makes the head,
//! [`delivery`] sends, `access_log` notes it down.
#![forbid(unsafe_code)]

mod access_log;
mod connection;
pub mod delivery;
pub mod explain;
pub mod front;
mod handler;
pub mod request;
pub mod response;
pub mod router;
pub mod segment;
pub mod static_files;
pub mod upstream;
