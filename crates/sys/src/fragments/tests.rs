use std::thread;

use super::*;
use crate::process::{Forked, exit_now, fork};

const LIFE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(5);

fn fragments() -> Fragments {
    Fragments::create(*SIZES.start()).unwrap().0
}

fn make<'f>(all: &'f Fragments, key: &[u8], tags: &[&[u8]]) -> Making<'f> {
    match all.ask(key, tags, PATIENCE) {
        Some(Asked::Make(making)) => making,
        _ => panic!("it is kept already"),
    }
}

fn keep(all: &Fragments, key: &[u8], tags: &[&[u8]], bytes: &[u8]) {
    assert!(make(all, key, tags).keep(LIFE, bytes));
}

#[test]
fn a_fragment_is_made_once_and_found_by_its_key() {
    let (all, [memory, counters]) = Fragments::create(*SIZES.start()).unwrap();
    let other = Fragments::open(&memory, &counters).unwrap();
    keep(&all, b"menu", &[], b"one");
    keep(&all, b"foot", &[], b"");
    assert_eq!(other.fetch(b"menu").as_deref(), Some(&b"one"[..]));
    assert_eq!(other.fetch(b"foot").as_deref(), Some(&b""[..]));
    assert_eq!(other.fetch(b"men"), None);
    assert!(matches!(other.ask(b"menu", &[], PATIENCE), Some(Asked::Kept { .. })));
    assert!(other.ask(&[0; LONGEST_KEY + 1], &[], PATIENCE).is_none());
    assert!(!make(&all, b"large", &[]).keep(LIFE, &vec![0; LARGEST + 1]));
    assert!(!make(&all, b"none", &[]).keep(Duration::ZERO, b"x"));
}

#[test]
fn purges_count_for_fragments_that_are_being_made() {
    let all = fragments();
    keep(&all, b"a", &[b"post-1", b"x"], b"1");
    keep(&all, b"b", &[b"post-2"], b"1");
    all.purge(Some(b"post-1"));
    assert_eq!(all.fetch(b"a"), None);
    assert!(all.fetch(b"b").is_some());
    all.purge(Some(b"b"));
    assert_eq!(all.fetch(b"b"), None, "a key is a tag");
    let making = make(&all, b"a", &[b"post-1"]);
    all.purge(None);
    assert!(!making.keep(LIFE, b"old"));
    let purges = all.purges();
    assert!(all.store(b"c", &[], LIFE, b"1", purges));
    all.purge(Some(b"other"));
    assert!(!all.store(b"c", &[], LIFE, b"2", purges), "something was purged meanwhile");
}

#[test]
fn counters_may_be_for_several_memories() {
    let (_, counters) = PurgeCounters::create().unwrap();
    let of = |tag: &[u8]| {
        let shared = Some(counters.try_clone().unwrap());
        Fragments::purged_by(shared, *SIZES.start()).unwrap().0.purged_by_tag(tag)
    };
    let [one, next, other] = [of(b"a"), of(b"a"), of(b"b")];
    let keep_all =
        || [&one, &next, &other].iter().for_each(|all| keep(all, b"k", &[b"post-1"], b"x"));
    let kept = || [&one, &next, &other].map(|all| all.fetch(b"k").is_some());
    keep_all();
    one.purge(None);
    assert_eq!(kept(), [false, false, true]);
    next.purge(Some(b"post-1"));
    assert_eq!(kept(), [false; 3]);
    keep_all();
    assert_eq!(kept(), [true; 3]);
    PurgeCounters::open(&counters).unwrap().purge_all_tags();
    assert_eq!(kept(), [false; 3]);
}

#[test]
fn others_wait_or_get_the_old_one() {
    let all = fragments();
    let making = make(&all, b"k", &[]);
    let asked = all.ask(b"k", &[], PATIENCE);
    assert!(matches!(asked, Some(Asked::Make(Making { seat: None, .. }))), "its own maker");
    thread::scope(|scope| {
        let impatient = scope.spawn(|| all.ask(b"k", &[], Duration::from_millis(1)));
        let soon = impatient.join().unwrap();
        assert!(matches!(soon, Some(Asked::Make(Making { seat: None, .. }))));
        drop(soon);
        let waits = scope.spawn(|| all.ask(b"k", &[], PATIENCE));
        assert!(making.keep(LIFE, b"one"));
        drop(making);
        assert!(matches!(waits.join().unwrap(), Some(Asked::Kept { .. })));
    });
    assert!(make(&all, b"old", &[]).keep(Duration::from_secs(1), b"old"));
    while all.fetch(b"old").is_some() {
        thread::yield_now();
    }
    let again = make(&all, b"old", &[]);
    thread::scope(|scope| {
        let old = scope.spawn(|| all.ask(b"old", &[], PATIENCE)).join().unwrap();
        assert!(matches!(old, Some(Asked::Kept { bytes, .. }) if bytes == b"old"));
    });
    drop(again);
}

#[test]
fn a_permit_dies_with_its_process() {
    let all = fragments();
    let Forked::Parent(child) = fork().unwrap() else {
        let _making = make(&all, b"k", &[]);
        exit_now(0);
    };
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
    assert!(make(&all, b"k", &[]).seat.is_some());
    let Forked::Parent(child) = fork().unwrap() else {
        let _table = all.table();
        exit_now(0);
    };
    keep(&all, b"k", &[], b"1");
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
    // It may have died while it changed the table.
    let _forgotten = all.fetch(b"k");
    keep(&all, b"other", &[], b"2");
    assert_eq!(all.fetch(b"other").as_deref(), Some(&b"2"[..]));
}

#[test]
fn new_fragments_take_the_place_of_the_oldest() {
    let all = fragments();
    let large = vec![b'x'; LARGEST - 5000];
    for number in 0..50_u32 {
        keep(&all, &number.to_le_bytes(), &[], &large);
        let kept: Vec<_> = (0..=number).filter(|n| all.fetch(&n.to_le_bytes()).is_some()).collect();
        assert!(kept.len() >= 7.min(number as usize + 1) && kept.len() <= 8, "{kept:?}");
        assert_eq!(kept.last(), Some(&number));
    }
    for number in 100..20_000_u32 {
        keep(&all, &number.to_le_bytes(), &[], b"short");
    }
    assert_eq!(all.fetch(&19_999_u32.to_le_bytes()).as_deref(), Some(&b"short"[..]));
}

#[test]
fn other_memory_is_refused() {
    let (_, [memory, counters]) = Fragments::create(*SIZES.start()).unwrap();
    assert!(Fragments::open(&counters, &counters).is_err());
    assert!(Fragments::open(&memory, &memory).is_err());
    assert!(Fragments::create(1).is_err());
}
