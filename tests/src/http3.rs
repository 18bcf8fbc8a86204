//! A client of HTTP/3, on the libraries `quinn` and `h3`.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use http::HeaderMap;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, TransportConfig};
use sendoff_http3::frame::{RequestDecoder, RequestPart};
use sendoff_tls::{Verify, client_config};
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::LIMIT;
use crate::client::Broken;
use crate::http2::{head_of, received, texts};
use crate::message::{Request, Response};

pub(crate) type Requests = SendRequest<OpenStreams, Bytes>;

/// A connection to a server, which trusts every certificate. Its packets travel while a method
/// runs.
pub struct Http3 {
    runtime: Runtime,
    connection: quinn::Connection,
    requests: Requests,
    endpoint: Endpoint,
    /// Streams of [`send_raw`](Self::send_raw), which stay open.
    raw: Vec<quinn::SendStream>,
}

impl Http3 {
    /// Connects to a server, and names a host (SNI).
    ///
    /// # Panics
    /// If no connection comes about.
    pub fn connect(addr: SocketAddr, host: &str) -> Self {
        Self::try_connect(addr, host).expect("a connection")
    }

    /// As [`connect`](Self::connect), with a flow-control window of this many bytes for each
    /// stream.
    ///
    /// # Panics
    /// If no connection comes about.
    pub fn connect_narrow(addr: SocketAddr, host: &str, window: u32) -> Self {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(window.into());
        let mut config = trusting();
        config.transport_config(Arc::new(transport));
        Self::connect_with(addr, host, config).expect("a connection")
    }

