//! Those who answer requests.

pub(crate) mod application;
mod channel;
pub(crate) mod choice;
pub(crate) mod direct;
pub(crate) mod error;
pub(crate) mod file;
mod parameters;
pub(crate) mod sendfile;
