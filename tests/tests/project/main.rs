//! The repository itself: documents, examples, installation, and the harness of these tests.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod chromium;
mod crates;
mod demo;
mod documents;
mod example;
mod first_site;
mod harness;
mod install;
mod scaling;
mod tasks;
