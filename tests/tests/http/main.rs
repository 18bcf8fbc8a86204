//! The protocols of clients, HTTP/1.1, HTTP/2 and HTTP/3: framing, heads, bodies, and clients that
//! misbehave.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod early_hints;
mod encoding;
mod http1;
mod http2;
mod http2_attacks;
mod http2_files;
mod http2_floods;
mod http2_paths;
mod http2_random;
mod http2_rules;
mod http2_tools;
mod http3;
mod life_of_a_request;
mod proxies;
mod streaming;
mod unix_listener;
mod unwanted_bodies;
mod uploads;
