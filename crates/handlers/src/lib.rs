//! Handlers: each answers requests to a [`Responder`](sendoff_exchange::sink::Responder), and knows no protocol.
//!
//! [`dispatch`] calls the handler of the route: [`mod@file`], [`script`], [`pool_page`], [`metrics`], [`status_page`], [`error`] or, around these, [`explain`]; before, it may ask [`authorize`]. [`services`] is what
//! handlers share on an event loop. The other files are parts of [`script`].
#![forbid(unsafe_code)]

mod announce;
mod answer;
mod attempts;
mod authorize;
pub mod challenges;
pub(crate) mod choice;
mod companions;
mod context;
mod direct;
pub(crate) mod dispatch;
mod error;
mod exchange;
mod explain;
mod file;
mod filter;
mod kept;
mod led;
mod lua;
mod metrics;
mod named;
pub mod observe;
mod paced;
mod parameters;
mod pass_on;
pub(crate) mod patience;
mod pool_page;
mod proxy;
mod ranges;
mod relay;
mod reproxy;
mod respond;
mod script;
pub mod services;
pub(crate) mod sizes;
mod status;
mod status_page;
mod subrequest;
mod wanted;
mod words;
mod zero_copy;
