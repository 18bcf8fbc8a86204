//! One request to an application, from the parameters that it gets to the last byte of its body.
//!
//! [`script`] asks workers and FastCGI applications, [`proxy`] hosts that speak HTTP, SCGI or AJP; [`retry`] decides whether another host,
//! or the same one over another connection, is asked after a failure. [`beginning`] reads the response head, [`relay`] passes the body
//! on, [`direct`] lets a worker write to the client's socket itself ([`choice`] and [`sizes`] tell when that pays).

mod accept;
mod announce;
pub(crate) mod authorizer;
pub(crate) mod beginning;
pub(crate) mod choice;
pub(crate) mod direct;
pub(crate) mod exchange;
pub(crate) mod failure;
mod parameters;
pub(crate) mod patience;
pub(crate) mod proxy;
pub(crate) mod relay;
pub(crate) mod retry;
pub(crate) mod script;
pub(crate) mod sizes;
