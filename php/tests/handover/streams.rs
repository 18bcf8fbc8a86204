//! Open files that scripts pass to the client: checks what is sent as a file, what is sent as
//! bytes, and that the bytes are right.

use std::fs::{self, OpenOptions};

use crate::common::front::{Piece, joined};
use crate::common::master::Master;
use crate::common::site::{SETTINGS, Site, bytes, content, same_as_fpm};

fn file(content: &[u8]) -> Piece {
    Piece::File(content.to_vec())
}

#[test]
fn an_open_file_leaves_as_a_file_from_where_it_stands() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = content("a", 300_000);
        site.file("a", &a);
        let open = r#"$f = fopen("$d/a", "r"); $out = fopen("php://output", "w");"#;
        for (code, start, end) in [
            ("fpassthru($f);", 0, 300_000),
            ("fread($f, 4096); fpassthru($f);", 4096, 300_000),
            ("fseek($f, 65536); fpassthru($f);", 65_536, 300_000),
            ("stream_copy_to_stream($f, $out);", 0, 300_000),
            ("stream_copy_to_stream($f, $out, 100000);", 0, 100_000),
            ("stream_copy_to_stream($f, $out, 100000, 8192);", 8192, 108_192),
            (r#"copy("$d/a", "php://output");"#, 0, 300_000),
            (r#"(new SplFileObject("$d/a"))->fpassthru();"#, 0, 300_000),
            (r#"fwrite($out, file_get_contents("$d/a"));"#, 0, 300_000),
            (r#"fputs($out, file_get_contents("$d/a"));"#, 0, 300_000),
            ("echo stream_get_contents($f);", 0, 300_000),
            ("fread($f, 1000); rewind($f); echo stream_get_contents($f);", 0, 300_000),
            ("fread($f, 1000); echo stream_get_contents($f);", 1000, 300_000),
            (r#"echo substr(file_get_contents("$d/a"), 0, 50000);"#, 0, 50_000),
            (r#"foreach (str_split(file_get_contents("$d/a"), 8192) as $s) echo $s;"#, 0, 300_000),
            ("fwrite($out, stream_get_contents($f, 100000, 7));", 7, 100_007),
            (r#"echo file_get_contents("$d/a", false, null, 7);"#, 7, 300_000),
            (r#"echo file_get_contents("$d/a", false, null, 4096, 20000);"#, 4096, 24_096),
            (r#"echo file_get_contents("$d/a", false, null, -20000);"#, 280_000, 300_000),
        ] {
            let pieces = site.ask(&format!("{open} echo 'head'; {code} echo 'tail';"));
            let expected = [bytes("head"), file(&a[start..end]), bytes("tail")];
            assert_eq!(joined(pieces), expected, "{setting}, {code}");
        }
    }
}

/// At an unaligned position PHP reads and writes 8 KiB at a time, and an incomplete rest stays in
/// the buffer.
#[test]
fn from_an_odd_position_too() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = content("a", 17 + 10 * 8192 + 5000);
        site.file("a", &a);
        let code = r#"$f = fopen("$d/a", "r"); fseek($f, 17); fpassthru($f);"#;
        assert_eq!(joined(site.ask(code)), [file(&a[17..])], "{setting}");
        let code =
            r#"stream_copy_to_stream(fopen("$d/a", "r"), fopen("php://output", "w"), 70000, 17);"#;
        assert_eq!(joined(site.ask(code)), [file(&a[17..70_017])], "{setting}");
    }
}

/// The file passes through buffers that only collect, which copy it.
#[test]
fn a_copy_is_recognised() {
    for setting in [SETTINGS[0], SETTINGS[1], "output_buffering=On"] {
        let mut site = Site::new(setting);
        let a = content("a", 300_000);
        site.file("a", &a);
        for code in [
            r#"ob_start(); echo file_get_contents("$d/a"); ob_end_flush();"#,
            r#"ob_start(); ob_start(); readfile("$d/a"); ob_end_flush();"#,
            r#"echo implode(str_split(file_get_contents("$d/a"), 1000));"#,
            r#"printf("%s", file_get_contents("$d/a"));"#,
            r#"ob_start(fn ($s) => $s); echo file_get_contents("$d/a");"#,
        ] {
            let pieces = joined(site.ask(code));
            // No earlier read tells which file it is.
            let unknown = code.contains("readfile");
            let expected = if unknown { Piece::Bytes(a.clone()) } else { file(&a) };
            assert_eq!(pieces, [expected], "{setting}, {code}");
        }
    }
}

#[test]
fn chunk_loops_leave_as_one_file() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = content("a", 1_000_000);
        site.file("a", &a);
        for code in [
            "while (!feof($f)) echo fread($f, 8192);",
            "while (!feof($f)) print fread($f, 4096);",
            "while (!feof($f)) { echo fread($f, 100000); }",
            "while (!feof($f)) fwrite($out, fread($f, 16384));",
            "while ('' !== $s = fread($f, 65536)) { fwrite($out, $s); }",
            r#"$o = new SplFileObject("$d/a"); while (!$o->eof()) echo $o->fread(8192);"#,
        ] {
            let open = r#"$f = fopen("$d/a", "r"); $out = fopen("php://output", "w");"#;
            let pieces = site.ask(&format!("{open} {code}"));
            assert_eq!(pieces, [file(&a)], "{setting}, {code}");
        }
    }
}

#[test]
fn ranges_leave_as_pieces_of_the_file() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = content("a", 200_000);
        site.file("a", &a);
        let pieces = site.ask(
            r#"$f = fopen("$d/a", "r"); foreach ([[100001, 150000], [17, 65553]] as [$from, $to]) {
            echo "--part\n"; fseek($f, $from);
            while ($from < $to) { echo $s = fread($f, min(8192, $to - $from)); $from += strlen($s); } flush(); }"#,
        );
        // In PHP's buffer, less than 4 KiB at the end of the first file waits there for the next.
        let end = if setting == SETTINGS[0] { 150_000 } else { 100_001 + 6 * 8192 };
        let between = [&a[end..150_000], b"--part\n"].concat();
        let expected = [
            bytes("--part\n"),
            file(&a[100_001..end]),
            Piece::Bytes(between),
            file(&a[17..65_553]),
        ];
        assert_eq!(joined(pieces), expected, "{setting}");
    }
}

