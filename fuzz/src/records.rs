//! The promise: every handover record that is accepted has the same meaning after it is encoded
//! again, and a framed body is the same however it is cut.

use bytes::Bytes;
use sendoff_fastcgi::channel::{Announcement, Registration};
use sendoff_fastcgi::direct::Client;
use sendoff_fastcgi::frames::{Frame, Frames};
use sendoff_fastcgi::handover::{GuardMessage, Record};
use sendoff_fastcgi::record::{BeginRequest, EndRequest, HEADER_LEN, Kind};
use sendoff_http1::{BadHead, CgiHead, CgiHeadReader, MAX_CGI_HEAD};

fn record(kind: Kind, content: &[u8]) {
    let Ok(Some(record)) = Record::decode(kind, content) else { return };
    let mut wire = Vec::new();
    record.encode(1, &mut wire);
    assert_eq!(wire.len(), record.wire_len());
    assert_eq!(Record::decode(kind, &wire[HEADER_LEN..]), Ok(Some(record)));
    // Four bytes of SEGMENT have no meaning.
    assert!(&wire[HEADER_LEN..] == content || kind == Kind::SEGMENT);
}

fn client(content: &[u8]) {
    let Ok(client) = Client::decode(content) else { return };
    for (name, value) in client.fields() {
        assert!(!name.contains(&b'\n') && !value.contains(&b'\n'));
    }
    let mut wire = Vec::new();
    client.encode(1, &mut wire);
    if content.len() <= 0xffff {
        assert_eq!(Client::decode(&wire[HEADER_LEN..]), Ok(client));
    }
}

/// The bytes up to the first error, and whether they move.
fn frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<(Vec<u8>, bool), (Vec<u8>, bool)> {
    let (mut frames, mut body, mut moved) = (Frames::default(), Vec::new(), false);
    for piece in pieces {
        frames.push(Bytes::copy_from_slice(piece)).map_err(|_| (body.clone(), moved))?;
        while let Some(frame) = frames.take().map_err(|_| (body.clone(), moved))? {
            assert!(!moved, "nothing follows");
            match frame {
                Frame::Bytes(bytes) => body.extend_from_slice(&bytes),
                Frame::Moved => moved = true,
            }
        }
    }
    Ok((body, moved))
}

/// Checks the promise for the content of a record, which follows a kind and the size of its pieces.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let [kind, size, content @ ..] = input else { return };
    let (kind, size) = (*kind, *size);
    (1..=11).chain(128..=142).chain([kind]).for_each(|kind| record(Kind(kind), content));
    client(content);
    let cut = frames(content.chunks(usize::from(size).max(1)));
    assert_eq!(frames(std::iter::once(content)), cut);
    if let Some(announcement) = Announcement::decode(content) {
        assert_eq!(Announcement::decode(&announcement.encode()), Some(announcement));
    }
    if let Some(registration) = Registration::decode(content) {
        assert_eq!(&registration.encode(), content);
    }
    if let Ok(message) = GuardMessage::decode(content) {
        assert_eq!(GuardMessage::decode(&message.encode()), Ok(message));
    }
    let _begin = BeginRequest::decode(content);
    let _end = EndRequest::decode(content);
    cgi_head(content, usize::from(size).max(1));
}

/// Checks that a head and the rest, or the refusal, is the same however the output is cut.
fn cgi_head(content: &[u8], size: usize) {
    let read = |size: usize| {
        let (mut reader, mut at) = (CgiHeadReader::new(), 0);
        for piece in content.chunks(size.max(1)) {
            at += piece.len();
            if let Some((head, rest)) = reader.push(&Bytes::copy_from_slice(piece))? {
                return Ok(Some((head, at - rest.len())));
            }
        }
        Ok::<_, BadHead>(None)
    };
    let (whole, cut) = (read(content.len()), read(size));
    assert_eq!(format!("{whole:?}"), format!("{cut:?}"));
    if let Ok(Some((head, end))) = whole {
        assert!(end <= MAX_CGI_HEAD && CgiHead::find_end(content) == Some(end));
        for field in &head.fields {
            let (name, value) = (field.name(), field.value());
            assert!(!name.iter().chain(value.iter()).any(|b| b"\r\n".contains(b)));
        }
    }
}

/// Contents to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let contents: [&[u8]; 5] = [
        b"\x00\x03Status: 404 Not Found\r\nContent-Length: 5\r\nX: y\n\r\nbody",
        b"\x80\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03",
        b"\x81\x05\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03",
        b"\x8c\x07\x03Server: sendoff\r\nDate: now\r\n",
        b"\x06\x02\x00\x00\x00\x05hello\x80\x00\x00\x00",
    ];
    contents.map(<[u8]>::to_vec).to_vec()
}

/// Strings that contents are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\r\n\r\n",
    b"\n\n",
    b"Status: 200\r\n",
    b"Content-Length: 1\r\n",
    b"\x00\x00\x00\x01",
    b"\xff\xff\xff\xff",
    b": ",
];
