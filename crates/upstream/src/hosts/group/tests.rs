use tokio::task::LocalSet;

use super::*;

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

fn hosts(of: &[&str]) -> Arc<Hosts<String>> {
    let rules = HealthRules { fails: 1, pause: Duration::from_secs(1), slow_start: Duration::ZERO };
    let hosts = Hosts::new("app", rules, Placement::FREE, |address| Arc::new(address.to_string()));
    let member = |at: &&str| Member { key: Address::Tcp((*at).to_owned()), weight: 1, rank: 0 };
    hosts.set(&of.iter().map(member).collect::<Vec<_>>());
    hosts
}

fn error(kind: UpstreamErrorKind, retry: Retry) -> UpstreamError {
    UpstreamError::new(kind, retry, "it failed")
}

#[test]
fn each_host_is_tried_once_and_is_busy_until_the_turn_ends() {
    run(async {
        let hosts = hosts(&["a:1", "b:1"]);
        let mut tried = Tried::default();
        let turns =
            [hosts.choose(&mut tried).await.unwrap(), hosts.choose(&mut tried).await.unwrap()];
        assert_ne!(turns[0].host(), turns[1].host());
        assert!(hosts.states().iter().all(|(state, _)| state.in_flight == 1));
        assert!(hosts.choose(&mut tried).await.is_err());
        drop(turns);
        assert!(hosts.states().iter().all(|(state, _)| state.in_flight == 0));
    });
}

#[test]
fn what_is_the_hosts_fault_takes_it_down_and_an_answer_brings_it_back() {
    run(async {
        let hosts = hosts(&["a:1", "b:1"]);
        let attempt = hosts.choose(&mut Tried::default()).await.unwrap();
        let down = || hosts.states().iter().filter(|(state, _)| state.down_for.is_some()).count();
        for kind in [
            UpstreamErrorKind::QueueFull,
            UpstreamErrorKind::WaitTimedOut,
            UpstreamErrorKind::Overloaded,
            UpstreamErrorKind::Server,
        ] {
            attempt.failed(&error(kind, Retry::Safe));
            assert_eq!(down(), 0, "{kind:?}");
        }
        for kind in [
            UpstreamErrorKind::ConnectTimedOut,
            UpstreamErrorKind::Unreachable,
            UpstreamErrorKind::Died,
            UpstreamErrorKind::Broken,
            UpstreamErrorKind::Silent,
        ] {
            attempt.failed(&error(kind, Retry::Unsafe));
            assert_eq!(down(), 1, "{kind:?}");
            attempt.answered();
            assert_eq!(down(), 0);
        }
    });
}

#[test]
fn a_request_goes_on_only_where_that_is_safe() {
    run(async {
        let (two, one) = (hosts(&["a:1", "b:1"]), hosts(&["a:1"]));
        let mut tried = Tried::default();
        let _turn = two.choose(&mut tried).await.unwrap();
        use UpstreamErrorKind::{Broken, Died, Overloaded, Silent, Unreachable, WaitTimedOut};
        for (kind, retry, is_idempotent, expected) in [
            (Unreachable, Retry::Safe, false, true),
            (Overloaded, Retry::Safe, false, true),
            (Overloaded, Retry::Unsafe, true, false),
            (Died, Retry::Safe, false, true),
            (Died, Retry::Unsafe, true, true),
            (Died, Retry::Unsafe, false, false),
            (Broken, Retry::Unsafe, true, false),
            (Silent, Retry::Unsafe, true, false),
            (WaitTimedOut, Retry::Safe, true, false),
        ] {
            let why = error(kind, retry);
            let goes_on = tried.may_try_another(&why, is_idempotent, &two);
            assert_eq!(goes_on, expected, "{kind:?}, {retry:?}, idempotent: {is_idempotent}");
            assert!(!tried.may_try_another(&why, is_idempotent, &one));
        }
    });
}
