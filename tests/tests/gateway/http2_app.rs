//! An application that speaks HTTP/2, on the `h2` library, in a thread of its own.

use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::runtime;
use tokio::task::{LocalSet, spawn_local};

/// The application. Its thread ends with the process.
pub(crate) struct Http2App {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Http2App {
    /// Calls `answer` with each request.
    pub(crate) fn start<F: Future<Output = Option<()>> + 'static>(
        answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Copy + Send + 'static,
    ) -> Self {
        Self::start_with(100, answer)
    }

    /// As [`start`](Self::start), with at most this many streams on a connection.
    pub(crate) fn start_with<F: Future<Output = Option<()>> + 'static>(
        streams: u32,
        answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Copy + Send + 'static,
    ) -> Self {
        let mut builder = Builder::new();
        builder.max_concurrent_streams(streams);
        Self::start_by(builder, answer)
    }

    /// As [`start`](Self::start), with Extended CONNECT (RFC 8441).
    pub(crate) fn start_connectable<F: Future<Output = Option<()>> + 'static>(
        answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Copy + Send + 'static,
    ) -> Self {
        let mut builder = Builder::new();
        builder.enable_connect_protocol();
        Self::start_by(builder, answer)
    }

    fn start_by<F: Future<Output = Option<()>> + 'static>(
        builder: Builder,
        answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Copy + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let requests = Arc::<AtomicUsize>::default();
        let (counted, asked) = (Arc::clone(&connections), Arc::clone(&requests));
        std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((socket, _)) = listener.accept().await {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let asked = Arc::clone(&asked);
                    let builder = builder.clone();
                    spawn_local(async move {
                        let Ok(mut connection) = builder.handshake(socket).await else { return };
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            asked.fetch_add(1, Ordering::SeqCst);
                            spawn_local(answer(request, respond));
                        }
                    });
                }
            });
        });
        Self { addr, connections, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("h2://{}", self.addr)
    }

    /// Requests so far, whose bodies may still be arriving.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The whole body and its trailers; `None` if it was cut.
pub(crate) async fn body(stream: &mut RecvStream) -> Option<(Vec<u8>, Option<HeaderMap>)> {
    let mut all = Vec::new();
    while let Some(data) = message(stream).await? {
        all.extend_from_slice(&data);
    }
    Some((all, stream.trailers().await.ok()?))
}

/// The next bytes; `Some(None)` at the end, `None` if the stream was reset.
pub(crate) async fn message(stream: &mut RecvStream) -> Option<Option<Bytes>> {
    match stream.data().await {
        None => Some(None),
        Some(data) => {
            let data = data.ok()?;
            let _ended = stream.flow_control().release_capacity(data.len());
            Some(Some(data))
        }
    }
}

/// Sends all of these bytes as the windows allow; `None` if the stream was reset.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Option<()> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        if stream.capacity() == 0 {
            poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
        }
        let room = stream.capacity().min(bytes.len());
        if room > 0 {
            stream.send_data(bytes.split_to(room), false).ok()?;
        }
    }
    Some(())
}

/// A response head with these fields.
pub(crate) fn head(fields: &[(&'static str, &str)]) -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().extend(map(fields));
    head
}

pub(crate) fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
    let fields = fields.iter().map(|(name, value)| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
    });
    fields.collect()
}

/// Answers with a text that shows the request.
pub(crate) async fn echo(
    mut request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<()> {
    let (bytes, trailers) = body(request.body_mut()).await?;
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    text.push_str(&format!("\n{}", String::from_utf8_lossy(&bytes)));
    for (name, value) in trailers.iter().flatten() {
        text.push_str(&format!("\n{}: {value:?}", name.as_str()));
    }
    let mut stream = respond.send_response(head(&[("x-a", "b")]), false).ok()?;
    send(&mut stream, text.into()).await?;
    stream.send_trailers(map(&[("x-sum", "1a2b"), ("content-length", "7")])).ok()
}
