//! The two directions of a request's stream, as a protocol provides them.

use std::task::{Context, Poll};

use bytes::Bytes;
use sendoff_delivery::Piece;
use sendoff_message::Cut;
use sendoff_message::response::{ResponseHead, Trailers};

/// The client has reset the stream, or the connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamGone;

/// The body of a request. Dropping it tells the client that the rest is not needed, if there is
/// one.
pub trait RequestBody {
    /// True if no byte follows.
    fn is_end(&self) -> bool;

    /// The next bytes; `None` at the end, when the trailers are known, too.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamGone>>;

    /// The fields behind the body that may be passed on, once its end was read.
    fn take_trailers(&mut self) -> Option<Trailers>;

    /// Allows the client to send as many more bytes.
    fn release(&mut self, bytes: usize);
}

/// The sending direction of a stream.
pub trait ResponseSender {
    /// A response head in the protocol's form.
    type Head;

    /// The head in the protocol's form. Calls `invalid` with the name of each field that is not
    /// valid and therefore left out.
    fn encode(head: ResponseHead, invalid: &mut dyn FnMut(&[u8])) -> Self::Head;

    /// Sends the head of an interim response.
    ///
    /// # Errors
    /// The client has gone.
    fn interim(&mut self, head: Self::Head) -> Result<(), Cut>;

    /// Sends the head of the response, once. `ends`: the response has no body.
    ///
    /// # Errors
    /// The client has gone.
    fn head(&mut self, head: Self::Head, ends: bool) -> Result<(), Cut>;

    /// The number of bytes that the next [`give`](Self::give) may have, at most `owed`: the bytes
    /// that wait to be sent. Called with 0, too: a share of a window that is not needed goes to
    /// other streams.
    fn room(&mut self, owed: usize) -> usize;

    /// True if given bytes wait here for the client's windows, until [`poll_room`](Self::poll_room)
    /// sends them.
    fn has_rest(&self) -> bool;

    /// Ready when there is room again.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>>;

    /// Takes a piece of the body, behind the head. `ends`: it is the last one.
    ///
    /// # Errors
    /// The client has gone.
    fn give(&mut self, piece: Piece, ends: bool) -> Result<(), Cut>;

    /// Ready when no given bytes wait here for the client's window. Sends as many as it takes.
    ///
    /// # Errors
    /// The client has gone.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>>;

    /// Sends the fields behind the body, which end the stream.
    ///
    /// # Errors
    /// The client has gone.
    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut>;

    /// Bytes of the body that were given and that the network has not taken yet.
    fn in_flight(&self) -> usize;

    /// Ready if the network has taken all bytes of the connection; otherwise wakes the task after
    /// it has taken some.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready when the client no longer wants the response, or the connection has ended.
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ends a response that is not complete, so that the client does not take its beginning for all
    /// of it.
    fn reset(&mut self);
}
