//! HTTP/2 beneath a client that speaks HTTP/1: `SENDOFF_TEST_H2=1`.
//!
//! Scenarios write requests and read responses as bytes of HTTP/1. [`Multiplexed`] sends each
//! request on a stream of its own, and renders the answer as a response of HTTP/1, with the framing
//! of HTTP/1. A request waits until the previous response has been read, so pipelined responses
//! keep their order.
//!
//! Frames travel only while a method runs, and data is taken from a stream only as the scenario
//! reads it, so a client that reads slowly or not at all holds the server back by its windows.

use crate::LIMIT;
use crate::polled::{Polled, Waiting};
use crate::ports::Ports;
use crate::translate::{self, ResponseForm, Upload};
use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, RecvStream, SendStream};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

/// True if the scenarios run over HTTP/2.
pub(crate) fn is_wanted() -> bool {
    std::env::var("SENDOFF_TEST_H2").is_ok_and(|value| value == "1")
}

/// Ports at which servers of this process are asked over HTTP/2.
pub(crate) static PORTS: Ports = Ports::new();

/// An HTTP/2 connection with the interface of an HTTP/1 connection.
pub(crate) struct Multiplexed {
    /// `None`: it has ended.
    connection: Option<Connection<Polled, Bytes>>,
    requests: SendRequest<Bytes>,
    waiting: Waiting,
    scheme: &'static str,
    /// Bytes that have not become a request yet.
    unsent: Vec<u8>,
    current: Option<Exchange>,
    /// Bytes of HTTP/1 that the scenario may read.
    rendered: VecDeque<u8>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// More may come.
    Open,
    /// The last response was whole.
    Whole,
    /// The last response, or the connection, was cut.
    Cut,
}

/// One request and its response.
struct Exchange {
    asked: ResponseForm,
    sends: Sends,
    receives: Receives,
}

enum Sends {
    /// All has been sent.
    Nothing,
    /// This body is being sent.
    Body(SendStream<Bytes>, Upload),
    /// The server does not want the rest of the body.
    Refused,
}

enum Receives {
    Head(ResponseFuture),
    Body { stream: RecvStream, is_chunked: bool },
}

impl Multiplexed {
    /// `window` is the flow-control window of each stream, in bytes.
    ///
    /// # Panics
    /// If the server does not speak HTTP/2.
    pub(crate) fn new(io: Polled, scheme: &'static str, window: u32) -> Self {
        let waiting = io.waiting();
        let mut builder = Builder::new();
        builder.initial_window_size(window).enable_push(false);
        let mut handshake = pin!(builder.handshake(io));
        let began = Instant::now();
        let (requests, connection) = loop {
            let woken = waiting.watch();
            let mut context = Context::from_waker(&woken);
            match handshake.as_mut().poll(&mut context) {
                Poll::Ready(both) => break both.expect("HTTP/2"),
                Poll::Pending => waiting.wait(began + LIMIT).expect("HTTP/2"),
            }
        };
        Self {
            connection: Some(connection),
            requests,
            waiting,
            scheme,
            unsent: Vec::new(),
            current: None,
            rendered: VecDeque::new(),
            end: End::Open,
        }
    }

    pub(crate) fn socket(&self) -> &std::net::TcpStream {
        self.waiting.socket()
    }

