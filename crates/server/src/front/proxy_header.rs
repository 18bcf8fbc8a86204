//! Connections that begin with a PROXY protocol header.

use std::future::poll_fn;
use std::rc::Rc;

use bytes::{Buf, BytesMut};
use sendoff_config::TrustedProxies;
use sendoff_exchange::lifecycle::{Lifecycle, Past};
use sendoff_message::request::Origin;
use sendoff_message::request::proxy_protocol::{Announced, announced};
use sendoff_transport::Transport;
use tokio::time::{Duration, timeout};

/// Size of the buffer, in bytes: enough for the header and a request that follows at once.
const READ: usize = 16 * 1024;

/// Reads the header, which sets the connection's addresses. Returns the bytes after it; `None` if
/// the connection is refused or has ended.
pub(super) async fn take_header(
    transport: &mut impl Transport,
    origin: &mut Origin,
    proxies: &TrustedProxies,
    head_timeout: Duration,
    lifecycle: &Rc<Lifecycle>,
) -> Option<BytesMut> {
    let proxy = &origin.peer;
    if !origin.is_trusted(proxies) {
        tracing::warn!(%proxy, "a connection is refused: this listener is for trusted proxies");
        transport.reset();
        return None;
    }
    let mut buffer = BytesMut::with_capacity(READ);
    let header = async {
        loop {
            match announced(&buffer) {
                Ok(Announced::Incomplete) => {}
                Ok(Announced::Header { ends, len }) => return Some((ends, len)),
                Err(why) => {
                    tracing::warn!(%proxy, "a connection is refused: {why}");
                    return None;
                }
            }
            // 0: a health check that ends the connection.
            let read = poll_fn(|cx| transport.poll_read(cx, &mut buffer)).await;
            if !matches!(read, Ok(1..)) {
                return None;
            }
        }
    };
    let (ends, len) = tokio::select! {
        header = timeout(head_timeout, header) => header.ok()??,
        // The connection counts as idle: it has sent no request.
        () = lifecycle.evicted(Past::Nothing, false) => return None,
    };
    match ends {
        Some((peer, local)) => (origin.peer, origin.local) = (peer, local),
        None => origin.is_anonymous = true,
    }
    buffer.advance(len);
    Some(buffer)
}
