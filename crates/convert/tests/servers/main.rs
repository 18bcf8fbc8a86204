//! Conversions of each server's configuration, and the signs by which the server is told.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod apache;
mod caddy;
mod origin;
mod unit;
