//! Sessions of users: a load generator that walks through the pages of a site, thinks, has a slow
//! line, keeps files, and checks every byte.

pub(crate) mod backend;
mod banking;
mod client;
pub(crate) mod contents;
mod ecommerce;
mod load;
mod model;
#[cfg(test)]
mod published;
mod support;
mod tally;

pub(crate) use banking::BANKING;
pub(crate) use ecommerce::ECOMMERCE;
pub(crate) use load::{Load, SPEED, run};
pub(crate) use model::Scenario;
pub(crate) use support::SUPPORT;
