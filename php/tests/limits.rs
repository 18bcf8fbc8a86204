//! The time limits of scripts: each request of a series ends in a worker as it does in php-fpm.
#![allow(clippy::unwrap_used, reason = "a panic is a test's report")]

mod common;

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;

use common::TempDir;
use common::cases::get;
use common::fpm::Fpm;
use common::link::{Request, Response};
use common::master::Master;

/// Held by the test that runs: its two scripts keep two processors busy.
static ONE_TEST: Mutex<()> = Mutex::new(());

const REACHED: &str = "Maximum execution time of ";

/// The messages of time limits in a log, each up to its end.
fn limits(log: &str) -> Vec<String> {
    let message = |rest: &str| rest.split(" in ").next().unwrap().to_owned();
    log.split(REACHED).skip(1).map(message).collect()
}

/// Sends the requests one after the other to one worker and to one process of php-fpm. Returns the
/// messages of reached limits.
fn same_as_fpm(settings: &[&str], requests: &[Request]) -> Vec<Vec<String>> {
    let _one_test = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let settings = [settings, &["ffi.enable=1"]].concat();
    let fpm = Fpm::start(&settings);
    let options: Vec<_> = settings.into_iter().flat_map(|setting| ["--php-ini", setting]).collect();
    let master = Master::start(&options);
    let ask_fpm = || requests.iter().map(|request| fpm.ask(request)).collect::<Vec<_>>();
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(ask_fpm);
        let mut worker = master.worker();
        let ask = |request| worker.link().ask(request);
        (requests.iter().map(ask).collect::<Vec<Response>>(), theirs.join().unwrap())
    });
    for ((ours, theirs), request) in ours.iter().zip(&theirs).zip(requests) {
        let query = &request.params[0].1;
        assert_eq!(
            String::from_utf8_lossy(&ours.stdout),
            String::from_utf8_lossy(&theirs.stdout),
            "{query}"
        );
        assert_eq!(limits(&ours.log()), limits(&theirs.log()), "{query}");
    }
    ours.iter().map(|response| limits(&response.log())).collect()
}

fn ask(what: &str) -> Request {
    get("limits.php").query(&format!("what={what}"))
}

const ONE_SECOND: &[&str] = &["max_execution_time=1", "hard_timeout=1"];

#[test]
fn a_limit_belongs_to_one_request() {
    let series = ["short", "most", "short", "most", "over", "most", "short", "over", "short"];
    let reached = same_as_fpm(ONE_SECOND, &series.map(ask));
    let over: Vec<_> = reached.iter().map(|messages| !messages.is_empty()).collect();
    assert_eq!(over, series.map(|what| what == "over"));
    assert_eq!(reached[4], ["1 second exceeded"]);
}

#[test]
fn scripts_change_their_limit() {
    let series = ["short", "unlimited", "most", "longer", "again", "setting"];
    let reached = same_as_fpm(ONE_SECOND, &series.map(ask));
    assert!(reached.iter().all(Vec::is_empty), "{reached:?}");
}

#[test]
fn shutdown_functions_get_their_time() {
    let series = ["shutdown", "slow-shutdown", "most", "shutdown-with-time", "most"];
    let reached = same_as_fpm(ONE_SECOND, &series.map(ask));
    assert_eq!(reached[0], ["1 second exceeded"]);
    assert_eq!(reached[1].len(), 2, "{reached:?}");
    assert_eq!(reached[4], [""; 0]);
}

/// The timer of a short request stays armed, and must not end what follows it.
#[test]
fn no_limit_is_in_force_after_a_request() {
    let reached = same_as_fpm(ONE_SECOND, &["after-shutdown", "sleep", "most"].map(ask));
    assert!(reached.iter().all(Vec::is_empty), "{reached:?}");
}

/// PHP does not disarm the timer for reading the request if scripts have no limit.
#[test]
fn the_limit_of_input_is_in_force_without_another() {
    let settings = ["max_execution_time=0", "max_input_time=1"];
    let reached = same_as_fpm(&settings, &["most", "over", "most"].map(ask));
    assert_eq!(reached[1], ["0 seconds exceeded"]);
}

#[test]
fn a_limit_for_scripts_may_be_longer_than_for_input() {
    let settings = ["max_execution_time=2", "max_input_time=1"];
    let reached = same_as_fpm(&settings, &["beyond", "short", "beyond"].map(ask));
    assert!(reached.iter().all(Vec::is_empty), "{reached:?}");
}

#[test]
fn folders_have_limits_of_their_own() {
    let dir = TempDir::new();
    let code = fs::read(common::script("limits.php")).unwrap();
    let page = |folder: &str| {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
        fs::write(dir.path().join(folder).join("limits.php"), &code).unwrap();
        Request::new(&dir.file(&format!("{folder}/limits.php")))
    };
    let (two, usual) = (page("two"), page("usual"));
    fs::write(dir.path().join("two/.user.ini"), "max_execution_time = 2\n").unwrap();
    let beyond = two.query("what=beyond");
    let requests =
        [usual.clone().query("what=short"), beyond.clone(), usual.query("what=over"), beyond];
    let reached = same_as_fpm(ONE_SECOND, &requests);
    let over: Vec<_> = reached.iter().map(Vec::len).collect();
    assert_eq!(over, [0, 0, 1, 0]);
}

/// A call that PHP cannot interrupt ends the process, with a message in the log.
#[test]
fn a_call_that_goes_on_ends_the_process() {
    let master = Master::start_with(
        &["--php-ini", "max_execution_time=1", "--php-ini", "hard_timeout=1"],
        std::process::Stdio::piped(),
    );
    let mut worker = master.worker();
    worker.link().ask(&ask("short"));
    worker.link().send(&ask("internal"));
    assert!(worker.link().response().is_none());
    master.worker();
    let log = master.end();
    assert!(log.contains("Maximum execution time of 1+1 seconds exceeded (terminated)"), "{log}");
}