#[test]
fn a_long_loop_leaves_while_it_runs() {
    let mut site = Site::new(SETTINGS[0]);
    let a = content("a", 5_000_000);
    site.file("a", &a);
    let pieces = site.ask(r#"$f = fopen("$d/a", "r"); while (!feof($f)) echo fread($f, 8192);"#);
    assert!(pieces.len() == 3, "{pieces:?}");
    assert!(joined(pieces) == [file(&a)]);
}

#[test]
fn what_is_not_in_the_file_leaves_as_bytes() {
    let mut site = Site::new(SETTINGS[0]);
    let a = content("a", 50_000);
    site.file("a", &a);
    site.file("small", &a[..16_000]);
    let upper = a.to_ascii_uppercase();
    let twice = |s: &[u8]| s.chunks(8192).flat_map(|chunk| [b"-", chunk].concat()).collect();
    let read = r#"$f = fopen("$d/a", "r"); while (!feof($f)) { $s = fread($f, 8192);"#;
    for (code, expected) in [
        (format!("{read} echo strtoupper($s); }}"), upper),
        (format!("{read} $s[min(8000, strlen($s))] = '#'; echo $s; }}"), {
            // The last chunk is shorter, and grows by one byte.
            let mut marked = a.clone();
            marked.chunks_mut(8192).filter(|c| c.len() > 8000).for_each(|c| c[8000] = b'#');
            marked.push(b'#');
            marked
        }),
        (format!(r#"{read} echo "-$s"; }}"#), twice(&a)),
        (r#"fpassthru(fopen("$d/small", "r"));"#.into(), a[..16_000].to_vec()),
        (r#"$f = fopen("$d/small", "r"); while (!feof($f)) echo fread($f, 8192);"#.into(), a[..16_000].to_vec()),
        (r#"fpassthru(fopen("$d/a", "r+"));"#.into(), a.clone()),
        (r#"$f = fopen("$d/a", "r+"); while (!feof($f)) echo fread($f, 8192);"#.into(), a.clone()),
        (r#"ob_start(); fpassthru(fopen("$d/a", "r")); echo strrev(ob_get_clean());"#.into(), a.iter().rev().copied().collect()),
        (r#"ob_start(fn ($s) => strtoupper($s)); copy("$d/a", "php://output");"#.into(), a.to_ascii_uppercase()),
        (
            r#"$f = fopen("$d/a", "r"); stream_filter_append($f, "string.toupper"); fpassthru($f);"#.into(),
            a.to_ascii_uppercase(),
        ),
        (
            r#"$out = fopen("php://output", "w"); stream_filter_append($out, "string.toupper");
            stream_copy_to_stream(fopen("$d/a", "r"), $out); "#.into(),
            a.to_ascii_uppercase(),
        ),
        (
            r#"$m = fopen("php://memory", "w+"); fwrite($m, "-" . file_get_contents("$d/a")); rewind($m); fpassthru($m);"#.into(),
            [b"-", &a[..]].concat(),
        ),
    ] {
        assert_eq!(site.ask(&code), [Piece::Bytes(expected)], "{code}");
    }
}

#[test]
fn a_file_without_a_name_leaves_as_a_file() {
    let mut site = Site::new(SETTINGS[1]);
    let a = content("a", 100_000);
    for way in ["fpassthru($f);", "while (!feof($f)) echo fread($f, 8192);"] {
        site.file("a", &a);
        let code = format!(r#"$f = fopen("$d/a", "r"); unlink("$d/a"); {way}"#);
        assert_eq!(site.ask(&code), [file(&a)], "{way}");
        site.file("a", &a);
        site.file("b", &content("b", 100_000));
        let code = format!(r#"$f = fopen("$d/a", "r"); rename("$d/b", "$d/a"); {way}"#);
        assert_eq!(site.ask(&code), [file(&a)], "{way}");
    }
}

#[test]
fn no_file_leaves_for_head_or_after_the_end() {
    let mut site = Site::new(SETTINGS[0]);
    site.file("a", &content("a", 50_000));
    for way in ["fpassthru($f);", "while (!feof($f)) echo fread($f, 8192);"] {
        let code = format!(r#"$f = fopen("$d/a", "r"); {way}"#);
        let request = site.script(&code).with("REQUEST_METHOD", "HEAD");
        assert_eq!(site.front.ask(&request), []);
        let code = format!(r#"echo 1; fastcgi_finish_request(); $f = fopen("$d/a", "r"); {way}"#);
        assert_eq!(site.ask(&code), [bytes("1")]);
    }
}

#[test]
fn a_front_that_takes_no_files_gets_bytes() {
    let site = Site::new(SETTINGS[0]);
    let a = content("a", 50_000);
    site.file("a", &a);
    for way in ["fpassthru($f);", "while (!feof($f)) echo fread($f, 8192);"] {
        let request = site.script(&format!(r#"$f = fopen("$d/a", "r"); {way}"#));
        let master = Master::start(&[]);
        let response = master.worker().link().ask(&request);
        assert_eq!(response.body().into_bytes(), a);
        assert!(response.handover.is_empty(), "{:?}", response.handover);
    }
}

/// The file is rewritten between two reads of a loop: the rest equals PHP's later reads.
#[test]
fn a_file_that_changes_during_a_loop() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        site.file("a", &content("a", 100_000));
        let mut now = content("b", 100_000);
        let pieces = site.ask(
            r#"$f = fopen("$d/a", "r"); $n = 0; while (!feof($f)) { echo fread($f, 8192);
            if (++$n == 5) { file_put_contents("$d/a", substr(str_repeat("b and on, ", 10000), 0, 100000)); } }"#,
        );
        now[..40_960].copy_from_slice(&content("a", 40_960));
        let body: Vec<u8> = pieces.into_iter().flat_map(Piece::into_bytes).collect();
        assert!(body == now, "{setting}");
    }
}

/// PHP writes its read-ahead bytes after a line, even if the file has changed meanwhile.
#[test]
fn what_was_read_ahead_is_not_read_again() {
    for way in [
        "fpassthru($f);",
        "echo stream_get_contents($f);",
        "rewind($f); echo stream_get_contents($f);",
    ] {
        let mut site = Site::new(SETTINGS[1]);
        let (a, b) = ([&b"line\n"[..], &content("a", 99_995)].concat(), content("b", 100_000));
        site.file("a", &a);
        site.file("b", &b);
        let code = format!(r#"$f = fopen("$d/a", "r"); fgets($f); copy("$d/b", "$d/a"); {way}"#);
        let expected =
            if way.starts_with("rewind") { b.clone() } else { [&a[5..8192], &b[8192..]].concat() };
        let body: Vec<u8> = site.ask(&code).into_iter().flat_map(Piece::into_bytes).collect();
        assert!(body == expected, "{way}");
    }
}

#[test]
fn a_file_that_somebody_writes_to() {
    let mut site = Site::new(SETTINGS[0]);
    let a = content("a", 50_000);
    site.file("a", &a);
    let _writer = OpenOptions::new().append(true).open(site.dir.path().join("a")).unwrap();
    for way in ["fpassthru($f);", "while (!feof($f)) echo fread($f, 8192);"] {
        let code = format!(r#"$f = fopen("$d/a", "r"); {way}"#);
        assert_eq!(site.ask(&code), [Piece::Bytes(a.clone())], "{way}");
    }
    assert_eq!(fs::read(site.dir.path().join("a")).unwrap(), a);
}

/// Debian's php-symfony-http-foundation.
const SYMFONY: &str = "/usr/share/php/Symfony/Component/HttpFoundation/autoload.php";

#[test]
fn symfonys_downloads_leave_as_files() {
    if !std::path::Path::new(SYMFONY).exists() {
        eprintln!("skipped: php-symfony-http-foundation is not installed");
        return;
    }
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = content("a", 1_000_000);
        for (range, start, end) in [
            ("", 0, 1_000_000),
            ("bytes=0-499999", 0, 500_000),
            ("bytes=100001-900001", 100_001, 900_002),
            ("bytes=-65536", 934_464, 1_000_000),
            // Symfony sends the first of several ranges, later versions the whole file.
            ("bytes=0-99999,200000-299999", 0, 100_000),
        ] {
            site.file("a", &a);
            let request = site
                .script(&format!(
                    r#"require "{SYMFONY}"; use Symfony\Component\HttpFoundation as Http;
                    $r = new Http\BinaryFileResponse("$d/a", 200, ["Content-Type" => "text/plain"]); $r->deleteFileAfterSend();
                    $r->prepare(Http\Request::createFromGlobals())->send();"#
                ))
                .with("HTTP_RANGE", range);
            let pieces = joined(site.front.ask(&request));
            let is_whole = range.contains(',') && pieces == [file(&a)];
            assert!(is_whole || pieces == [file(&a[start..end])], "{setting}, {range}: {pieces:?}");
            assert!(!site.dir.path().join("a").exists());
        }
    }
}

#[test]
fn a_client_that_goes_ends_the_script() {
    for way in [
        "while (true) { rewind($f); fpassthru($f); }",
        "while (true) { rewind($f); while (!feof($f)) echo fread($f, 8192); }",
    ] {
        let mut site = Site::new(SETTINGS[1]);
        site.file("a", &content("a", 200_000));
        let request = site.script(&format!(
            r#"register_shutdown_function(fn () => file_put_contents("$d/end", connection_status()));
            $f = fopen("$d/a", "r"); echo "ready"; flush(); {way}"#
        ));
        site.front.send(&request);
        site.front.until("ready");
        site.front.abort();
        site.front.rest();
        assert_eq!(fs::read_to_string(site.dir.path().join("end")).unwrap(), "1", "{way}");
        assert_eq!(site.ask("echo 'next';"), [bytes("next")]);
    }
}

#[test]
fn streams_are_left_as_php_leaves_them() {
    same_as_fpm("streams.php", 25);
}