    /// As [`connect`](Self::connect), when it may fail.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub fn try_connect(addr: SocketAddr, host: &str) -> Result<Self, String> {
        Self::connect_with(addr, host, trusting())
    }

    fn connect_with(addr: SocketAddr, host: &str, config: ClientConfig) -> Result<Self, String> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connected = connect(addr, host, config);
        let (endpoint, connection, requests) = within_limit(&runtime, connected)?;
        Ok(Self { runtime, connection, requests, endpoint, raw: Vec::new() })
    }

    /// The certificate that the server has shown, in DER.
    ///
    /// # Panics
    /// If there is none.
    pub fn certificate(&self) -> Vec<u8> {
        let identity = self.connection.peer_identity().expect("a certificate");
        let chain = identity.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>();
        chain.expect("of rustls")[0].to_vec()
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
        within_limit(&self.runtime, ask(self.requests.clone(), request.clone(), to_the_end))
    }

    /// As [`try_ask`](Self::try_ask), with something that is done once this many bytes of the body
    /// have come. No packet is received meanwhile.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub fn try_ask_with_pause(
        &mut self,
        request: &Request,
        bytes: usize,
        pause: impl FnOnce(),
    ) -> Result<Response, Broken> {
        let mut pause = Some(pause);
        let at = |read: usize| {
            if read >= bytes {
                pause.take().into_iter().for_each(|pause| pause());
            }
            ControlFlow::Continue(())
        };
        within_limit(&self.runtime, ask(self.requests.clone(), request.clone(), at))
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
        let request = Request::post(target, "text/plain", body);
        let asked = ask_with(self.requests.clone(), request, fields.collect(), to_the_end);
        within_limit(&self.runtime, asked)
    }

    /// Sends a request, reads at least this many bytes of the body, and gives the stream up.
    ///
    /// # Panics
    /// If the response is shorter.
    pub fn leave_after(&mut self, request: &Request, bytes: usize) {
        let at =
            |read| if read >= bytes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let asked = ask(self.requests.clone(), request.clone(), at);
        let read = within_limit(&self.runtime, asked).expect("the beginning of a response");
        assert!(read.body.len() >= bytes, "only {} bytes", read.body.len());
    }

    /// Opens a stream, sends bytes on it, and cancels it at once: no response is wanted any more, and
    /// the client's direction ends (`ends`), or is reset as well.
    ///
    /// # Panics
    /// If the server allows no further stream.
    pub fn cancel(&mut self, bytes: &[u8], ends: bool) {
        within_limit(&self.runtime, async {
            let (mut sender, mut receiver) = self.connection.open_bi().await.expect("a stream");
            sender.write_all(bytes).await.unwrap();
            receiver.stop(0x10c_u32.into()).unwrap();
            if ends {
                sender.finish().unwrap();
            } else {
                sender.reset(0x10c_u32.into()).unwrap();
            }
            // The packets leave.
            tokio::task::yield_now().await;
        });
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
                let asked = ask(self.requests.clone(), request.clone(), to_the_end);
                open.spawn(async move { (number, asked.await) });
            }
            let mut all = open.join_all().await;
            all.sort_by_key(|(number, _)| *number);
            all.into_iter().map(|(_, response)| response.expect("a whole response")).collect()
        })
    }

    /// Sends a request of raw frames, and reads all frames of the response.
    ///
    /// # Errors
    /// The server has reset the stream.
    pub fn try_ask_raw(&mut self, frames: Vec<u8>) -> Result<Vec<u8>, Broken> {
        self.try_ask_raw_in_turns(frames, 0, Vec::new())
    }

    /// The same, for frames that are only the beginning of a request: its stream ends when the first
    /// byte of the response has come.
    ///
    /// # Errors
    /// The server has reset the stream, or waits for the rest.
    pub fn try_ask_amid_body(&mut self, frames: Vec<u8>) -> Result<Vec<u8>, Broken> {
        self.try_ask_raw_in_turns(frames, 1, Vec::new())
    }

    /// The same, with frames that follow when this number of bytes has come.
    fn try_ask_raw_in_turns(
        &mut self,
        frames: Vec<u8>,
        awaited: usize,
        last: Vec<u8>,
    ) -> Result<Vec<u8>, Broken> {
        within_limit(&self.runtime, async {
            let (mut sender, mut receiver) =
                self.connection.open_bi().await.map_err(|_| Broken::Closed)?;
            let (go, may_end) = tokio::sync::oneshot::channel();
            let sends = tokio::spawn(async move {
                let _refused = sender.write_all(&frames).await;
                // The other end may be gone.
                let _gone: Result<(), _> = may_end.await;
                let _refused = sender.write_all(&last).await;
                let _refused = sender.finish();
                sender
            });
            let mut answer = vec![0; awaited];
            let came = receiver.read_exact(&mut answer).await;
            let _gone = go.send(());
            came.map_err(|_| Broken::Closed)?;
            let rest = receiver.read_to_end(usize::MAX).await.map_err(|_| Broken::Closed);
            let _ended = sends.await;
            answer.extend(rest?);
            Ok(answer)
        })
    }

    /// Asks for a WebSocket (RFC 9220), and sends these bytes; when this number of bytes has come
    /// back, also the last bytes and the end of its direction. Returns all bytes of the other
    /// direction.
    ///
    /// # Errors
    /// The server has reset the stream.
    ///
    /// # Panics
    /// If the server refuses.
    pub fn tunnel(
        &mut self,
        host: &str,
        target: &str,
        fields: &[(&str, &str)],
        sent: &[u8],
        (awaited, last): (usize, &[u8]),
    ) -> Result<Vec<u8>, Broken> {
        let connect = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", host),
            (":path", target),
        ];
        let frames = [headers_frame(&[&connect, fields].concat()), data_frames(sent)].concat();
        let answer = self.try_ask_raw_in_turns(frames, awaited, data_frames(last))?;
        let mut answer = BytesMut::from(&answer[..]);
        let mut decoder = RequestDecoder::new(10_000);
        let mut body = Vec::new();
        loop {
            match decoder.next(&mut answer).unwrap() {
                // `:status: 200` of the static table comes first.
                RequestPart::Head(section) => assert_eq!(section[..3], [0, 0, 0xd9]),
                RequestPart::Data(data) => body.extend(data),
                RequestPart::Trailers(_) => panic!("trailers"),
                RequestPart::NeedMore => break,
            }
        }
        assert!(answer.is_empty() && decoder.is_at_boundary());
        Ok(body)
    }

    /// Changes to another port, as a NAT does that has forgotten its mapping.
    ///
    /// # Panics
    /// If there is none.
    pub fn rebind(&self) {
        let _entered = self.runtime.enter();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        self.endpoint.rebind(socket).unwrap();
    }

    /// Waits until the server ends the connection. Returns its reason.
    pub fn ended(&self) -> String {
        within_limit(&self.runtime, self.connection.closed()).to_string()
    }

    /// Sends bytes on a new stream of its own, bidirectional or not, without a frame around them.
    pub fn send_raw(&mut self, is_request: bool, bytes: &[u8]) {
        let sent = within_limit(&self.runtime, async {
            let mut stream = if is_request {
                self.connection.open_bi().await.unwrap().0
            } else {
                self.connection.open_uni().await.unwrap()
            };
            stream.write_all(bytes).await.unwrap();
            stream
        });
        self.raw.push(sent);
    }
}

