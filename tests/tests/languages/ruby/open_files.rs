//! Bodies that are open files: the client gets what `each` yields, as from Puma.

use sendoff_tests::{Broken, Client, Request, Site, pattern};

use super::application::{Application, Puma, test_application};
use super::front;

/// `each` of an open file begins at its position; Puma sends the same bytes.
#[test]
fn an_open_file_is_sent_from_where_it_stands() {
    let site = Site::new();
    let content = pattern(4, 300_000);
    site.write("seeked", &content);
    let application = Application::start(&site, &test_application(), &[]);
    let puma = Puma::start(&site, &test_application(), |_| {});
    let server = front(&site, &application, &[]);
    for page in ["seeked", "seeked-length"] {
        for from in [0, 1, 100_000, 299_999, 300_000, 400_000] {
            let target = format!("/{page}/{from}");
            let ours = server.get(&target);
            assert!(ours.expect(200) == &content[from.min(content.len())..], "{target}");
            let theirs = match Client::connect(puma.addr()).try_ask(&Request::get(&target)) {
                // Puma 6 announces the whole file.
                Err(Broken::Cut(part)) if page == "seeked" => part.body,
                theirs => theirs.unwrap().expect(200).to_vec(),
            };
            assert!(theirs == ours.body, "{target}");
        }
    }
    let explained = server.explain("/seeked/100000", &[]).unwrap();
    assert!(explained.contains("200000  file, sendfile"), "{explained}");
}

/// The methods of languages/ruby/tests/opened.rb that make bodies.
const BODIES: [&str; 36] = [
    "plain",
    "sought",
    "at_end",
    "behind_end",
    "shared_position",
    "proxied",
    "delegated",
    "temporary",
    "temporary_at_end",
    "temporary_unlinked",
    "temporary_proxied",
    "begun",
    "begun_with_line",
    "begun_and_sought",
    "byte_pushed_back",
    "byte_pushed_before",
    "character_pushed_back",
    "transcoded",
    "transcoded_later",
    "utf16",
    "utf16_as_it_is",
    "text",
    "newlines",
    "binary_again",
    "byte_order_mark",
    "closed",
    "closed_proxied",
    "write_only",
    "process_file",
    "kernel_file",
    "own_each",
    "renamed",
    "deleted",
    "unnamed",
    "appended",
    "moved_away",
];

/// Its status and body; the body that arrived before the response was cut. Puma 6 cuts it before the
/// head, if nothing of the body was read.
fn outcome(mut client: Client, target: &str) -> Result<(u16, Vec<u8>), Vec<u8>> {
    match client.try_ask(&Request::get(target)) {
        Err(Broken::Cut(part)) => Err(part.body),
        Err(Broken::Closed) => Err(Vec::new()),
        response => {
            let response = response.unwrap();
            Ok((response.status(), response.body))
        }
    }
}

#[test]
fn an_open_file_is_sent_as_each_yields_it() {
    let site = Site::new();
    let application = Application::start(&site, &test_application(), &[]);
    let puma = Puma::start(&site, &test_application(), |_| {});
    let server = front(&site, &application, &[]);
    let mut wrong = Vec::new();
    for body in BODIES {
        // Puma 6 sends an open file without `each`: it announces the whole file, and cuts the rest.
        let theirs = outcome(Client::connect(puma.addr()), &format!("/opened-each/{body}"));
        let ours = outcome(server.connect(), &format!("/opened/{body}"));
        if ours != theirs {
            wrong.push(body);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    for body in ["plain", "sought", "proxied", "delegated", "begun_and_sought"] {
        let explained = server.explain(&format!("/opened/{body}"), &[]).unwrap();
        assert!(explained.contains("file, sendfile"), "{body}: {explained}");
    }
}
