//! A client of HTTP/2, on the `h2` library.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Buf, Bytes};
use h2::client::{Builder, SendRequest};
use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::LIMIT;
use crate::client::Broken;
use crate::message::{Head, Request, Response};

/// Streams that are opened before the server's SETTINGS have come. Without this limit, the server
/// would refuse the streams beyond its own limit, and the client would have to repeat them. Servers
/// should allow at least 100 (RFC 9113 §6.5.2).
const STREAMS_BEFORE_SETTINGS: usize = 100;

/// A connection to a server, by prior knowledge. Its frames travel while a method runs.
pub struct Http2 {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    begun: JoinSet<Result<Response, Broken>>,
}

impl Http2 {
    /// Connects.
    ///
    /// # Panics
    /// If the connection is refused, or the server does not speak HTTP/2.
    pub fn connect(addr: SocketAddr) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let requests = within_limit(&runtime, async {
            let stream = TcpStream::connect(addr).await.expect("connect");
            stream.set_nodelay(true).unwrap();
            // A script that flushes each line makes a frame of each. h2 ends the connection when a
            // hundred such frames wait to be read, which browsers do not.
            let (requests, connection) = Builder::new()
                .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
                .data_frame_budget(usize::MAX)
                .handshake(stream)
                .await
                .expect("HTTP/2");
            tokio::spawn(connection);
            requests
        });
        Self { runtime, requests, begun: JoinSet::new() }
    }

    /// Begins requests whose responses wait for [`end_all`](Self::end_all).
    ///
    /// # Panics
    /// If the connection has ended.
    pub fn begin_all(&mut self, requests: impl Iterator<Item = Request>) {
        within_limit(&self.runtime, async {
            for request in requests {
                let mut sender = self.requests.clone().ready().await.expect("a connection");
                let (response, _) = sender.send_request(head_of(&request), true).expect("a stream");
                self.begun.spawn(async { receive(response.await.expect("a response")).await });
            }
            // The task of the connection sends them.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Reads the responses that were begun, in any order.
    ///
    /// # Panics
    /// If one of them is not whole.
    pub fn end_all(&mut self) -> Vec<Response> {
        let begun = std::mem::take(&mut self.begun);
        let all = within_limit(&self.runtime, begun.join_all());
        all.into_iter().map(|response| response.expect("a whole response")).collect()
    }

    /// Sends a request and reads its response.
    ///
    /// # Panics
    /// If no whole response comes.
    #[track_caller]
    pub fn ask(&mut self, request: &Request) -> Response {
        match self.try_ask(request) {
            Ok(response) => response,
            Err(broken) => panic!("no response to {request:?}: {broken:?}"),
        }
    }

    /// As [`ask`](Self::ask), when it may fail.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub fn try_ask(&mut self, request: &Request) -> Result<Response, Broken> {
        self.try_ask_seeing(request, |_| {})
    }

    /// Sends a POST with trailers, which the server may refuse.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub fn try_ask_with_trailers(
        &mut self,
        target: &str,
        body: &[u8],
        trailers: &[(&'static str, &str)],
    ) -> Result<Response, Broken> {
        let fields = trailers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
        });
        let (fields, requests) = (fields.collect(), self.requests.clone());
        let request = Request::post(target, "text/plain", body);
        within_limit(&self.runtime, async {
            let mut requests = requests.ready().await.map_err(|_| Broken::Closed)?;
            let asked = requests.send_request(head_of(&request), false);
            let (response, mut sender) = asked.map_err(|_| Broken::Closed)?;
            let body = Bytes::copy_from_slice(body);
            sender.send_data(body, false).map_err(|_| Broken::Closed)?;
            sender.send_trailers(fields).map_err(|_| Broken::Closed)?;
            receive(response.await.map_err(|_| Broken::Closed)?).await
        })
    }

    /// As [`try_ask`](Self::try_ask). Calls `see` with the head of each interim response (1xx) when
    /// it has come.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub fn try_ask_seeing(
        &mut self,
        request: &Request,
        see: impl FnMut(Head),
    ) -> Result<Response, Broken> {
        let asked = ask(self.requests.clone(), request.clone(), see);
        within_limit(&self.runtime, asked)
    }

    /// Asks for a tunnel (RFC 8441), and sends these bytes and the end of its direction; the body of
    /// the response is all of the other direction.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub fn tunnel(
        &mut self,
        protocol: &'static str,
        target: &str,
        sent: Vec<u8>,
    ) -> Result<Response, Broken> {
        self.tunnel_of(protocol, &Request::new("CONNECT", target), sent, (0, Vec::new()))
    }

    /// As [`tunnel`](Self::tunnel), with the fields of a `CONNECT` request. When this number of bytes
    /// has come back, sends the last bytes.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub fn tunnel_of(
        &mut self,
        protocol: &'static str,
        request: &Request,
        sent: Vec<u8>,
        (awaited, last): (usize, Vec<u8>),
    ) -> Result<Response, Broken> {
        let requests = self.requests.clone();
        let mut head = head_of(request);
        head.extensions_mut().insert(h2::ext::Protocol::from_static(protocol));
        within_limit(&self.runtime, async {
            let mut requests = requests.ready().await.map_err(|_| Broken::Closed)?;
            // The server's SETTINGS allow it.
            while !requests.is_extended_connect_protocol_enabled() {
                tokio::task::yield_now().await;
            }
            let asked = requests.send_request(head, false);
            let (response, sender) = asked.map_err(|_| Broken::Closed)?;
            let (go, may_end) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let mut sender = sender;
                send_some(&mut sender, sent.into()).await?;
                // The other end may be gone.
                let _gone = may_end.await;
                send(sender, last.into()).await
            });
            receive_telling(response.await.map_err(|_| Broken::Closed)?, awaited, go).await
        })
    }

    /// Sends requests at the same time. The responses are in the order of the requests.
    ///
    /// # Panics
    /// If one of them gets no whole response.
    #[track_caller]
    pub fn ask_all(&mut self, requests: &[Request]) -> Vec<Response> {
        within_limit(&self.runtime, async {
            let mut open = JoinSet::new();
            for (number, request) in requests.iter().enumerate() {
                let asked = ask(self.requests.clone(), request.clone(), |_| {});
                open.spawn(async move { (number, asked.await) });
            }
            let mut all = open.join_all().await;
            all.sort_by_key(|(number, _)| *number);
            all.into_iter().map(|(_, response)| response.expect("a whole response")).collect()
        })
    }
}

