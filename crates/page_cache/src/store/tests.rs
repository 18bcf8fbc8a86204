//! Tests of the store.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use sendoff_config::{CacheDialect, PageStore};
use sendoff_message::request::sample::request;
use tempfile::TempDir;

use super::loading::WRITTEN_BY_NOW;
use super::*;
use crate::freshness::judge;
use crate::journal::Past;
use crate::lscache::Labels;
use crate::page::facts;

const KEEPING: Keeping = Keeping {
    fresh: Some(Duration::from_secs(60)),
    stale: None,
    cookies: false,
    dialect: CacheDialect::Http,
};

struct Store {
    folder: TempDir,
    cache: Arc<PageCache>,
}

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cache = PageCache::new(&PageStore { folder: folder.path().into(), size: 0 });
        Self { folder, cache }
    }

    /// Keeps a page for a request with these fields. The page varies with the fields that
    /// `vary` names.
    fn keep(&self, key: &Key, asked: &HeaderMap, vary: &'static str, limit: u64) {
        let mut request = request(None);
        request.headers = asked.clone();
        let mut head = ResponseHead::new(StatusCode::OK, None);
        head.field("Vary", vary);
        let now = SystemTime::now();
        let times = judge(&KEEPING, &head, now).unwrap();
        let mut facts = facts(key, &request, &head, times, Labels::default(), now);
        let begun = self.cache.begun();
        let mut file = self.cache.new_body().unwrap();
        file.write_all(b"body").unwrap();
        (facts.len, facts.crc) = (4, crc32fast::hash(b"body"));
        self.cache.keep(facts, file, begun, limit).unwrap();
    }

    fn bytes(&self) -> u64 {
        let files = fs::read_dir(self.folder.path()).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }

    /// Number of keys with pages in a front that starts with the same folder.
    fn read_again(&self) -> usize {
        let config = PageStore { folder: self.folder.path().into(), size: 0 };
        let cache = PageCache::new(&config);
        cache.load(u64::MAX, cache.begun(), &Past::default()).unwrap()
    }
}

/// Notes purges.
#[derive(Debug, Default, Clone)]
struct Noted(Arc<Mutex<Vec<Purge>>>);

impl PurgeListener for Noted {
    fn note(&self, purge: &Purge) {
        self.0.lock().unwrap().push(purge.clone());
    }
}

#[test]
fn others_are_told_of_purges_of_this_server_alone() {
    let (store, noted) = (Store::new(), Noted::default());
    store.cache.join(Box::new(noted.clone()), watch::channel(true).1);
    let own = Purge::page("s", "a.test", b"/own");
    store.cache.purge(&own);
    store.cache.obey(&Purge::page("s", "a.test", b"/others"));
    assert_eq!(*noted.0.lock().unwrap(), [own]);
}

/// Others may have purged the pages that an earlier process has left.
#[tokio::test]
async fn the_folder_is_read_once_it_may_be() {
    for is_purged in [false, true] {
        let store = Store::new();
        store.keep(&key("a"), &HeaderMap::new(), "", u64::MAX);
        let config = PageStore { folder: store.folder.path().into(), size: 0 };
        let cache = PageCache::new(&config);
        let (settle, may_read) = watch::channel(false);
        cache.join(Box::new(Noted::default()), may_read);
        cache.start(u64::MAX);
        let has = || cache.find(&key("a"), &HeaderMap::new()).is_some();
        if is_purged {
            cache.obey(&Purge::Everything);
        }
        assert!(cache.is_in_use() && !has());
        settle.send_replace(true);
        cache.is_read().await;
        assert_eq!(has(), !is_purged);
    }
}

fn key(name: &str) -> Key {
    Key::of_text(name.into())
}

fn asked(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([("x-a".parse().unwrap(), HeaderValue::from_static(value))])
}