impl Drop for Http3 {
    /// Tells the server, which would wait for packets otherwise.
    fn drop(&mut self) {
        self.connection.close(0_u32.into(), b"");
        let told = async { timeout(LIMIT, self.endpoint.wait_idle()).await };
        let _late = self.runtime.block_on(told);
    }
}

/// A connection to a server, and the endpoint that it needs. A task of its own drives it.
pub(crate) async fn connect(
    addr: SocketAddr,
    host: &str,
    config: ClientConfig,
) -> Result<(Endpoint, quinn::Connection, Requests), String> {
    let endpoint = Endpoint::client("0.0.0.0:0".parse().unwrap()).unwrap();
    let connecting = endpoint.connect_with(config, addr, host).unwrap();
    let connection = connecting.await.map_err(|error| error.to_string())?;
    let http = h3_quinn::Connection::new(connection.clone());
    let (mut driver, requests) = h3::client::new(http).await.map_err(|error| error.to_string())?;
    tokio::spawn(async move { driver.wait_idle().await });
    Ok((endpoint, connection, requests))
}

pub(crate) fn trusting() -> ClientConfig {
    let mut config = client_config(None, Verify::Nothing).unwrap();
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![b"h3".to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
}

fn within_limit<T>(runtime: &Runtime, what: impl Future<Output = T>) -> T {
    runtime.block_on(async { timeout(LIMIT, what).await.expect("the server hangs") })
}

fn to_the_end(_read: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// `at` is called with the number of bytes of the body so far, and may leave the response.
async fn ask(
    requests: Requests,
    request: Request,
    at: impl FnMut(usize) -> ControlFlow<()>,
) -> Result<Response, Broken> {
    ask_with(requests, request, HeaderMap::new(), at).await
}

async fn ask_with(
    mut requests: Requests,
    request: Request,
    trailers: HeaderMap,
    mut at: impl FnMut(usize) -> ControlFlow<()>,
) -> Result<Response, Broken> {
    let mut stream = requests.send_request(head_of(&request)).await.map_err(|_| Broken::Closed)?;
    if let Some(body) = request.body() {
        // The server may answer before it has read everything.
        let _refused = stream.send_data(Bytes::copy_from_slice(body)).await;
    }
    if !trailers.is_empty() {
        let _refused = stream.send_trailers(trailers).await;
    }
    let _refused = stream.finish().await;
    let head = stream.recv_response().await.map_err(|_| Broken::Closed)?;
    let mut head = received(&head.into_parts().0);
    head.version = "HTTP/3".to_owned();
    let mut response = Response { head, ..Response::empty() };
    loop {
        if at(response.body.len()).is_break() {
            // The drop of the stream asks the server to stop.
            return Ok(response);
        }
        match stream.recv_data().await {
            Ok(None) => {
                let trailers = stream.recv_trailers().await;
                let Ok(trailers) = trailers else { return Err(Broken::Cut(Box::new(response))) };
                response.trailers = trailers.as_ref().map_or(Vec::new(), texts);
                return Ok(response);
            }
            Ok(Some(mut data)) => {
                let data = data.copy_to_bytes(data.remaining());
                response.body.extend_from_slice(&data);
            }
            Err(_) => return Err(Broken::Cut(Box::new(response))),
        }
    }
}

/// DATA frames of HTTP/3, with lengths in four bytes.
pub fn data_frames(bytes: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    for piece in bytes.chunks(10_000) {
        frames.push(0);
        frames.extend((0x8000_0000 | u32::try_from(piece.len()).unwrap()).to_be_bytes());
        frames.extend(piece);
    }
    frames
}

/// A HEADERS frame of HTTP/3 without the tables of QPACK.
pub fn headers_frame(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        // RFC 9204 §4.5.6: names of at least 7 bytes continue the prefix.
        match name.len().checked_sub(7) {
            None => section.push(0x20 | u8::try_from(name.len()).unwrap()),
            Some(more) => section.extend([0x27, u8::try_from(more).unwrap()]),
        }
        section.extend(name.as_bytes());
        section.push(u8::try_from(value.len()).unwrap());
        section.extend(value.as_bytes());
    }
    let mut frame = vec![1, 0x40, u8::try_from(section.len()).unwrap()];
    frame.extend(section);
    frame
}
