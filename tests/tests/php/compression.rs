//! Compression by PHP: its bytes are the unmodified runtime's, and responses that it does not
//! compress are handed over.

use sendoff_tests::{Pair, Request, Site};

const SCRIPT: &str = "<?php $case = $_GET['case'] ?? '';
header('Content-Type: text/html');
if (isset($_GET['gzhandler'])) ob_start('ob_gzhandler');
if (isset($_GET['late'])) ini_set('zlib.output_compression', '1');
if ($case === 'echo') echo file_get_contents('big.html');
if ($case === 'mixed') { echo '<html>'; echo file_get_contents('big.html'); echo '</html>'; }
if ($case === 'readfile') readfile('big.html');
if ($case === 'loop') { $f = fopen('big.html', 'r'); while (!feof($f)) echo fread($f, 8192); }
if ($case === 'small') echo 'a few words';
if ($case === 'flush') { echo 'first'; if (ob_get_level()) ob_flush(); flush(); echo file_get_contents('big.html'); }
if ($case === 'sent') { echo 'first'; while (ob_get_level()) ob_end_flush(); echo file_get_contents('big.html'); }
if ($case === 'off') { if (isset($_GET['gzhandler'])) ob_end_clean(); ini_set('zlib.output_compression', '0');
    echo file_get_contents('big.html'); }
";

const CASES: [&str; 8] = ["echo", "mixed", "readfile", "loop", "small", "flush", "sent", "off"];

const CODINGS: [Option<&str>; 5] =
    [None, Some("gzip"), Some("deflate"), Some("br, identity"), Some("gzip;q=0.5, br")];

fn site() -> Site {
    let site = Site::with("x.php", SCRIPT);
    // Text compresses well.
    let lines: String = (0..8000).map(|n| format!("<p>line {n} of {}</p>\n", n * n)).collect();
    site.write("big.html", lines);
    site
}

/// The same answer from both, for every case and coding; and whether PHP compressed it.
fn same(pair: &Pair, more: &str) {
    for case in CASES {
        for coding in CODINGS {
            let mut request = Request::get(&format!("/x.php?case={case}{more}"));
            if let Some(coding) = coding {
                request = request.header("Accept-Encoding", coding);
            }
            // The second time the file is held already.
            for _ in 0..2 {
                pair.same(&request);
            }
        }
    }
}

#[track_caller]
fn explained(pair: &Pair, target: &str, coding: &str, expected: &str) {
    let field = format!("Accept-Encoding: {coding}");
    let table = pair.ours.explain(target, &["-H", &field]).unwrap();
    assert!(table.contains(expected), "{target}, {coding}: {expected:?} is not in\n{table}");
}

#[test]
fn what_php_compresses_is_sent_as_it_is() {
    let site = site();
    for ini in [
        &["zlib.output_compression=On"][..],
        &["zlib.output_compression=8192", "output_buffering=0"],
    ] {
        let pair = Pair::start(&site, ini);
        same(&pair, "");
        for case in ["echo", "readfile"] {
            let target = format!("/x.php?case={case}");
            explained(&pair, &target, "gzip", "compressed by PHP (zlib output compression)");
            explained(&pair, &target, "identity", "file, sendfile");
        }
        explained(&pair, "/x.php?case=off", "gzip", "file recognised, sendfile");
        let gzip = Request::get("/x.php?case=echo").header("Accept-Encoding", "gzip");
        assert_eq!(pair.ours.ask(&gzip).header("content-encoding"), Some("gzip"));
    }
}

#[test]
fn so_it_is_when_the_script_decides() {
    let site = site();
    let pair = Pair::start(&site, &[]);
    for more in ["&gzhandler", "&late", "&gzhandler&late"] {
        same(&pair, more);
    }
    explained(&pair, "/x.php?case=echo&gzhandler", "gzip", "compressed by PHP (ob_gzhandler)");
    // The handler steps aside at its first chance, which is after it has collected the file.
    explained(&pair, "/x.php?case=echo&gzhandler", "identity", "file recognised, sendfile");
    explained(&pair, "/x.php?case=off&gzhandler", "gzip", "file, sendfile");
    explained(&pair, "/x.php?case=echo&late", "gzip", "compressed by PHP");
    explained(&pair, "/x.php?case=echo&late", "identity", "file, sendfile");
}
