//! The tests pass the time themselves.

use super::*;

const RULES: HealthRules =
    HealthRules { fails: 2, pause: Duration::from_secs(1), slow_start: Duration::from_secs(10) };
const MOMENT: Duration = Duration::from_millis(1);

type Hosts = Choice<&'static str, &'static str>;

fn member(key: &'static str, weight: u32, rank: u16) -> Member<&'static str> {
    Member { key, weight, rank }
}

fn hosts(of: &[(&'static str, u32)], now: Instant) -> Hosts {
    let mut hosts = Choice::new(RULES);
    let members: Vec<_> = of.iter().map(|(key, weight)| member(key, *weight, 0)).collect();
    set(&mut hosts, &members, now);
    hosts
}

fn set(hosts: &mut Hosts, members: &[Member<&'static str>], now: Instant) {
    hosts.set(members, now, |key| *key, |key| HostTag::of("app", key));
}

/// Chooses a host for a request without a wish.
fn choose(hosts: &mut Hosts, tried: &[HostId], now: Instant) -> Option<(HostId, &'static str)> {
    let chosen = hosts.choose(tried, &HostWish::default(), now)?;
    assert_eq!(chosen.by, ChosenBy::Load);
    Some((chosen.id, chosen.value))
}

/// The next host, whose request ends at once.
fn brief(hosts: &mut Hosts, now: Instant) -> &'static str {
    let (id, name) = choose(hosts, &[], now).unwrap();
    hosts.judge(id, HealthEvidence::Good, now);
    hosts.end(id, now);
    name
}

/// Takes a host down.
fn fail(hosts: &mut Hosts, name: &str, now: Instant) {
    for _ in 0..RULES.fails {
        let mut tried = Vec::new();
        loop {
            let (id, chosen) = choose(hosts, &tried, now).unwrap();
            hosts.end(id, now);
            if chosen == name {
                hosts.judge(id, HealthEvidence::Bad, now);
                break;
            }
            tried.push(id);
        }
    }
}

fn count(all: &[&str], name: &str) -> usize {
    all.iter().filter(|chosen| **chosen == name).count()
}

fn down_for(hosts: &Hosts, name: &str, now: Instant) -> Option<Duration> {
    let of = |(state, _): &(HostState<_>, _)| state.member.key == name;
    hosts.states(now).into_iter().find(of).unwrap().0.down_for
}

#[test]
fn brief_requests_are_shared_as_the_weights_say() {
    let now = Instant::now();
    let mut hosts = hosts(&[("a", 3), ("b", 1), ("c", 1)], now);
    let all: Vec<_> = (0..50).map(|_| brief(&mut hosts, now)).collect();
    assert_eq!([count(&all, "a"), count(&all, "b"), count(&all, "c")], [30, 10, 10]);
    // Interleaved: no host has all of its requests in a row.
    assert!(all.windows(5).all(|some| count(some, "a") < 5), "{all:?}");
}

#[test]
fn the_least_busy_for_its_weight_is_chosen() {
    let now = Instant::now();
    let mut hosts = hosts(&[("a", 2), ("b", 1)], now);
    let held: Vec<_> = (0..30).map(|_| choose(&mut hosts, &[], now).unwrap()).collect();
    let names: Vec<_> = held.iter().map(|(_, name)| *name).collect();
    assert_eq!([count(&names, "a"), count(&names, "b")], [20, 10]);
    // One host becomes slow: the other gets the requests that end there.
    for (id, _) in held.iter().filter(|(_, name)| *name == "b") {
        hosts.end(*id, now);
    }
    let next: Vec<_> = (0..10).map(|_| choose(&mut hosts, &[], now).unwrap().1).collect();
    assert_eq!(count(&next, "b"), 10);
}

#[test]
fn a_host_that_fails_is_passed_over_and_tried_again_after_a_pause_that_doubles() {
    let mut now = Instant::now();
    let mut hosts = hosts(&[("a", 1), ("b", 1)], now);
    fail(&mut hosts, "a", now);
    let mut pause = RULES.pause;
    for _ in 0..9 {
        assert_eq!(down_for(&hosts, "a", now), Some(pause));
        assert!((0..20).all(|_| brief(&mut hosts, now + pause - MOMENT) == "b"));
        now += pause;
        // One request is the trial; the others go to the other host.
        let trial = loop {
            let (id, name) = choose(&mut hosts, &[], now).unwrap();
            if name == "a" {
                break id;
            }
            hosts.end(id, now);
        };
        assert!((0..20).all(|_| brief(&mut hosts, now + pause) == "b"));
        assert_eq!(hosts.judge(trial, HealthEvidence::Bad, now), None);
        hosts.end(trial, now);
        pause = (pause * 2).min(MAX_PAUSE);
    }
    assert_eq!(down_for(&hosts, "a", now), Some(MAX_PAUSE));
}

#[test]
fn single_failures_between_answers_do_not_count() {
    let now = Instant::now();
    let mut hosts = hosts(&[("a", 1)], now);
    for _ in 0..10 {
        let (id, _) = choose(&mut hosts, &[], now).unwrap();
        assert_eq!(hosts.judge(id, HealthEvidence::Bad, now), None);
        assert_eq!(hosts.judge(id, HealthEvidence::Good, now), None);
        hosts.end(id, now);
    }
    assert_eq!(down_for(&hosts, "a", now), None);
}

#[test]
fn a_host_that_comes_back_gets_its_share_slowly_and_nothing_for_the_time_it_was_away() {
    let mut now = Instant::now();
    let mut hosts = hosts(&[("a", 1), ("b", 1)], now);
    fail(&mut hosts, "a", now);
    (0..1000).for_each(|_| assert_eq!(brief(&mut hosts, now), "b"));
    now += RULES.pause;
    let trial = loop {
        let (id, name) = choose(&mut hosts, &[], now).unwrap();
        if name == "a" {
            break id;
        }
        hosts.end(id, now);
    };
    assert_eq!(hosts.judge(trial, HealthEvidence::Good, now), Some(HealthChange::CameBack));
    hosts.end(trial, now);
    let mut shares = Vec::new();
    for part in [0, 5, 10] {
        let at = now + RULES.slow_start * part / 10;
        let all: Vec<_> = (0..110).map(|_| brief(&mut hosts, at)).collect();
        shares.push(count(&all, "a"));
    }
    assert!(shares[0] <= 11 && (30..=45).contains(&shares[1]), "{shares:?}");
    assert!((54..=56).contains(&shares[2]), "{shares:?}");
}

#[test]
fn where_all_are_down_requests_go_to_the_first_that_is_due_and_each_host_is_tried_once() {
    let now = Instant::now();
    let mut hosts = hosts(&[("a", 1), ("b", 1)], now);
    fail(&mut hosts, "b", now);
    fail(&mut hosts, "a", now + MOMENT);
    let (first, name) = choose(&mut hosts, &[], now + MOMENT * 2).unwrap();
    assert_eq!(name, "b");
    let (second, name) = choose(&mut hosts, &[first], now + MOMENT * 2).unwrap();
    assert_eq!(name, "a");
    assert_eq!(choose(&mut hosts, &[first, second], now + MOMENT * 2), None);
    // Both are on trial: they get any further requests.
    assert!(choose(&mut hosts, &[], now + MOMENT * 2).is_some());
}

#[test]
fn a_trial_without_a_verdict_leaves_its_place_to_the_next() {
    let now = Instant::now();
    let mut hosts = hosts(&[("a", 1), ("b", 1)], now);
    fail(&mut hosts, "a", now);
    let later = now + RULES.pause;
    for _ in 0..3 {
        let trial = loop {
            let (id, name) = choose(&mut hosts, &[], later).unwrap();
            if name == "a" {
                break id;
            }
            hosts.end(id, later);
        };
        hosts.end(trial, later);
    }
    assert_eq!(down_for(&hosts, "a", later), Some(Duration::ZERO));
}

#[test]
fn hosts_that_stay_keep_what_is_known_of_them() {
    let now = Instant::now();
    let mut hosts = hosts(&[("a", 1), ("b", 1)], now);
    fail(&mut hosts, "a", now);
    let (held, _) = choose(&mut hosts, &[], now).unwrap();
    let members = [member("c", 1, 3), member("a", 5, 1), member("c", 2, 2)];
    set(&mut hosts, &members, now);
    let states = hosts.states(now);
    let members: Vec<_> = states.iter().map(|(host, _)| host.member).collect();
    assert_eq!(members, [member("c", 3, 2), member("a", 5, 1)]);
    assert_eq!((states[0].0.down_for, states[1].0.down_for), (None, Some(RULES.pause)));
    // The host of this request was removed.
    hosts.judge(held, HealthEvidence::Bad, now);
    hosts.end(held, now);
    set(&mut hosts, &[], now);
    assert_eq!(choose(&mut hosts, &[], now), None);
}

#[test]
fn hosts_of_a_higher_rank_wait_until_no_other_is_up() {
    let now = Instant::now();
    let mut hosts = Choice::new(RULES);
    let members = [member("a", 1, 1), member("b", 1, 1), member("spare", 9, 2)];
    set(&mut hosts, &members, now);
    assert!((0..20).all(|_| brief(&mut hosts, now) != "spare"));
    fail(&mut hosts, "a", now);
    assert!((0..20).all(|_| brief(&mut hosts, now) == "b"));
    fail(&mut hosts, "b", now);
    assert!((0..20).all(|_| brief(&mut hosts, now) == "spare"));
    // The trial takes one request back to the other host.
    assert_ne!(brief(&mut hosts, now + RULES.pause), "spare");
}

/// Names are resolved one after the other, so hosts may be added one by one.
#[test]
fn a_host_that_comes_later_begins_slowly_but_not_before_the_first_request() {
    let now = Instant::now();
    let mut hosts = Choice::new(RULES);
    set(&mut hosts, &[member("a", 1, 0)], now);
    set(&mut hosts, &[member("a", 1, 0), member("b", 1, 0)], now);
    let all: Vec<_> = (0..20).map(|_| brief(&mut hosts, now)).collect();
    assert_eq!(count(&all, "b"), 10);
    set(&mut hosts, &["a", "b", "c"].map(|key| member(key, 1, 0)), now);
    let all: Vec<_> = (0..42).map(|_| brief(&mut hosts, now)).collect();
    assert!(count(&all, "c") <= 3, "{all:?}");
}

/// A quick host gets more requests than others while all are busy. Afterwards it does not have to
/// wait until the others have caught up.
#[test]
fn what_a_host_had_because_it_was_quick_is_not_held_against_it() {
    let now = Instant::now();
    let mut hosts = hosts(&[("a", 1), ("b", 1)], now);
    let slow = loop {
        let (id, name) = choose(&mut hosts, &[], now).unwrap();
        if name == "b" {
            break id;
        }
        hosts.end(id, now);
    };
    assert!((0..1000).all(|_| brief(&mut hosts, now) == "a"));
    hosts.end(slow, now);
    let all: Vec<_> = (0..10).map(|_| brief(&mut hosts, now)).collect();
    assert_eq!(count(&all, "a"), 5);
}

#[test]
fn only_a_check_brings_back_a_host_whose_checks_fail() {
    let now = Instant::now();
    let mut hosts = hosts(&[("a", 1), ("b", 1)], now);
    let (id, _) = hosts.all().next().unwrap();
    assert_eq!(hosts.check(id, false, now), None);
    // A request in between is no check.
    hosts.judge(id, HealthEvidence::Good, now);
    assert_eq!(hosts.check(id, false, now), Some(HealthChange::WentDown));
    hosts.note_reason(id, "it is tired".to_owned());
    assert_eq!(hosts.check(id, false, now), None);
    hosts.judge(id, HealthEvidence::Good, now);
    let later = now + Duration::from_secs(3600);
    assert!((0..4).all(|_| brief(&mut hosts, later) == "b"));
    let (state, _) = hosts.states(later).swap_remove(0);
    assert!(state.awaits_check && state.why == "it is tired", "{state:?}");
    // It is better than no host, but the last one.
    fail(&mut hosts, "b", later);
    let first = choose(&mut hosts, &[], later).unwrap();
    assert_eq!((first.1, choose(&mut hosts, &[first.0], later).unwrap().1), ("b", "a"));
    assert_eq!(hosts.check(id, true, later), Some(HealthChange::CameBack));
    assert_eq!(down_for(&hosts, "a", later), None);
}