#[test]
fn a_new_page_comes_before_an_old_one_that_varies_with_less() {
    let store = Store::new();
    store.keep(&key("a"), &asked("1"), "", u64::MAX);
    store.keep(&key("a"), &asked("1"), "X-A", u64::MAX);
    let found = |value| store.cache.find(&key("a"), &asked(value)).unwrap().name();
    assert_ne!(found("1"), found("2"));
    store.keep(&key("a"), &asked("2"), "X-A", u64::MAX);
    assert_ne!(found("1"), found("2"));
}

#[test]
fn requests_wait_for_their_form_of_a_page_alone() {
    let store = Store::new();
    store.keep(&key("a"), &asked("1"), "X-A", u64::MAX);
    let Flight::Make(_two) = store.cache.fly(&key("a"), &asked("2")) else { panic!("first") };
    assert!(matches!(store.cache.fly(&key("a"), &asked("2")), Flight::Wait(_)));
    assert!(matches!(store.cache.fly(&key("a"), &asked("3")), Flight::Make(_)));
}

/// While the application is asked whether a page is still valid, another page may replace it,
/// or it may disappear.
#[test]
fn only_a_page_that_is_still_there_is_renewed() {
    let store = Store::new();
    let (key, none) = (key("a"), HeaderMap::new());
    let find = || store.cache.find(&key, &none);
    let renew = |page: &Page| {
        let said = ResponseHead::new(StatusCode::NOT_MODIFIED, None);
        store.cache.renew(page, store.cache.begun(), &KEEPING, None, &said).1
    };
    store.keep(&key, &none, "", u64::MAX);
    let old = find().unwrap();
    assert!(renew(&old), "it is there");
    store.keep(&key, &none, "", u64::MAX);
    let new = find().unwrap();
    assert!(!renew(&old), "another one has its place");
    assert_eq!(find().unwrap().facts().body, new.facts().body);
    store.cache.drop_page(&new);
    assert!(!renew(&new), "it is gone");
    assert!(find().is_none());
    assert_eq!(store.bytes(), 0);
}

/// Clients choose the length of keys, so keys count towards the limit.
#[test]
fn long_keys_count() {
    let (store, limit) = (Store::new(), 300_000);
    for number in 0..50 {
        let key = key(&format!("{number}{}", "x".repeat(20_000)));
        store.keep(&key, &HeaderMap::new(), "", limit);
    }
    assert!(store.bytes() <= limit, "{}", store.bytes());
    assert!(store.bytes() > limit / 2, "{}", store.bytes());
}

#[test]
fn what_a_front_is_writing_is_left_alone() {
    let store = Store::new();
    let (written, left) = (store.cache.new_body().unwrap(), store.folder.path().join("x.body"));
    let old = SystemTime::now() - 2 * WRITTEN_BY_NOW;
    File::create(&left).unwrap().set_modified(old).unwrap();
    written.as_file().set_modified(old).unwrap();
    assert_eq!(store.read_again(), 0);
    assert!(written.path().exists() && !left.exists());
}

#[test]
fn only_pages_are_read() {
    let store = Store::new();
    for name in ["a", "b", "c", "d"] {
        store.keep(&key(name), &HeaderMap::new(), "", u64::MAX);
    }
    assert_eq!(store.read_again(), 4);
    let path = |name: &str| store.folder.path().join(name);
    let facts = |name| {
        let page = store.cache.find(&key(name), &HeaderMap::new()).unwrap();
        (path(&page.name()), path(&page.facts().body))
    };
    let change = |name, from: &str, to: &str| {
        let (facts, _) = facts(name);
        let text = fs::read_to_string(&facts).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&facts, text.replace(from, to)).unwrap();
    };
    change("a", "\"status\":200", "\"status\":100");
    change("b", "\"len\":4", "\"len\":100000000000");
    let (_, body) = facts("b");
    File::options().write(true).open(body).unwrap().set_len(100_000_000_000).unwrap();
    let (_, body) = facts("c");
    fs::rename(&body, path("elsewhere")).unwrap();
    symlink(path("elsewhere"), &body).unwrap();
    fs::write(path(&"0".repeat(40)), "[".repeat(1_000_000)).unwrap();
    assert_eq!(store.read_again(), 1);
}
