//! FastCGI applications that Sendoff did not start, among them php-fpm with `sendoff.so`.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod applications;
mod extension;
mod extension_faults;
mod fpm;
mod hostile;
mod upstreams;
