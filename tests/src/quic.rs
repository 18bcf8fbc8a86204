//! HTTP/3 beneath a client that speaks HTTP/1: `SENDOFF_TEST_H3=1`.
//!
//! As in [`multiplexed`](crate::multiplexed), each request gets a stream of its own when the
//! previous response has been read, and its answer is rendered as a response of HTTP/1. Packets
//! travel in a thread of their own, as they do with TCP in the kernel. Data is taken from a
//! stream only as the scenario reads it.

use crate::LIMIT;
use crate::http3::{self, Requests, trusting};
use crate::ports::Ports;
use crate::translate::{self, ResponseForm, Upload};
use bytes::{Buf, Bytes};
use h3::client::RequestStream;
use h3::error::Code;
use quinn::{ConnectionError, Endpoint, TransportConfig, VarInt};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

/// Pieces of requests that the scenario may write ahead of the connection.
const PIECES_AHEAD: usize = 1024;

/// True if the scenarios run over HTTP/3.
pub(crate) fn is_wanted() -> bool {
    std::env::var("SENDOFF_TEST_H3").is_ok_and(|value| value == "1")
}

/// Ports at which servers of this process are asked over HTTP/3.
pub(crate) static PORTS: Ports = Ports::new();

/// The thread in which packets travel.
static NETWORK: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
});

/// An HTTP/3 connection with the interface of an HTTP/1 connection.
pub(crate) struct OverQuic {
    /// For scenarios that want a socket; nothing of HTTP/3 goes through it.
    socket: TcpStream,
    connection: Option<quinn::Connection>,
    /// `None`: the scenario has ended its direction.
    writes: Option<mpsc::Sender<Vec<u8>>>,
    reads: mpsc::Receiver<Vec<u8>>,
    task: Option<JoinHandle<End>>,
    /// Known when the task has ended.
    end: Option<End>,
    /// Bytes of HTTP/1 that the scenario may read.
    rendered: VecDeque<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The last response was whole.
    Whole,
    /// The last response, or the connection, was cut.
    Cut,
}

type SendStream = RequestStream<h3_quinn::SendStream<Bytes>, Bytes>;
type RecvStream = RequestStream<h3_quinn::RecvStream, Bytes>;

impl OverQuic {
    /// Connects to a server. `window` is the flow-control window of each stream, in bytes. A server
    /// that refuses the connection is seen by the first read.
    pub(crate) fn connect(addr: SocketAddr, window: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (writes, written) = mpsc::channel(PIECES_AHEAD);
        let (readable, reads) = mpsc::channel(1);
        let connected = NETWORK.block_on(connect(addr, window));
        let connection = connected.as_ref().map(|(_, connection, _)| connection.clone());
        let task = NETWORK.spawn(async move {
            match connected {
                Some((_endpoint, connection, requests)) => {
                    let end = serve(&connection, requests, written, readable).await;
                    close(&connection);
                    end
                }
                None => End::Cut,
            }
        });
        Self {
            socket,
            connection,
            writes: Some(writes),
            reads,
            task: Some(task),
            end: None,
            rendered: VecDeque::new(),
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Ends the sending direction: a body that is not complete is given up.
    pub(crate) fn half_close(&mut self) {
        self.writes = None;
    }

    /// Takes bytes of requests.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(writes) = &self.writes else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let sent = writes.send_timeout(bytes.to_vec(), LIMIT);
        NETWORK.block_on(sent).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Reads, and waits for at most [`LIMIT`] until something comes. 0 after the end of a
    /// connection that was not cut.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_until(buffer, Instant::now() + LIMIT)
    }

    /// Reads bytes that have arrived. Does not wait.
    pub(crate) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_until(buffer, Instant::now())
    }

    fn read_until(&mut self, buffer: &mut [u8], until: Instant) -> io::Result<usize> {
        self.take_until(until)?;
        if !self.rendered.is_empty() {
            return io::Read::read(&mut self.rendered, buffer);
        }
        match self.end {
            Some(End::Cut) => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(0),
        }
    }

    /// Waits until there is something to read, or the connection has ended.
    fn take_until(&mut self, until: Instant) -> io::Result<()> {
        if !self.rendered.is_empty() || self.end.is_some() {
            return Ok(());
        }
        let taken = NETWORK.block_on(async { timeout_at(until.into(), self.reads.recv()).await });
        match taken {
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(Some(bytes)) => {
                self.rendered.extend(bytes);
                Ok(())
            }
            Ok(None) => {
                let task = self.task.take().unwrap();
                self.end = Some(NETWORK.block_on(task).unwrap());
                Ok(())
            }
        }
    }

