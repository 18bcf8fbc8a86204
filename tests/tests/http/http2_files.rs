//! Files that change while clients of HTTP/2 download them, on streams that wait for a window: the
//! guarantees of `docs/snapshot.md` hold for them, too.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sendoff_tests::frames::{DATA, Frames};
use sendoff_tests::{Server, Site, pattern};

const MB: usize = 1 << 20;

/// SETTINGS_INITIAL_WINDOW_SIZE.
const WINDOW: u16 = 4;

/// A way in which a writer gives a file new contents.
type Change = fn(&Path, &[u8]) -> io::Result<()>;
const CHANGES: [(&str, Change); 3] = [
    ("overwrites", |path, new| OpenOptions::new().write(true).open(path)?.write_all_at(new, 0)),
    ("truncates", |path, new| fs::write(path, new)),
    ("renames over it", |path, new| {
        let other = path.with_extension("new");
        fs::write(&other, new)?;
        fs::rename(other, path)
    }),
];

#[test]
fn what_a_script_has_read_arrives() {
    let site = Site::with("page.php", "<?php echo 'a', file_get_contents($_GET['f']), 'z';");
    let server = Server::start(site.root(), &["--send-timeout", "600"]);
    for size in [100_000, 4 * MB, 20 * MB] {
        for (what, change) in CHANGES {
            let case = format!("{size} bytes, the writer {what}");
            let (old, new) = (pattern(1, size), pattern(2, size));
            let path = site.write("f", &old);
            // Three on one connection, stopped at different places.
            let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 0)]);
            client.allow(0, 0x7000_0000);
            let streams = [(1, 1), (3, 50_000), (5, 70_000)];
            let mut received = Vec::new();
            for (stream, first) in streams {
                client.get(stream, "/page.php?f=f");
                client.allow(stream, first);
                let mut part = Vec::new();
                while part.len() < usize::try_from(first).unwrap() {
                    let data = client.find(|frame| frame.stream == stream && frame.kind == DATA);
                    part.extend(data.unwrap().payload);
                }
                received.push(part);
            }
            let began = Instant::now();
            change(&path, &new).unwrap();
            assert!(began.elapsed() < Duration::from_secs(5), "{case}: the writer was held");
            let expected = [b"a", &old[..], b"z"].concat();
            for ((stream, _), mut part) in streams.into_iter().zip(received) {
                client.allow(stream, 0x3000_0000);
                part.extend(client.body(stream).unwrap_or_else(|code| panic!("{case}: {code:?}")));
                assert!(part == expected, "{case}: stream {stream} has wrong bytes");
            }
            assert!(server.get("/page.php?f=f").expect(200)[1..=size] == new, "{case}");
        }
    }
}

/// A static file may change, but if it ends too early, the client must see that.
#[test]
fn a_static_file_that_becomes_shorter_is_cut() {
    let site = Site::new();
    let server = Server::start(site.root(), &[]);
    let path = site.write("f", pattern(1, 4 * MB));
    let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 1000)]);
    client.allow(0, 0x7000_0000);
    client.get(1, "/f");
    client.find(|frame| frame.kind == DATA).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    client.allow(1, 0x3000_0000);
    let code = client.body(1).unwrap_err();
    assert_eq!(code, Some(sendoff_tests::frames::INTERNAL_ERROR));
    server.await_log("it became shorter while it was sent");
}
