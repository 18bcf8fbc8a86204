//! Black-box scenarios against the real `sendoff`, on real PHP.
//!
//! A scenario writes a small site into a temporary folder ([`Site`]), starts the server on it ([`Server`]) and, where
//! "what the unmodified runtime would have sent" is the question, Debian's nginx and php-fpm beside it ([`Stock`]).
//! It talks to both through a client that can send any bytes and read as slowly as it likes ([`Client`]).
//! When a [`Server`] goes out of scope, the things that must hold after every scenario are checked.
//!
//! `SENDOFF_TEST_PEER=stock` runs the scenarios against nginx and php-fpm instead: what fails there is either
//! something we do on purpose, or a mistake in the test.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod child;
mod client;
mod compare;
mod extension;
mod fpm;
pub mod load;
pub mod mapper;
mod message;
pub mod processes;
mod progress;
pub mod repository;
mod server;
mod site;
mod stock;
pub mod wait;

pub use client::{Broken, Client};
pub use compare::{Pair, assert_same, difference};
pub use extension::{Extended, extension, static_library};
pub use fpm::Fpm;
pub use message::{Framing, Head, Request, Response};
pub use progress::Progress;
pub use server::{Failed, Server};
pub use site::{Fifo, Site, pattern};
pub use stock::Stock;

use std::time::Duration;

/// How long anything may take before it counts as hanging. Generous: test machines are busy.
pub const LIMIT: Duration = Duration::from_secs(30);
