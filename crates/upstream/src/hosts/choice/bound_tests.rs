//! Requests that a cookie or consistent hashing binds to a host.
#![allow(clippy::cast_precision_loss, reason = "numbers of keys are small")]

use super::*;

/// Requests with different keys.
const KEYS: u64 = 10_000;

const RULES: HealthRules =
    HealthRules { fails: 1, pause: Duration::from_secs(1), slow_start: Duration::ZERO };

type Hosts = Choice<String, String>;

fn set(hosts: &mut Hosts, weights: &[u32], now: Instant) {
    let names = (0..).map(|number| format!("10.0.0.{number}:80"));
    let member = |(key, weight): (String, &u32)| Member { key, weight: *weight, rank: 0 };
    let members: Vec<_> = names.zip(weights).map(member).collect();
    hosts.set(&members, now, Clone::clone, |key| HostTag::of("app", key));
}

fn hosts(weights: &[u32], now: Instant) -> Hosts {
    let mut hosts = Choice::new(RULES);
    set(&mut hosts, weights, now);
    hosts
}

/// The host that gets a request with this wish, which ends at once.
fn host(hosts: &mut Hosts, wish: HostWish, now: Instant) -> String {
    let chosen = hosts.choose(&[], &wish, now).unwrap();
    hosts.judge(chosen.id, HealthEvidence::Good, now);
    hosts.end(chosen.id, now);
    chosen.value
}

fn of_key(key: u64) -> HostWish {
    // Keys are hashes; neighbours must not matter.
    HostWish { bound: None, key: Some(key) }
}

fn of_each_key(hosts: &mut Hosts, now: Instant) -> Vec<String> {
    (0..KEYS).map(|key| host(hosts, of_key(key), now)).collect()
}

fn take_down(hosts: &mut Hosts, name: &str, now: Instant) {
    let (id, _) = hosts.all().find(|(_, value)| *value == name).unwrap();
    hosts.judge(id, HealthEvidence::Bad, now);
}

#[test]
fn a_new_host_gets_its_share_of_the_keys_and_no_other_key_moves() {
    let now = Instant::now();
    for count in [2_usize, 5, 20] {
        let mut hosts = hosts(&vec![1; count], now);
        let before = of_each_key(&mut hosts, now);
        set(&mut hosts, &vec![1; count + 1], now);
        let after = of_each_key(&mut hosts, now);
        let new = format!("10.0.0.{count}:80");
        let moved: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        assert!(moved.iter().all(|(_, to)| **to == new), "a key moved between old hosts");
        let share = KEYS as f64 / (count + 1) as f64;
        let ratio = moved.len() as f64 / share;
        assert!((0.85..1.15).contains(&ratio), "{count} hosts: {} moved", moved.len());
        // When the host leaves, its keys go back to where they were.
        set(&mut hosts, &vec![1; count], now);
        assert!(of_each_key(&mut hosts, now) == before);
    }
}

#[test]
fn keys_are_shared_as_the_weights_say() {
    let now = Instant::now();
    let mut hosts = hosts(&[3, 1, 1], now);
    let all = of_each_key(&mut hosts, now);
    for (number, expected) in [(0, 0.6), (1, 0.2), (2, 0.2)] {
        let name = format!("10.0.0.{number}:80");
        let share = all.iter().filter(|chosen| **chosen == name).count() as f64 / KEYS as f64;
        assert!((share - expected).abs() < 0.02, "{name}: {share}");
    }
}

#[test]
fn keys_of_a_host_that_is_down_go_elsewhere_and_come_back() {
    let now = Instant::now();
    let mut hosts = hosts(&[1, 1, 1, 1], now);
    let before = of_each_key(&mut hosts, now);
    let lost = before[0].clone();
    take_down(&mut hosts, &lost, now);
    let meanwhile = of_each_key(&mut hosts, now);
    for (before, meanwhile) in before.iter().zip(&meanwhile) {
        assert_eq!(before != meanwhile, *before == lost);
    }
    let others = meanwhile.iter().collect::<std::collections::HashSet<_>>();
    assert_eq!(others.len(), 3, "one host got all of its keys");
    // The first request after the pause is the trial.
    assert!(of_each_key(&mut hosts, now + RULES.pause) == before);
}

#[test]
fn a_host_on_trial_gets_one_request() {
    let now = Instant::now();
    let mut hosts = hosts(&[1, 1], now);
    let home = host(&mut hosts, of_key(1), now);
    take_down(&mut hosts, &home, now);
    let later = now + RULES.pause;
    let trial = hosts.choose(&[], &of_key(1), later).unwrap();
    let second = hosts.choose(&[], &of_key(1), later).unwrap();
    assert_eq!(trial.value, home);
    assert_ne!(second.value, home);
}

#[test]
fn a_cookie_wins_over_the_key_and_over_the_load() {
    let now = Instant::now();
    let mut hosts = hosts(&[1, 1, 1], now);
    let name = "10.0.0.2:80".to_owned();
    let bound = Some(HostTag::of("app", &name));
    for key in 0..10 {
        let chosen = hosts.choose(&[], &HostWish { bound, key: Some(key) }, now).unwrap();
        assert_eq!((&chosen.value, chosen.by), (&name, ChosenBy::Cookie));
    }
    take_down(&mut hosts, &name, now);
    let wish = HostWish { bound, key: None };
    assert_ne!(host(&mut hosts, wish, now), name, "the host is down");
    let tried: Vec<_> = hosts.all().map(|(id, _)| id).collect();
    assert!(hosts.choose(&tried, &wish, now).is_none());
    set(&mut hosts, &[1, 1], now);
    assert_ne!(host(&mut hosts, wish, now), name, "the host has gone");
}

#[test]
fn a_spare_host_gets_keys_only_while_no_other_is_up() {
    let now = Instant::now();
    let mut hosts = Choice::new(RULES);
    let member = |key: &str, rank| Member { key: key.to_owned(), weight: 1, rank };
    let tag = |key: &String| HostTag::of("app", key);
    hosts.set(&[member("a", 0), member("b", 1)], now, Clone::clone, tag);
    assert!(of_each_key(&mut hosts, now).iter().all(|name| name == "a"));
    // A client that a spare host has served stays there.
    let wish = HostWish { bound: Some(HostTag::of("app", &"b")), key: None };
    assert_eq!(host(&mut hosts, wish, now), "b");
    take_down(&mut hosts, "a", now);
    assert!(of_each_key(&mut hosts, now).iter().all(|name| name == "b"));
}
