//! One request to an application, from its parameters to the last byte of the response body.
//!
//! [`script`] answers with a script's response: [`worker`] asks workers of a pool, [`fastcgi`] asks
//! FastCGI applications. [`proxy`] asks hosts that speak HTTP, SCGI, uwsgi or AJP, [`tunnel`] lets
//! FastCGI applications answer in HTTP. [`retry`] has the rule of repeating a request after a
//! failure. [`beginning`] reads the response head, [`relay`] passes the body on, [`direct`] lets a
//! worker write to the client's socket itself (`sendoff-delivery-stats` tells when that pays).

mod accept;
mod announce;
pub(crate) mod authorizer;
pub(crate) mod beginning;
pub(crate) mod bound;
pub(crate) mod direct;
pub(crate) mod exchange;
pub(crate) mod failure;
mod fastcgi;
pub(crate) mod proxy;
pub(crate) mod relay;
mod retry;
pub(crate) mod script;
mod tunnel;
mod worker;
