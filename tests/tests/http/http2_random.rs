//! Random sequences of frames, valid and not: the server neither crashes, nor hangs, nor grows.

use std::time::{Duration, Instant};

use sendoff_tests::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, fields, frame, request,
};
use sendoff_tests::{Request, Server, Site, pattern, processes};

/// Numbers by a linear congruential generator (Knuth's constants); the seed repeats a run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % limit
    }

    fn bytes(&mut self, most: u32) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(u32::try_from(all.len()).unwrap())).unwrap()]
    }
}

/// A frame that is mostly valid by itself, on one of a few streams.
fn random_frame(r: &mut Random, newest: &mut u32) -> Vec<u8> {
    let stream = if r.below(3) == 0 { 2 * r.below(*newest / 2 + 1) + 1 } else { *newest };
    match r.below(16) {
        0..=5 => {
            *newest += 2;
            let method = r.one_of(&["GET", "GET", "POST", "HEAD", "OPTIONS", "CONNECT", "PUT"]);
            let path =
                r.one_of(&["/in.php", "/large", "/made.php", "/small.txt", "/none", "*", "/%zz"]);
            let more: &[(&str, &str)] = match r.below(8) {
                0 => &[("content-length", "5")],
                1 => &[("expect", "100-continue")],
                2 => &[("cookie", "a"), ("cookie", "b"), ("x", " ")],
                3 => &[("connection", "x")],
                4 => &[("range", "bytes=5-1000")],
                _ => &[],
            };
            let mut block = request(method, path, more);
            if r.below(10) == 0 {
                block.extend(r.bytes(20));
            }
            let flags = r.one_of(&[
                END_HEADERS,
                END_HEADERS | END_STREAM,
                END_STREAM,
                END_HEADERS | END_STREAM,
            ]);
            frame(HEADERS, flags, *newest, &block)
        }
        6 | 7 => {
            let most = r.below(3000);
            let data = r.bytes(most);
            frame(DATA, r.one_of(&[0, END_STREAM, 8]), stream, &data)
        }
        8 => frame(RST_STREAM, 0, stream, &r.below(14).to_be_bytes()),
        9 => {
            let setting =
                [&[0][..], &[u8::try_from(r.below(8)).unwrap()], &r.below(1 << 31).to_be_bytes()];
            frame(SETTINGS, 0, 0, &setting.concat())
        }
        10 => frame(PING, 0, 0, &[7; 8]),
        11..=13 => {
            let on = r.one_of(&[0, stream]);
            frame(WINDOW_UPDATE, 0, on, &(1 + r.below(1 << 20)).to_be_bytes())
        }
        14 => match r.below(4) {
            0 => frame(PRIORITY, 0, stream, &[0, 0, 0, 1, 9]),
            1 => frame(CONTINUATION, END_HEADERS, stream, &fields(&[("y", "z")])),
            2 => frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields(&[("trailer", "z")])),
            _ => frame(GOAWAY, 0, 0, &[0; 8]),
        },
        _ => {
            let kind = u8::try_from(r.below(12)).unwrap();
            let (flags, payload) = (u8::try_from(r.below(256)).unwrap(), r.bytes(60));
            frame(kind, flags, stream * r.below(2), &payload)
        }
    }
}

fn connections(time: Duration) {
    let site = Site::with("in.php", "<?php echo strlen(file_get_contents('php://input'));");
    site.write("made.php", "<?php for ($i = 0; $i < 3000; $i++) echo str_repeat('x', 100);");
    site.write("large", pattern(1, 1 << 20));
    site.write("small.txt", "small");
    let server = Server::start(
        site.root(),
        &["--send-timeout", "2", "--body-timeout", "1", "--idle-timeout", "2"],
    );
    let seed = std::process::id().into();
    let mut random = Random(seed);
    let (began, mut round, mut settled) = (Instant::now(), 0_u32, 0);
    while began.elapsed() < time {
        let mut client = Frames::connect(server.clear_addr(), &[]);
        let mut newest = 1;
        let count = 1 + random.below(60);
        let bytes: Vec<u8> =
            (0..count).flat_map(|_| random_frame(&mut random, &mut newest)).collect();
        client.try_send(&bytes);
        if random.below(4) == 0 {
            // Reads up to the end of the connection, which must come.
            client.half_close();
            client.end();
        }
        drop(client);
        round += 1;
        if round.is_multiple_of(200) {
            let page = server.http2().ask(&Request::post("/in.php", "text/plain", "12345"));
            assert_eq!(page.text(), "5", "seed {seed}, round {round}");
            let memory = processes::private_memory(server.front());
            if round == 1000 {
                settled = memory;
            }
            let limit = settled + (32 << 20);
            assert!(round <= 1000 || memory < limit, "seed {seed}, round {round}: {memory} bytes");
        }
    }
    println!("{round} connections, seed {seed}");
    assert!(round > 10);
}

#[test]
fn for_a_few_seconds() {
    connections(Duration::from_secs(5));
}

/// For an hour, or `SENDOFF_MINUTES`.
#[test]
#[ignore = "heavy: make test-heavy"]
fn for_long() {
    let minutes = std::env::var("SENDOFF_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    let _progress = sendoff_tests::Progress::new(0, "random frames");
    connections(Duration::from_secs_f64(60.0 * minutes.unwrap_or(60.0)));
}
