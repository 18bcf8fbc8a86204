//! The client's unidirectional streams (RFC 9114 §6.2): its control stream, the two of QPACK.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;

use bytes::{Buf, BytesMut};
use quinn_proto::StreamId;
use sendoff_http3::frame::{Control, ControlDecoder};
use sendoff_http3::{Code, StreamType, qpack, varint};

use super::quic::Quic;

/// The client's streams that may exist once.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    control: Cell<bool>,
    encoder: Cell<bool>,
    decoder: Cell<bool>,
}

/// Reads a stream to its end, and ends the connection for its mistakes.
pub(crate) async fn read(quic: Rc<Quic>, id: StreamId, opened: Rc<Opened>) {
    let mut buffer = BytesMut::new();
    if let Err((code, why)) = read_to_end(&quic, id, &opened, &mut buffer).await {
        quic.close(code.0, why);
    }
    quic.let_go(id);
}

/// The error of a connection, with its reason for people.
type Mistake = (Code, &'static str);

async fn read_to_end(
    quic: &Quic,
    id: StreamId,
    opened: &Opened,
    buffer: &mut BytesMut,
) -> Result<(), Mistake> {
    let kind = loop {
        if let Some((kind, len)) = varint::decode(buffer) {
            buffer.advance(len);
            break kind;
        }
        // A stream that ends before its type has no meaning (RFC 9114 §6.2).
        if !more(quic, id, buffer).await {
            return Ok(());
        }
    };
    match StreamType::from(kind) {
        StreamType::Control => {
            once(&opened.control)?;
            let mut decoder = ControlDecoder::default();
            loop {
                match decoder.next(buffer).map_err(|code| (code, "on the control stream"))? {
                    Control::NeedMore => {}
                    // Nothing that this server sends depends on the settings, and it pushes
                    // nothing.
                    _ => continue,
                }
                if !more(quic, id, buffer).await {
                    return Err((Code::CLOSED_CRITICAL_STREAM, "the control stream has ended"));
                }
            }
        }
        StreamType::QpackEncoder => {
            once(&opened.encoder)?;
            let mut check = qpack::EncoderStream;
            instructions(quic, id, buffer, |bytes| check.take(bytes)).await
        }
        StreamType::QpackDecoder => {
            once(&opened.decoder)?;
            let mut check = qpack::DecoderStream::default();
            instructions(quic, id, buffer, |bytes| check.take(bytes)).await
        }
        StreamType::Push => Err((Code::STREAM_CREATION_ERROR, "clients do not push")),
        StreamType::Other(_) => {
            quic.stop(id, Code::STREAM_CREATION_ERROR.0);
            Ok(())
        }
    }
}

async fn instructions(
    quic: &Quic,
    id: StreamId,
    buffer: &mut BytesMut,
    mut take: impl FnMut(&[u8]) -> Result<(), Code>,
) -> Result<(), Mistake> {
    loop {
        take(buffer).map_err(|code| (code, "an instruction for a table that does not exist"))?;
        buffer.clear();
        if !more(quic, id, buffer).await {
            return Err((Code::CLOSED_CRITICAL_STREAM, "a stream of QPACK has ended"));
        }
    }
}

fn once(opened: &Cell<bool>) -> Result<(), Mistake> {
    if opened.replace(true) {
        return Err((Code::STREAM_CREATION_ERROR, "a second stream of a type that exists once"));
    }
    Ok(())
}

/// Reads more bytes. Returns false at the end of the stream, or if the client has gone.
async fn more(quic: &Quic, id: StreamId, buffer: &mut BytesMut) -> bool {
    match poll_fn(|cx| quic.poll_read(id, cx)).await {
        Ok(Some(bytes)) => {
            buffer.extend_from_slice(&bytes);
            true
        }
        Ok(None) | Err(_) => false,
    }
}
