//! Black-box scenarios against the real `sendoff`, on real PHP.
//!
//! A scenario writes a small site into a temporary folder ([`Site`]) and starts the server on it
//! ([`Server`]). If it compares with the unmodified runtime, it also starts Debian's nginx and
//! php-fpm ([`Stock`]). It talks to both through a client that can send any bytes and read at any
//! pace ([`Client`]). When a [`Server`] is dropped, it checks what must hold after every scenario.
//!
//! `SENDOFF_TEST_PEER=stock` runs the scenarios against nginx and php-fpm instead: a failure there
//! shows either an intended difference, or a mistake in the test. `SENDOFF_TEST_TLS=1` runs them
//! over TLS, `SENDOFF_TEST_H2=1` over HTTP/2, both together over HTTP/2 in TLS,
//! `SENDOFF_TEST_H3=1` over HTTP/3.
//! `SENDOFF_TEST_EMULATED=N` is for an emulated machine that is N times slower than a real one.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod apache;
mod bind;
mod caddy;
mod carrier;
mod child;
mod client;
mod collector;
mod compare;
mod curl;
mod engine;
mod extension;
mod fpm;
pub mod frames;
mod hosted;
mod http2;
pub mod http3;
mod lighttpd;
mod listener;
pub mod load;
pub mod mapper;
mod message;
pub mod mmdb;
mod multiplexed;
mod pebble;
mod php_extensions;
mod polled;
mod ports;
pub mod processes;
mod progress;
pub mod pypi;
mod quic;
pub mod repository;
mod secure;
mod server;
mod site;
mod stock;
mod tomcat;
mod translate;
pub mod wait;
pub mod websocket;

pub use apache::Apache;
pub use bind::Bind;
pub use caddy::Caddy;
pub use child::dies_with_us;
pub use client::{Broken, Client};
pub use collector::{Answers, Collector, Span};
pub use compare::{Pair, assert_same, difference};
pub use curl::curl;
pub use engine::{Engine, EnginePath};
pub use extension::{Extended, compile_extension, extension, static_library};
pub use fpm::Fpm;
pub use http2::Http2;
pub use http3::Http3;
pub use lighttpd::Lighttpd;
pub use message::{Framing, Head, Request, Response};
pub use pebble::{Authorities, CUSTOMER_KEY, Pebble};
pub use progress::Progress;
pub use secure::{Authority, Certificate, trusting_client};
pub use server::{Failed, Server, binary, built, hosted_binary, sendoff};
pub use site::{Fifo, Site, overwrite, pattern};
pub use stock::Stock;
pub use tomcat::tomcat;

use std::time::Duration;

/// Time after which an operation counts as hanging. Long, because test machines are busy.
pub const LIMIT: Duration = Duration::from_secs(30);
