//! Runs each target for a second, or `SENDOFF_FUZZ_SECONDS`. A failure prints its case;
//! `SENDOFF_FUZZ_CASE` repeats it.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use sendoff_fuzz::{
    Case, Failure, Target, convert, esi, fastcgi, htaccess, http1, http2, http3, lua, proxies,
    records, region, responses, ring, settings,
};

const USUAL_SECONDS: u64 = 1;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn holds(name: &str, target: Target) {
    let outcome = if let Ok(case) = std::env::var("SENDOFF_FUZZ_CASE") {
        let (seed, number) = case.split_once(':').expect("SENDOFF_FUZZ_CASE=SEED:NUMBER");
        target.try_case(Case { seed: seed.parse().unwrap(), number: number.parse().unwrap() })
    } else {
        let seconds = number("SENDOFF_FUZZ_SECONDS").unwrap_or(USUAL_SECONDS);
        // Different in each run.
        let seed = RandomState::new().hash_one(0);
        target
            .run(seed, Duration::from_secs(seconds))
            .map(|count| println!("{name}: {count} inputs"))
    };
    if let Err(failure) = outcome {
        let Failure { case: Case { seed, number }, input, message } = *failure;
        panic!(
            "{message}\ninput: \"{}\"\nagain: SENDOFF_FUZZ_CASE={seed}:{number} cargo test --package sendoff-fuzz {name}",
            input.escape_ascii()
        );
    }
}

#[test]
fn http1_requests() {
    holds("http1", Target { check: http1::check, seeds: http1::seeds, words: http1::WORDS });
}

#[test]
fn http2_streams() {
    holds("http2", Target { check: http2::check, seeds: http2::seeds, words: http2::WORDS });
}

#[test]
fn http3_streams() {
    holds("http3", Target { check: http3::check, seeds: http3::seeds, words: http3::WORDS });
}

#[test]
fn fastcgi_streams() {
    holds(
        "fastcgi",
        Target { check: fastcgi::check, seeds: fastcgi::seeds, words: fastcgi::WORDS },
    );
}

#[test]
fn records_of_the_handover() {
    holds(
        "records",
        Target { check: records::check, seeds: records::seeds, words: records::WORDS },
    );
}

#[test]
fn words_of_a_ring() {
    holds("ring", Target { check: ring::check, seeds: ring::seeds, words: ring::WORDS });
}

#[test]
fn region_headers() {
    holds("region", Target { check: region::check, seeds: region::seeds, words: region::WORDS });
}

#[test]
fn responses_of_upstreams() {
    holds(
        "responses",
        Target { check: responses::check, seeds: responses::seeds, words: responses::WORDS },
    );
}

#[test]
fn htaccess_files() {
    holds(
        "htaccess",
        Target { check: htaccess::check, seeds: htaccess::seeds, words: htaccess::WORDS },
    );
}

#[test]
fn settings_of_an_operator() {
    holds(
        "settings",
        Target { check: settings::check, seeds: settings::seeds, words: settings::WORDS },
    );
}

/// A target that breaks its promise is detected, and its case fails again.
#[test]
fn a_broken_promise_is_found() {
    let check = |input: &[u8]| {
        let zeros = input.iter().filter(|byte| **byte == 0).count();
        assert!(zeros < 3, "{zeros} zeros");
    };
    let target = Target { check, seeds: || vec![b"abc".to_vec(), Vec::new()], words: &[b"\0"] };
    let failure = target.run(7, Duration::from_secs(60)).unwrap_err();
    assert!(failure.message.ends_with("zeros"), "{failure:?}");
    let again = target.try_case(failure.case).unwrap_err();
    assert_eq!((again.input, again.message), (failure.input, failure.message));
}

#[test]
fn what_proxies_and_their_clients_say() {
    holds(
        "proxies",
        Target { check: proxies::check, seeds: proxies::seeds, words: proxies::WORDS },
    );
}

#[test]
fn lua_scripts() {
    holds("lua", Target { check: lua::check, seeds: lua::seeds, words: lua::WORDS });
}

#[test]
fn configurations_of_other_servers() {
    holds(
        "convert",
        Target { check: convert::check, seeds: convert::seeds, words: convert::WORDS },
    );
}

#[test]
fn pages_with_fragments() {
    holds("esi", Target { check: esi::check, seeds: esi::seeds, words: esi::WORDS });
}
