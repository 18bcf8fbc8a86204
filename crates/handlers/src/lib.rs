//! Handlers: each writes its response to a [`Sink`](sendoff_exchange::sink::Sink), and knows no
//! protocol.
//!
//! | module | what is in it |
//! |---|---|
//! | `dispatch` | the way of every request: its plan, passwords and authorizers, the filters around its response, error pages |
//! | [`mod@file`], `respond`, `lua` | answers of the server itself: static files, redirects and fixed texts, Lua scripts |
//! | `cached` | the page cache in front of applications |
//! | `application` | a request to a worker, a FastCGI application or a proxied host: what is sent, retries, the body's way to the client |
//! | `response` | what an application's response asks for: files, ranges, internal redirects, a rate |
//! | `pages` | pages about the server and its pools; `sendoff-observe` has their figures |
//!
//! [`services`] holds the state that the handlers of one event loop share.
#![forbid(unsafe_code)]

mod application;
mod cached;
pub mod challenges;
mod context;
mod dispatch;
mod error;
mod file;
mod head_rules;
mod lua;
mod pages;
mod respond;
mod response;
pub mod services;
mod subrequest;
