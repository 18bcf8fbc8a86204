//! Files found inside long output.

use crate::common::front::{Piece, joined};
use crate::common::site::{SETTINGS, Site, bytes};

/// Similar to `content`, but no part equals another.
fn lines(seed: &str, len: usize) -> Vec<u8> {
    (0..).flat_map(|n| format!("{seed} {n}\n").into_bytes()).take(len).collect()
}

fn file(content: &[u8]) -> Piece {
    Piece::File(content.to_vec())
}

#[test]
fn files_between_other_text_leave_as_files() {
    for setting in [SETTINGS[0], SETTINGS[1], "output_buffering=On"] {
        let mut site = Site::new(setting);
        let (a, b) = (lines("a", 100_000), lines("b", 70_001));
        site.file("a", &a);
        site.file("b", &b);
        let framed = [bytes("<head>"), file(&a), bytes("<foot>")];
        for code in [
            "echo '<head>' . $a . '<foot>';",
            r#"echo "<head>$a<foot>";"#,
            r#"echo sprintf("<head>%s<foot>", $a);"#,
            r#"echo str_replace("{body}", $a, "<head>{body}<foot>");"#,
            "ob_start(); echo '<head>', $a, '<foot>'; ob_end_flush();",
            "ob_start(fn ($s) => \"<head>$s<foot>\"); echo $a; ob_end_flush();",
            "$s = '<head>'; $s .= $a; $s .= '<foot>'; echo $s;",
        ] {
            let code = format!(r#"$a = file_get_contents("$d/a"); {code}"#);
            assert_eq!(joined(site.ask(&code)), framed, "{setting}, {code}");
        }
        let pieces = site.ask(
            r#"$a = file_get_contents("$d/a"); $b = file_get_contents("$d/b"); echo "<$b|$a|$b>";"#,
        );
        let expected =
            [bytes("<"), file(&b), bytes("|"), file(&a), bytes("|"), file(&b), bytes(">")];
        assert_eq!(joined(pieces), expected, "{setting}");
    }
}

#[test]
fn parts_leave_as_files() {
    for setting in SETTINGS {
        let mut site = Site::new(setting);
        let a = lines("a", 300_000);
        site.file("a", &a);
        for (code, start, end) in [
            ("echo 'head'; echo substr($a, 1000, -1000); echo 'tail';", 1000, 299_000),
            ("echo 'head'; echo substr($a, 200001); echo 'tail';", 200_001, 300_000),
            (
                "echo 'head'; fwrite(fopen('php://output', 'w'), substr($a, 100, 70000)); echo 'tail';",
                100,
                70_100,
            ),
        ] {
            let code = format!(r#"$a = file_get_contents("$d/a"); {code}"#);
            // php://output passes PHP's buffer, so the bytes before the part are joined there.
            if code.contains("fwrite") && setting == SETTINGS[1] {
                let body: Vec<u8> =
                    site.ask(&code).into_iter().flat_map(Piece::into_bytes).collect();
                assert!(body == [b"head", &a[start..end], b"tail"].concat());
                continue;
            }
            let expected = [bytes("head"), file(&a[start..end]), bytes("tail")];
            assert_eq!(joined(site.ask(&code)), expected, "{setting}, {code}");
        }
    }
}

#[test]
fn what_is_not_the_files_leaves_as_bytes() {
    let mut site = Site::new(SETTINGS[1]);
    let a = lines("a", 200_000);
    site.file("a", &a);
    let changed = |at: usize| {
        let mut changed = a.clone();
        changed[at] = b'#';
        changed
    };
    let whole = |bytes: Vec<u8>| vec![Piece::Bytes(bytes)];
    for (code, expected) in [
        // The match ends with the last step before the difference.
        ("$a[100000] = '#'; echo $a;", {
            let all = changed(100_000);
            vec![file(&all[..98_304]), Piece::Bytes(all[98_304..].to_vec())]
        }),
        ("$a[10000] = '#'; echo $a;", whole(changed(10_000))),
        ("echo strtoupper($a);", whole(a.to_ascii_uppercase())),
        (
            "echo strtoupper($a), strtolower($a);",
            whole([a.to_ascii_uppercase(), a.clone()].concat()),
        ),
        ("echo substr($a, 100, 60000);", whole(a[100..60_100].to_vec())),
        ("echo str_repeat(substr($a, 0, 64), 2000);", whole(a[..64].repeat(2000))),
        ("echo str_repeat(substr($a, 500, 64), 2000);", whole(a[500..564].repeat(2000))),
        (
            r#"$s = "-$a"; file_put_contents("$d/a", "new"); echo $s;"#,
            whole([b"-", &a[..]].concat()),
        ),
    ] {
        let code = format!(r#"$a = file_get_contents("$d/a"); {code}"#);
        let pieces = joined(site.ask(&code));
        // strtolower() gives the contents of the file again.
        if code.contains("strtolower") {
            assert_eq!(pieces, [Piece::Bytes(a.to_ascii_uppercase()), file(&a)]);
            continue;
        }
        assert!(pieces == expected, "{code}: {pieces:?}");
    }
}

/// Output is compared only with files of the same request.
#[test]
fn the_next_request_knows_nothing_of_them() {
    let mut site = Site::new(SETTINGS[1]);
    let a = lines("a", 200_000);
    site.file("a", &a);
    assert_eq!(
        joined(site.ask(r#"echo "-" . file_get_contents("$d/a");"#)),
        [bytes("-"), file(&a)]
    );
    let code = r#"ob_start(); fpassthru(fopen("$d/a", "r")); echo "-" . ob_get_clean();"#;
    assert_eq!(site.ask(code), [Piece::Bytes([b"-", &a[..]].concat())]);
}

/// After many searches without a match, output is rarely searched; the bytes are the same in any
/// case.
#[test]
fn searching_in_vain_ends() {
    let mut site = Site::new(SETTINGS[1]);
    let a = lines("a", 200_000);
    site.file("a", &a);
    for _ in 0..100 {
        let code = r#"echo strtoupper(file_get_contents("$d/a"));"#;
        assert_eq!(site.ask(code), [Piece::Bytes(a.to_ascii_uppercase())]);
    }
    let mut framed = || site.ask(r#"echo "-" . file_get_contents("$d/a");"#);
    let all: Vec<_> = (0..40).map(|_| framed()).collect();
    let expected = [b"-", &a[..]].concat();
    for pieces in &all {
        let body: Vec<u8> = pieces.iter().cloned().flat_map(Piece::into_bytes).collect();
        assert!(body == expected);
    }
    // One search in 32 is made and finds the file; after that every output is searched.
    assert_eq!(all[0].len(), 1);
    assert_eq!(all[39].len(), 2);
}
