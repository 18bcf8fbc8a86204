//! Checks of hosts that speak HTTP/2: by a request, and by gRPC's health service.

use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use sendoff_tests::{LIMIT, Site, wait};

use crate::hosts::balance;
use crate::http2_app::{Http2App, body, head, map, send};

/// The state that the health service reports; 255: there is no such service.
static HEALTH: AtomicU8 = AtomicU8::new(1);

async fn health(
    mut request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<()> {
    let (asked, _) = body(request.body_mut()).await?;
    let is_check = request.uri().path() == "/grpc.health.v1.Health/Check"
        && request.method() == "POST"
        && request.headers()["content-type"] == "application/grpc"
        && request.headers()["te"] == "trailers"
        && request.uri().authority()?.as_str() == "check.test"
        && asked == b"\0\0\0\0\x08\x0a\x06shop.A";
    let state = if is_check { HEALTH.load(Ordering::SeqCst) } else { 255 };
    if state == 255 {
        let head = head(&[("content-type", "application/grpc"), ("grpc-status", "12")]);
        return respond.send_response(head, true).ok().map(drop);
    }
    let mut stream =
        respond.send_response(head(&[("content-type", "application/grpc")]), false).ok()?;
    send(&mut stream, vec![0, 0, 0, 0, 2, 8, state].into()).await?;
    stream.send_trailers(map(&[("grpc-status", "0")])).ok()
}

#[test]
fn a_host_is_up_while_the_health_service_says_that_it_serves() {
    let (site, app) = (Site::new(), Http2App::start(health));
    let keys = "fails = 1\nslow_start = '0s'\n\
                probe = { every = '50ms', grpc = 'shop.A', host = 'check.test' }";
    let address = app.url().replace("h2://", "");
    let server = balance(&site, "h2", &[address], keys, "");
    let says = |what: &str| server.command(&["status"]).unwrap().contains(what);
    assert!(wait::until(LIMIT, || app.requests() > 1));
    assert!(says("1 host, 1 up"), "{}", server.command(&["status"]).unwrap());
    for (state, why) in [(2, "NOT_SERVING"), (3, "SERVICE_UNKNOWN"), (255, "no health service")] {
        HEALTH.store(state, Ordering::SeqCst);
        assert!(wait::until(LIMIT, || says(why)), "{why}");
        HEALTH.store(1, Ordering::SeqCst);
        assert!(wait::until(LIMIT, || says("1 host, 1 up")), "{why}");
    }
}

static STATUS: AtomicU8 = AtomicU8::new(204);

async fn page(request: http::Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Option<()> {
    let mut head = head(&[]);
    if request.uri().path() == "/up" {
        *head.status_mut() = u16::from(STATUS.load(Ordering::SeqCst)).try_into().ok()?;
    }
    respond.send_response(head, true).ok().map(drop)
}

#[test]
fn a_host_of_http2_is_checked_by_a_request() {
    let (site, app) = (Site::new(), Http2App::start(page));
    let keys =
        "fails = 1\nslow_start = '0s'\nprobe = { every = '50ms', path = '/up', status = 204 }";
    let address = app.url().replace("h2://", "");
    let server = balance(&site, "h2", &[address], keys, "");
    let says = |what: &str| server.command(&["status"]).unwrap().contains(what);
    assert!(wait::until(LIMIT, || app.requests() > 1) && says("1 host, 1 up"));
    STATUS.store(200, Ordering::SeqCst);
    assert!(wait::until(LIMIT, || says("its check /up was answered with 200")));
    STATUS.store(204, Ordering::SeqCst);
    assert!(wait::until(LIMIT, || says("1 host, 1 up")));
}
