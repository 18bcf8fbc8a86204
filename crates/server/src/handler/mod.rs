//! Handlers: they answer requests, each to a [`Responder`](crate::responder::Responder), and know no protocol.
//!
//! [`dispatch`] chooses one by the route; [`services`] is what they share on an event loop.

mod announce;
mod answer;
pub(crate) mod choice;
mod direct;
pub(crate) mod dispatch;
mod error;
mod explain;
mod file;
mod named;
mod parameters;
pub(crate) mod patience;
mod ranges;
mod relay;
mod script;
pub(crate) mod services;
pub(crate) mod sizes;
mod status;
mod words;
mod zero_copy;
