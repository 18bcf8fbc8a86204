//! Sessions of users: a load generator that walks through the pages of a site, thinks, has a slow
//! line, keeps files, and checks every byte.

pub(crate) mod backend;
pub(crate) mod bank;
mod banking;
mod client;
mod load;
mod model;
mod tally;

pub(crate) use banking::BANKING;
pub(crate) use load::{Load, SPEED, run};
