//! The same requests to a worker and to php-fpm: the same bytes come back, and the same lines reach
//! the log.

use crate::common::TempDir;
use crate::common::cases::{cases, get};
use crate::common::fpm::Fpm;
use crate::common::front::Front;
use crate::common::link::Response;
use crate::common::master::Master;

/// Settings under which both servers answer alike.
const SETTINGS: [&str; 2] = ["date.timezone=UTC", "opcache.file_update_protection=0"];

/// php-fpm begins its lines with `PHP message: `, uses other separators, and names its own setting
/// for extensions.
fn log_lines(response: &Response) -> Vec<String> {
    let log = response.log();
    log.replace("; PHP message: ", "\n")
        .replace("PHP message: ", "")
        .replace("(see security.limit_extensions)", "(only .php and .phar run)")
        .lines()
        .map(|line| line.trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn answers_are_those_of_php_fpm() {
    let fpm = Fpm::start(&SETTINGS);
    let options: Vec<_> = SETTINGS.iter().flat_map(|setting| ["--php-ini", *setting]).collect();
    let master = Master::start(&options);
    let mut worker = master.worker();
    let mut wrong = Vec::new();
    for (name, request) in cases() {
        println!("{name}");
        worker.link().send(&request);
        let Some(ours) = worker.link().response() else { panic!("{name}: the worker died") };
        let theirs = fpm.ask(&request);
        if ours.stdout != theirs.stdout {
            let (a, b) =
                (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
            wrong.push(format!("{name}: we send\n{}\nphp-fpm sends\n{}", short(&a), short(&b)));
        }
        if log_lines(&ours) != log_lines(&theirs) {
            let (a, b) = (log_lines(&ours).join("\n"), log_lines(&theirs).join("\n"));
            wrong.push(format!("{name}: we log\n{}\nphp-fpm logs\n{}", short(&a), short(&b)));
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n----\n"));
}

/// The front accepts files, and every file that a script reads is handed over.
#[test]
fn handed_over_answers_are_those_of_php_fpm() {
    let fpm = Fpm::start(&SETTINGS);
    let mut options: Vec<_> = SETTINGS.iter().flat_map(|setting| ["--php-ini", *setting]).collect();
    options.extend(["--php-ini", "sendoff.threshold=1"]);
    let master = Master::start(&options);
    let mut front = Front::new(master.worker());
    for (name, request) in cases() {
        let (ours, theirs) = (front.stdout(&request), fpm.ask(&request).stdout);
        let (a, b) = (String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
        assert!(ours == theirs, "{name}: we send\n{}\nphp-fpm sends\n{}", short(&a), short(&b));
    }
}

fn short(text: &str) -> String {
    text.chars().take(3000).collect()
}

/// Each server has its own session store, so both count from one.
#[test]
fn sessions_last_from_request_to_request() {
    let (ours, theirs) = (TempDir::new(), TempDir::new());
    let save = |dir: &TempDir| format!("session.save_path={}", dir.path().display());
    let fpm = Fpm::start(&[&save(&theirs)]);
    let master = Master::start(&["--php-ini", &save(&ours)]);
    let mut worker = master.worker();
    let request = get("session.php").with("HTTP_COOKIE", "PHPSESSID=abcdefghijklmnopqrstuvwxyz");
    for count in 1..=3 {
        let answer = worker.link().ask(&request);
        assert_eq!(answer.body(), format!("abcdefghijklmnopqrstuvwxyz {count}\n"));
        assert_eq!(answer, fpm.ask(&request));
    }
    let fresh = worker.link().ask(&get("session.php"));
    assert!(fresh.head().contains("Set-Cookie: PHPSESSID="), "{}", fresh.head());
}
