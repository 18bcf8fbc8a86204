//! Workers and their master: start, requests, settings, crashes, end.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod boot;
mod boot_cost;
#[path = "../common/mod.rs"]
mod common;
mod crashing;
mod fragments;
mod like_fpm;
mod pool;
mod worker;
