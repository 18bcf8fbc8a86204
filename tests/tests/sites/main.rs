//! Sites and routes: rules, access, error pages, `.htaccess` files, Lua scripts, the access log.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod access_log;
mod authorizers;
mod error_pages;
mod explain;
mod htaccess;
mod htaccess_check;
mod htaccess_server;
mod limit_rate;
mod listing;
mod lua;
mod lua_fragments;
mod maps;
mod protection;
mod readings;
mod routes;
