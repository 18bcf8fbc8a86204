//! HTTP/2 (RFC 9113) on the `h2` crate: many requests at a time on one connection, each of them a task and a `Responder` of its own.
//!
//! ```text
//!  transport ⇄ link ⇄ h2 (frames, HPACK, windows) ─▶ connection: accepts streams, GOAWAY, floods
//!                      ▲                               │ a task for each stream
//!                      │ Given, as much as may be       ▼
//!                      └──── exchange ◀── Responder ── stream: reads the body, has the request answered
//! ```
//!
//! Memory is bounded in three places: a stream gives h2 only what the client's window allows, at most [`settings::STREAM_BUFFER`]; the
//! streams of a connection together have at most [`account::LIMIT`] in flight; what is owed beyond that waits in each stream's
//! send queue, as in HTTP/1.
//!
//! A client may end its sending direction when its requests have come whole. h2 would drop all streams at that, so [`link`] keeps the end
//! from it until they are answered. What can come to no end then is given up: a request whose body is not whole, a response that waits for
//! a window, and, as in HTTP/1, a request that waits for an application.
#![forbid(unsafe_code)]

mod account;
mod connection;
mod exchange;
mod fields;
mod link;
mod settings;
mod stream;
mod streams;

pub use connection::serve;