    /// True if there is nothing to read, and the connection is open.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.take_until(Instant::now()).is_err()
    }
}

impl Drop for OverQuic {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            close(connection);
        }
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn close(connection: &quinn::Connection) {
    connection.close(VarInt::from_u64(Code::H3_NO_ERROR.value()).unwrap(), b"");
}

async fn connect(addr: SocketAddr, window: u32) -> Option<(Endpoint, quinn::Connection, Requests)> {
    let mut config = trusting();
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(window.into()).max_idle_timeout(None);
    config.transport_config(Arc::new(transport));
    http3::connect(addr, "localhost", config).await.ok()
}

/// Exchanges requests and responses up to the end of the connection.
async fn serve(
    connection: &quinn::Connection,
    mut requests: Requests,
    mut written: mpsc::Receiver<Vec<u8>>,
    readable: mpsc::Sender<Vec<u8>>,
) -> End {
    let mut unsent = Vec::new();
    loop {
        let (mut form, head, length) = loop {
            if let Some(request) = translate::request(&unsent, "https") {
                break request;
            }
            tokio::select! {
                reason = connection.closed() => return end_of(&reason),
                more = written.recv() => match more {
                    Some(bytes) => unsent.extend(bytes),
                    None => return End::Whole,
                },
            }
        };
        unsent.drain(..length);
        let Ok(stream) = requests.send_request(head).await else { return End::Cut };
        let (sender, receiver) = stream.split();
        let is_sent;
        let response = {
            let upload = form.upload;
            let mut sending = pin!(send(sender, upload, &mut unsent, &mut written));
            let mut receiving = pin!(receive(receiver, &mut form, &readable));
            tokio::select! {
                sent = &mut sending => {
                    is_sent = sent;
                    receiving.await
                }
                response = &mut receiving => {
                    is_sent = false;
                    response
                }
            }
        };
        // As in HTTP/1, the connection is of no use if a body was not sent to its end.
        match response {
            Err(Cut) => return End::Cut,
            Ok(()) if form.closes || !is_sent => return End::Whole,
            Ok(()) => {}
        }
    }
}

/// The server has ended a connection between two requests.
fn end_of(reason: &ConnectionError) -> End {
    let no_error = Code::H3_NO_ERROR.value();
    match reason {
        ConnectionError::ApplicationClosed(closed)
            if closed.error_code.into_inner() == no_error =>
        {
            End::Whole
        }
        _ => End::Cut,
    }
}

/// Sends a request's body. Returns whether the server has taken all of it.
async fn send(
    mut sender: SendStream,
    upload: Option<Upload>,
    unsent: &mut Vec<u8>,
    written: &mut mpsc::Receiver<Vec<u8>>,
) -> bool {
    let Some(mut upload) = upload else { return sender.finish().await.is_ok() };
    loop {
        let (part, is_last) = upload.next(unsent);
        let length = part.len();
        if length > 0 && sender.send_data(part.into()).await.is_err() {
            return false;
        }
        upload.sent(length, unsent);
        if is_last {
            upload.finish(unsent);
            return sender.finish().await.is_ok();
        }
        if length == 0 {
            let Some(more) = written.recv().await else {
                sender.stop_stream(Code::H3_REQUEST_CANCELLED);
                return false;
            };
            unsent.extend(more);
        }
    }
}

/// A response that did not arrive as a whole.
struct Cut;

/// Renders a response. It waits while the scenario does not read.
async fn receive(
    mut receiver: RecvStream,
    form: &mut ResponseForm,
    readable: &mpsc::Sender<Vec<u8>>,
) -> Result<(), Cut> {
    let head = loop {
        let head = receiver.recv_response().await.map_err(|_| Cut)?;
        if !head.status().is_informational() {
            break head.into_parts().0;
        }
        let mut rendered = Vec::new();
        translate::interim(&head, &mut rendered);
        readable.send(rendered).await.map_err(|_| Cut)?;
    };
    let mut rendered = Vec::new();
    let is_chunked = translate::response(&head, form, &mut rendered);
    readable.send(rendered).await.map_err(|_| Cut)?;
    while let Some(mut data) = receiver.recv_data().await.map_err(|_| Cut)? {
        let data = data.copy_to_bytes(data.remaining());
        if !data.is_empty() {
            let mut rendered = Vec::new();
            translate::data(&data, is_chunked, &mut rendered);
            readable.send(rendered).await.map_err(|_| Cut)?;
        }
    }
    if is_chunked {
        readable.send(b"0\r\n\r\n".to_vec()).await.map_err(|_| Cut)?;
    }
    Ok(())
}
