//! Responses that end before they are complete, as a client may not notice: they are not kept.

use sendoff_tests::{Fpm, Site};

use crate::{Kept, is_hit, status};

/// Sends the head and a part of the page, and does what `end` says. The part is longer than PHP's output buffer.
const ENDS: &str = "<?php
echo str_repeat('x', 70000);
flush();
switch ($_GET['end'] ?? '') {
    case 'fatal': does_not_exist();
    case 'exception': throw new Exception('late');
    case 'memory': ini_set('memory_limit', '8M'); str_repeat('y', 1 << 24);
    case 'exit': exit(3);
    case 'killed': posix_kill(getmypid(), 9);
    case 'finished': echo 'end'; function_exists('fastcgi_finish_request') && fastcgi_finish_request(); does_not_exist();
    default: echo 'end';
}";

/// Asks twice. Neither answer is kept.
fn is_not_kept(kept: &Kept, target: &str) {
    for _ in 0..2 {
        let mut client = kept.server.connect();
        // Whether the client notices depends on the protocol of the application.
        let answer = client.try_ask(&sendoff_tests::Request::get(target));
        if let Ok(answer) = answer {
            assert!(!is_hit(&answer), "{target}: {}", status(&answer));
        }
    }
    assert_eq!(kept.bodies().len(), 0, "{target}");
}

#[test]
fn a_script_that_fails_after_its_first_bytes_is_not_kept() {
    let kept = Kept::with(Site::with("ends.php", ENDS), "10m");
    for end in ["fatal", "exception", "memory", "exit", "killed"] {
        is_not_kept(&kept, &format!("/ends.php?end={end}"));
    }
    for target in ["/ends.php", "/ends.php?end=finished"] {
        kept.get(target);
        let page = kept.get_kept(target);
        assert!(page.text().ends_with("xend"), "{target}");
    }
}

/// php-fpm ends its responses with status 0 whatever the script has done, but it logs why the script has ended.
#[test]
fn a_script_of_php_fpm_that_fails_is_not_kept() {
    let site = Site::with("ends.php", ENDS);
    let fpm = Fpm::start_with(site.root(), "", &["log_errors=1", "error_log="]);
    let lines = format!("fastcgi = {{ '.php' = '{}' }}", fpm.address());
    let kept = Kept::with_lines(site, &lines, "10m");
    for end in ["fatal", "exception", "memory", "killed"] {
        is_not_kept(&kept, &format!("/ends.php?end={end}"));
    }
    kept.get("/ends.php");
    assert!(kept.get_kept("/ends.php").text().ends_with("xend"));
}
