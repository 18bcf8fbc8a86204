//! Handlers: each writes its response to a [`Sink`](sendoff_exchange::sink::Sink), and knows no
//! protocol.
//!
//! - `dispatch`: the steps of every request: its plan, passwords and authorizers, the filters
//!   around its response, error pages
//! - [`mod@file`], `respond`, `lua`: the server's own answers: static files, redirects and fixed
//!   texts, Lua scripts
//! - `cached`: the page cache in front of applications
//! - `esi`: pages that include fragments
//! - `application`: requests to workers, FastCGI applications and proxied hosts: sending, retries,
//!   the way of the body to the client
//! - `response`: the demands of an application's response: files, ranges, internal redirects, a
//!   rate
//! - `pages`, `sendoff-observe`: pages about the server and its pools, and their figures
//!
//! `dispatch/warm.rs` makes pages before clients ask for them.
//!
//! [`services`] holds the state that the handlers of one event loop share.
#![forbid(unsafe_code)]

mod application;
mod cached;
pub mod challenges;
mod context;
mod dispatch;
mod error;
mod esi;
mod file;
mod head_rules;
mod lscache;
mod lua;
mod pages;
mod respond;
mod response;
pub mod services;
mod subrequest;

pub use dispatch::{Fetched, OwnConnection, Warmed};
