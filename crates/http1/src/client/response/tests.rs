use super::*;
use crate::cgi_head::MAX_FIELDS;

/// The parts of the response in these pieces, in short, or the mistake in them. `closes`: the
/// connection ends behind the pieces.
fn read(is_head: bool, pieces: &[&[u8]], closes: bool) -> Result<Vec<String>, BadHead> {
    parts(ResponseDecoder::new(is_head), pieces, closes)
}

fn parts(
    mut decoder: ResponseDecoder,
    pieces: &[&[u8]],
    closes: bool,
) -> Result<Vec<String>, BadHead> {
    let mut buf = BytesMut::new();
    let (mut said, mut body) = (Vec::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buf)? {
                Reply::NeedMore => break,
                Reply::Data(data) => body.extend_from_slice(&data),
                Reply::Interim(head) => said.push(format!("interim {}", show(&head))),
                Reply::Head(head) => said.push(format!("head {}", show(&head))),
                Reply::Switch(head) => said.push(format!("switch {}", show(&head))),
                Reply::Trailers(trailers) => said.push(format!("trailers {:?}", trailers.fields())),
                Reply::End { may_stay } => {
                    said.push(format!("body {}", String::from_utf8_lossy(&body)));
                    said.push(format!("end {may_stay}"));
                }
            }
        }
    }
    if closes && decoder.closed() {
        said.push(format!("body {} to the close", String::from_utf8_lossy(&body)));
    }
    said.push(format!("left {}", String::from_utf8_lossy(&buf)));
    Ok(said)
}

fn show(head: &CgiHead) -> String {
    let fields = head.fields.iter().map(|field| {
        let (name, value) = (field.name(), field.value());
        format!(" {}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    });
    format!("{}{}", head.status.as_u16(), fields.collect::<String>())
}

fn whole(wire: &str) -> Result<Vec<String>, BadHead> {
    read(false, &[wire.as_bytes()], true)
}

#[test]
fn a_response_means_the_same_however_it_is_cut() {
    let wire = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n06\r\n world\r\n0\r\nX-Trailer: z\r\n\r\nnext";
    let expected = read(false, &[wire], false).unwrap();
    assert_eq!(
        expected,
        [
            "interim 103 Link=</a>",
            "head 200 X-A=b",
            "trailers {\"x-trailer\": \"z\"}",
            "body hello world",
            "end true",
            "left next"
        ]
    );
    for cut in 0..=wire.len() {
        assert_eq!(read(false, &[&wire[..cut], &wire[cut..]], false).unwrap(), expected, "{cut}");
    }
    let bytes: Vec<_> = wire.chunks(1).collect();
    assert_eq!(read(false, &bytes, false).unwrap(), expected);
}

#[test]
fn lines_of_heads_may_end_with_line_feeds_alone_where_this_is_wanted() {
    let lenient = || ResponseDecoder::new(false).accept(LineEnds::AlsoLf);
    for wire in [
        "HTTP/1.1 103 x\nA: b\n\nHTTP/1.1 200 OK\nX-A: b\r\nContent-Length: 3\n\r\na\nb",
        "HTTP/1.1 103 x\r\nA: b\r\n\nHTTP/1.1 200 OK\r\nX-A: b\nContent-Length: 3\n\na\nb",
    ] {
        let expected = ["interim 103 A=b", "head 200 X-A=b", "body a\nb", "end true", "left "];
        for cut in 0..=wire.len() {
            let (one, other) = wire.as_bytes().split_at(cut);
            assert_eq!(parts(lenient(), &[one, other], false).unwrap(), expected, "{cut}");
        }
        assert!(whole(wire).is_err());
    }
    let chunked = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1\na\r\n0\r\n\r\n";
    for wire in [chunked, "HTTP/1.1 200 OK\nX: a\rb\n\n", "HTTP/1.1 200 OK\nX: a\n b\n\n"] {
        assert!(parts(lenient(), &[wire.as_bytes()], true).is_err(), "{wire:?}");
    }
}

#[test]
fn bodies_end_where_the_head_says() {
    for (is_head, wire, expected) in [
        (false, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", "body abc|end true|left d"),
        (false, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "body |end true|left "),
        (true, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nHTTP", "body |end true|left HTTP"),
        (false, "HTTP/1.1 204 x\r\nContent-Length: 3\r\n\r\n", "body |end false|left "),
        (false, "HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n", "body |end true|left "),
        (true, "HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", "body |end false|left "),
        (false, "HTTP/1.1 304 x\r\nContent-Length: 3\r\n\r\n", "body |end true|left "),
        (false, "HTTP/1.1 304 x\r\nTransfer-Encoding: chunked\r\n\r\n", "body |end true|left "),
        (false, "HTTP/1.1 200 OK\r\n\r\nall of it", "body all of it to the close|left "),
        (
            false,
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\na",
            "body a|end false|left ",
        ),
        (
            false,
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, Close\r\n\r\na",
            "body a|end false|left ",
        ),
    ] {
        let said = read(is_head, &[wire.as_bytes()], true).unwrap();
        assert_eq!(said[1..].join("|"), expected, "{wire:?}");
    }
}

#[test]
fn fields_of_the_connection_stay_here() {
    let wire = "HTTP/1.1 200 OK\r\nKeep-Alive: 5\r\nConnection: X-Own\r\nx-own: a\r\nSet-Cookie: b\r\nset-cookie: c\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(whole(wire).unwrap()[0], "head 200 Set-Cookie=b set-cookie=c");
}

#[test]
fn another_protocol_takes_the_connection_over() {
    let wire =
        "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: y\r\n\r\n\x01";
    assert_eq!(whole(wire).unwrap(), ["switch 101 X=y Upgrade=websocket", "left \x01"]);
    assert!(whole("HTTP/1.1 101 x\r\n\r\n").is_err());
}

#[test]
fn what_two_readers_could_end_elsewhere_is_refused() {
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
    for fields in [
        "Content-Length: 1\r\nContent-Length: 1",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 1, 1",
        "Content-Length: +1",
        "Content-Length: -1",
        "Content-Length: ",
        "Content-Length: 0x1",
        "Content-Length: 99999999999999999999",
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 1",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding:\x0bchunked",
        "X: a\r\n b",
        "X: a\r\n\tb",
        "X : a",
        " X: a",
        "X",
        "X: a\nContent-Length: 1",
        "X: a\rb",
        "X: a\0",
    ] {
        assert!(whole(&head(fields)).is_err(), "{fields:?}");
    }
    for wire in [
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 200 O\x01K\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "<html>\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    ] {
        let said = whole(wire);
        let is_complete =
            said.as_ref().is_ok_and(|said| said.iter().any(|one| one.contains("end")));
        assert!(!is_complete, "{wire:?}: {said:?}");
    }
}

#[test]
fn heads_are_bounded() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD));
    assert!(whole(&long).is_err());
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(MAX_HEAD / 6 + 1));
    assert!(whole(&endless).is_err());
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(MAX_FIELDS + 1));
    assert!(whole(&many).is_err());
    assert!(whole(&"HTTP/1.1 102 Processing\r\n\r\n".repeat(MAX_INTERIM + 1)).is_err());
}
