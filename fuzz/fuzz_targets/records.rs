//! Every record of the handover, whatever stands in it: what is taken means the same when it is written again. And a framed
//! body is the same however it is cut.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sendoff_fastcgi::channel::{Announcement, Registration};
use sendoff_fastcgi::direct::Client;
use sendoff_fastcgi::frames::{Frame, Frames};
use sendoff_fastcgi::handover::{GuardMessage, Record};
use sendoff_fastcgi::record::{BeginRequest, EndRequest, HEADER_LEN, Kind};
use sendoff_http1::{CgiHead, MAX_CGI_HEAD};

fn record(kind: Kind, content: &[u8]) {
    let Ok(Some(record)) = Record::decode(kind, content) else { return };
    let mut wire = Vec::new();
    record.encode(1, &mut wire);
    assert_eq!(wire.len(), record.wire_len());
    assert_eq!(Record::decode(kind, &wire[HEADER_LEN..]), Ok(Some(record)));
    // Four bytes of SEGMENT mean nothing.
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

/// The bytes and whether they move, up to what is wrong.
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

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (kind, size, content) = input;
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
    if let Some(end) = CgiHead::find_end(content).filter(|&end| end <= MAX_CGI_HEAD)
        && let Ok(head) = CgiHead::parse(&Bytes::copy_from_slice(&content[..end]))
    {
        for (name, value) in &head.fields {
            assert!(!name.iter().chain(value.iter()).any(|b| b"\r\n".contains(b)));
        }
    }
});
