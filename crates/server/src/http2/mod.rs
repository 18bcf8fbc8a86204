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

mod account;
mod connection;
mod exchange;
mod fields;
mod link;
mod settings;
mod stream;
mod streams;

pub(crate) use connection::serve;
