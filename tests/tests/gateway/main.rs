//! Requests that are passed on over HTTP, SCGI, uwsgi and AJP (`docs/gateway.md`).
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod ajp;
mod authorize;
mod bound;
mod checks_http2;
mod grpc;
mod hosts;
mod http;
mod http2;
mod http2_app;
mod jupyter;
mod led;
mod real;
mod responder;
mod scgi;
mod shared_connections;
mod streaming;
mod trailers;
mod tunnel;
mod tunnel_http2;
mod urls;

use sendoff_tests::{Server, Site};

/// A server with these routes, in TOML, and without workers.
fn serve(site: &Site, routes: &str) -> Server {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = 'root'\n{routes}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

/// A server that passes every request on to `url`, with more about it.
fn pass_on(site: &Site, url: &str, more: &str) -> Server {
    serve(site, &format!("[[site.route]]\nproxy = {{ to = '{url}'{more} }}\n"))
}