    /// Sends what is left of requests, then ends the sending direction.
    pub(crate) fn half_close(&mut self) {
        self.advance();
        self.await_settings();
        self.socket().shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Waits until the server's settings have come: h2 gives the connection up if it cannot
    /// acknowledge them. They come before the answer to a ping.
    fn await_settings(&mut self) {
        let Some(mut pings) = self.connection.as_mut().and_then(Connection::ping_pong) else {
            return;
        };
        let mut pong = pin!(pings.ping(Ping::opaque()));
        let until = Instant::now() + LIMIT;
        loop {
            let woken = self.waiting.watch();
            let mut context = Context::from_waker(&woken);
            if pong.as_mut().poll(&mut context).is_ready() || self.connection.is_none() {
                return;
            }
            self.drive(&mut context);
            if !self.waiting.was_woken() {
                self.waiting.wait(until).expect("the server answers pings");
            }
        }
    }

    /// Takes bytes of requests. On return they are sent, except requests that wait for a previous
    /// response.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.end != End::Open {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.unsent.extend_from_slice(bytes);
        let until = Instant::now() + LIMIT;
        loop {
            self.advance();
            let current = self.current.as_mut();
            let is_blocked = current.is_some_and(|exchange| exchange.is_blocked(&mut self.unsent));
            if !is_blocked && !self.waiting.has_unwritten() {
                return Ok(());
            }
            self.waiting.wait(until)?;
        }
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
        loop {
            if self.rendered.is_empty() {
                self.advance();
            }
            if !self.rendered.is_empty() {
                return io::Read::read(&mut self.rendered, buffer);
            }
            match self.end {
                End::Open => self.waiting.wait(until)?,
                End::Whole => return Ok(0),
                End::Cut => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
    }

    /// True if there is nothing to read, and the connection is open.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.advance();
        self.rendered.is_empty() && self.end == End::Open
    }

    /// Moves frames, requests and responses as far as possible without waiting.
    fn advance(&mut self) {
        loop {
            let woken = self.waiting.watch();
            let mut context = Context::from_waker(&woken);
            self.drive(&mut context);
            self.step(&mut context);
            self.drive(&mut context);
            if !self.waiting.was_woken() {
                return;
            }
        }
    }

    /// Moves frames.
    fn drive(&mut self, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        if let Poll::Ready(ended) = Pin::new(connection).poll(context) {
            // Streams still have the data that has come on them.
            self.connection = None;
            if self.current.is_none() && self.end == End::Open {
                self.end = if ended.is_ok() { End::Whole } else { End::Cut };
            }
        }
    }

    /// Moves requests and responses.
    fn step(&mut self, context: &mut Context<'_>) {
        if self.current.is_none() && self.end == End::Open && !self.open(context) {
            return;
        }
        let Some(exchange) = &mut self.current else { return };
        exchange.send(context, &mut self.unsent);
        // Data that the scenario has not asked for stays with h2, where it counts against the
        // windows.
        if !self.rendered.is_empty() {
            return;
        }
        let mut rendered = Vec::new();
        let end = exchange.receive(context, &mut rendered);
        self.rendered.extend(rendered);
        let Poll::Ready(end) = end else { return };
        // As in HTTP/1, the connection is of no use if a body was not sent to its end.
        let is_sent = matches!(exchange.sends, Sends::Nothing);
        let closes = exchange.asked.closes || !is_sent || self.connection.is_none();
        self.current = None;
        if end.is_err() {
            self.end = End::Cut;
        } else if closes {
            self.end = End::Whole;
        } else {
            context.waker().wake_by_ref();
        }
        if self.end != End::Open {
            self.connection = None;
        }
    }

    /// Opens a stream for the next request, if its head is complete.
    fn open(&mut self, context: &mut Context<'_>) -> bool {
        let Some((asked, request, length)) = translate::request(&self.unsent, self.scheme) else {
            return false;
        };
        match self.requests.poll_ready(context) {
            Poll::Pending => return false,
            Poll::Ready(Err(_)) => {
                self.end = End::Cut;
                return false;
            }
            Poll::Ready(Ok(())) => {}
        }
        self.unsent.drain(..length);
        let upload = asked.upload;
        match self.requests.send_request(request, upload.is_none()) {
            Ok((response, stream)) => {
                let sends = upload.map_or(Sends::Nothing, |upload| Sends::Body(stream, upload));
                self.current = Some(Exchange { asked, sends, receives: Receives::Head(response) });
                true
            }
            Err(_) => {
                self.end = End::Cut;
                false
            }
        }
    }
}

impl Exchange {
    /// Sends what there is of the body, as far as the windows allow.
    fn send(&mut self, context: &mut Context<'_>, unsent: &mut Vec<u8>) {
        while let Sends::Body(stream, upload) = &mut self.sends {
            let (part, is_last) = upload.next(unsent);
            if part.is_empty() && !is_last {
                return;
            }
            stream.reserve_capacity(part.len());
            let room = stream.capacity().min(part.len());
            if room == 0 && !part.is_empty() {
                match stream.poll_capacity(context) {
                    Poll::Pending | Poll::Ready(Some(Ok(0))) => return,
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(Some(Err(_)) | None) => {
                        self.sends = Sends::Refused;
                        return;
                    }
                }
            }
            let ends = is_last && room == part.len();
            if stream.send_data(Bytes::copy_from_slice(&part[..room]), ends).is_err() {
                self.sends = Sends::Refused;
                return;
            }
            upload.sent(room, unsent);
            if ends {
                upload.finish(unsent);
                self.sends = Sends::Nothing;
            }
        }
    }

    /// True if a part of the body waits for the flow-control window.
    fn is_blocked(&mut self, unsent: &mut Vec<u8>) -> bool {
        match &mut self.sends {
            Sends::Body(_, upload) => !upload.next(unsent).0.is_empty(),
            Sends::Nothing | Sends::Refused => false,
        }
    }

    /// Renders head and data that have come. Ready at the end of the response; an error if it was
    /// cut.
    fn receive(
        &mut self,
        context: &mut Context<'_>,
        rendered: &mut Vec<u8>,
    ) -> Poll<Result<(), h2::Error>> {
        loop {
            match &mut self.receives {
                Receives::Head(future) => {
                    if let Poll::Ready(Some(Ok(interim))) = future.poll_informational(context) {
                        translate::interim(&interim, rendered);
                        continue;
                    }
                    let Poll::Ready(response) = Pin::new(future).poll(context)? else {
                        return Poll::Pending;
                    };
                    let (head, stream) = response.into_parts();
                    let is_chunked = translate::response(&head, &mut self.asked, rendered);
                    self.receives = Receives::Body { stream, is_chunked };
                }
                Receives::Body { stream, is_chunked } => {
                    let Poll::Ready(data) = stream.poll_data(context)? else {
                        return Poll::Pending;
                    };
                    let Some(data) = data else {
                        if *is_chunked {
                            rendered.extend_from_slice(b"0\r\n\r\n");
                        }
                        return Poll::Ready(Ok(()));
                    };
                    // It fails if the stream has ended.
                    let _ended = stream.flow_control().release_capacity(data.len());
                    if !data.is_empty() {
                        translate::data(&data, *is_chunked, rendered);
                    }
                }
            }
        }
    }
}