fn within_limit<T>(runtime: &Runtime, what: impl Future<Output = T>) -> T {
    runtime.block_on(async { timeout(LIMIT, what).await.expect("the server hangs") })
}

async fn ask(
    requests: SendRequest<Bytes>,
    request: Request,
    mut see: impl FnMut(Head),
) -> Result<Response, Broken> {
    let closed = |_| Broken::Closed;
    let mut requests = requests.ready().await.map_err(closed)?;
    let body = request.body().map(Bytes::copy_from_slice);
    let (mut response, sender) =
        requests.send_request(head_of(&request), body.is_none()).map_err(closed)?;
    let sends = async {
        if let Some(body) = body {
            // The server may answer before it has read everything.
            let _refused = send(sender, body).await;
        }
    };
    let comes = poll_fn(|cx| {
        while let Poll::Ready(Some(Ok(interim))) = response.poll_informational(cx) {
            see(received(&interim.into_parts().0));
        }
        Pin::new(&mut response).poll(cx)
    });
    let (response, ()) = tokio::join!(comes, sends);
    receive(response.map_err(closed)?).await
}

async fn receive(response: http::Response<h2::RecvStream>) -> Result<Response, Broken> {
    let (go, _nobody) = tokio::sync::oneshot::channel();
    receive_telling(response, 0, go).await
}

/// Tells when this number of body bytes has come.
async fn receive_telling(
    response: http::Response<h2::RecvStream>,
    awaited: usize,
    go: tokio::sync::oneshot::Sender<()>,
) -> Result<Response, Broken> {
    let (head, mut body) = response.into_parts();
    let mut response = Response { head: received(&head), ..Response::empty() };
    let mut go = Some(go);
    let mut tell = |count: usize| {
        if count >= awaited
            && let Some(go) = go.take()
        {
            let _gone = go.send(());
        }
    };
    tell(0);
    while let Some(data) = body.data().await {
        let Ok(data) = data else { return Err(Broken::Cut(Box::new(response))) };
        response.body.extend_from_slice(&data);
        tell(response.body.len());
        // It fails if the stream has ended.
        let _ended = body.flow_control().release_capacity(data.len());
    }
    let Ok(trailers) = body.trailers().await else { return Err(Broken::Cut(Box::new(response))) };
    response.trailers = trailers.as_ref().map_or(Vec::new(), texts);
    Ok(response)
}

pub(crate) fn received(head: &http::response::Parts) -> Head {
    Head {
        version: "HTTP/2".to_owned(),
        status: head.status.as_u16(),
        reason: String::new(),
        headers: texts(&head.headers),
    }
}

/// Names and values as text.
pub(crate) fn texts(fields: &http::HeaderMap) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = fields.iter();
    fields.map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect()
}

pub(crate) fn head_of(request: &Request) -> http::Request<()> {
    let host = request.headers().iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map_or("example.test", |(_, host)| host);
    let uri = format!("http://{host}{}", request.target());
    let mut head = http::Request::builder().method(request.method.as_str()).uri(uri);
    for (name, value) in request.headers() {
        if !name.eq_ignore_ascii_case("host") {
            head = head.header(name, value);
        }
    }
    if let Some(body) = request.body() {
        head = head.header("content-length", body.len());
    }
    head.body(()).unwrap()
}

async fn send(mut sender: h2::SendStream<Bytes>, body: Bytes) -> Result<(), h2::Error> {
    send_some(&mut sender, body).await?;
    sender.send_data(Bytes::new(), true)
}

async fn send_some(sender: &mut h2::SendStream<Bytes>, mut body: Bytes) -> Result<(), h2::Error> {
    while body.has_remaining() {
        sender.reserve_capacity(body.len());
        let Some(room) = poll_fn(|cx| sender.poll_capacity(cx)).await else { return Ok(()) };
        sender.send_data(body.split_to(room?.min(body.len())), false)?;
    }
    Ok(())
}
