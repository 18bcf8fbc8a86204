//! Bytes of a `:path`, which mean the same as in HTTP/1 (docs/responses.md).

use sendoff_tests::frames::{
    END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PROTOCOL_ERROR, RST_STREAM, frame, request,
};
use sendoff_tests::{Client, Server, Site};

/// The end of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Answered,
    Refused,
    StreamReset,
    ConnectionEnded,
}

/// The place of the byte in a target.
const PLACE: u8 = b'~';

fn over_http1(server: &Server, target: &str, byte: u8) -> Outcome {
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut client = Client::connect(server.clear_addr());
    client.send(with(head.as_bytes(), byte));
    match client.response("GET").status() {
        400 => Outcome::Refused,
        _ => Outcome::Answered,
    }
}

fn over_http2(server: &Server, target: &str, byte: u8) -> Outcome {
    let mut client = Frames::connect(server.clear_addr(), &[]);
    let block = with(&request("GET", target, &[]), byte);
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
    let first = client.find(|frame| frame.stream == 1 || frame.kind == GOAWAY);
    match first {
        // The status 400 has its own entry in the table (RFC 7541, appendix A).
        Some(frame) if frame.kind == HEADERS && frame.payload[0] == 0x8c => Outcome::Refused,
        Some(frame) if frame.kind == HEADERS => Outcome::Answered,
        Some(frame) if frame.kind == RST_STREAM => {
            assert_eq!(frame.code(), PROTOCOL_ERROR);
            client.get(3, "/small.txt");
            assert_eq!(client.body(3).unwrap(), b"small", "another stream");
            Outcome::StreamReset
        }
        _ => Outcome::ConnectionEnded,
    }
}

fn with(bytes: &[u8], byte: u8) -> Vec<u8> {
    bytes.iter().map(|&old| if old == PLACE { byte } else { old }).collect()
}

#[test]
fn only_these_bytes_of_a_path_differ_from_http_1() {
    let site = Site::new();
    site.write("small.txt", "small");
    let server = Server::start(site.root(), &[]);
    let mut wrong = Vec::new();
    for target in ["/small.txt~", "/small.txt?~"] {
        for byte in 0x21..=0xff {
            let expected = match byte {
                b'%' if target == "/small.txt~" => (Outcome::Refused, Outcome::Refused),
                b'#' => (Outcome::Refused, Outcome::Refused),
                0x7f => (Outcome::Refused, Outcome::StreamReset),
                _ => (Outcome::Answered, Outcome::Answered),
            };
            let found = (over_http1(&server, target, byte), over_http2(&server, target, byte));
            if found != expected {
                wrong.push(format!("{target} {:?}: {found:?}", char::from(byte)));
            }
        }
        let letter = target.replace('~', "é");
        let answered = over_http2(&server, &letter, PLACE);
        assert_eq!(answered, Outcome::Answered, "{letter}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
