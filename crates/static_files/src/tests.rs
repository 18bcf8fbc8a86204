use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use sendoff_config::Symlinks;
use sendoff_delivery::segment::SMALL;
use tempfile::TempDir;

use super::range::ByteRange;
use super::*;

struct Site {
    /// The parent of the folders `root` and `outside`.
    folder: TempDir,
}

impl Site {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join("outside").join(name)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), contents).unwrap();
    }

    fn cache(&self) -> FileCache {
        self.cache_of(&[], CacheLimits::default())
    }

    fn cache_of(&self, follow: &[PathBuf], limits: CacheLimits) -> FileCache {
        let root = Root::open(&self.path(""), Symlinks::Inside, follow).unwrap();
        FileCache::new(root, Rc::default(), CacheShare::new(limits))
    }
}

fn file(cache: &mut FileCache, path: &str) -> Rc<Entry> {
    match cache.lookup(path.as_bytes()) {
        Ok(Found::File(entry)) => entry,
        other => panic!("{path}: {other:?}"),
    }
}

/// Looks `path` up, and checks that its entry is kept.
fn kept(cache: &mut FileCache, path: &str) -> Rc<Entry> {
    let entry = file(cache, path);
    assert!(Rc::ptr_eq(&entry, &file(cache, path)), "{path} is not kept");
    entry
}

/// The bytes that a client would get.
fn bytes(segments: &[Segment]) -> Vec<u8> {
    let mut all = Vec::new();
    for segment in segments {
        match segment {
            Segment::Bytes(bytes) => all.extend_from_slice(bytes),
            Segment::File(part) => {
                let file = fs::File::from(part.file.descriptor().unwrap().try_clone().unwrap());
                let mut bytes = vec![0; usize::try_from(part.len).unwrap()];
                file.read_exact_at(&mut bytes, part.offset).unwrap();
                all.extend_from_slice(&bytes);
            }
        }
    }
    all
}

fn contents(entry: &Entry) -> Vec<u8> {
    bytes(&[entry.segment(0, entry.size)])
}

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    fields
        .iter()
        .map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        })
        .collect()
}

/// Does the work of the router and of the file handler.
fn respond(
    cache: &mut FileCache,
    path: &[u8],
    method: &Method,
    headers: &HeaderMap,
) -> StaticResponse {
    let error = |status, field: Option<(&'static str, Bytes)>| {
        let fields = field.into_iter().map(|(name, value)| Field::new(name, value)).collect();
        StaticResponse { status, fields, body: Vec::new(), content_length: Some(0) }
    };
    if refuses(path) {
        return error(StatusCode::NOT_FOUND, None);
    }
    let status = match cache.lookup(path) {
        Ok(Found::File(entry)) => {
            let response = respond_with(&entry, method, headers);
            return response.unwrap_or_else(|refused| error(refused.status, refused.field));
        }
        Ok(Found::Directory) | Err(Refusal::NotFound) => StatusCode::NOT_FOUND,
        Err(Refusal::Forbidden(_)) => StatusCode::FORBIDDEN,
        Err(Refusal::Failed(_)) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    error(status, None)
}

fn get(cache: &mut FileCache, path: &str, fields: &[(&str, &str)]) -> StaticResponse {
    respond(cache, path.as_bytes(), &Method::GET, &headers(fields))
}

fn field<'a>(response: &'a StaticResponse, name: &str) -> Option<&'a str> {
    let field = response.fields.iter().find(|field| field.name() == name.as_bytes())?;
    Some(std::str::from_utf8(field.value()).unwrap())
}

fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap()).collect()
}

#[test]
fn whole_files_of_all_sizes() {
    let (site, limit) = (Site::new(), SMALL);
    let mut cache = site.cache();
    for size in [0, 1, limit - 1, limit, limit + 1, 3 * limit] {
        site.write("a.html", pattern(size));
        let response = get(&mut cache, "a.html", &[]);
        assert_eq!((response.status, response.content_length), (StatusCode::OK, Some(size)));
        assert!(bytes(&response.body) == pattern(size), "{size} bytes");
        assert_eq!(field(&response, "Content-Type"), Some("text/html"));
        assert_eq!(field(&response, "Accept-Ranges"), Some("bytes"));
        let head = respond(&mut cache, b"a.html", &Method::HEAD, &HeaderMap::new());
        assert_eq!((head.content_length, head.body.len()), (Some(size), 0));
    }
    site.write("odd.nothing-known", "x");
    let response = get(&mut cache, "odd.nothing-known", &[]);
    assert_eq!(field(&response, "Content-Type"), Some("application/octet-stream"));
}

#[test]
fn what_is_not_served() {
    let site = Site::new();
    site.write("a.txt", "x");
    site.write(".env", "x");
    site.write("sub/.git/config", "x");
    site.write(".well-known/b", "x");
    fs::write(site.outside("secret"), "x").unwrap();
    let mut cache = site.cache();
    let long = "x".repeat(5000);
    for (path, status) in [
        ("a.txt", 200),
        (".well-known/b", 200),
        ("sub", 404),
        ("", 404),
        ("none", 404),
        ("a.txt/", 404),
        ("a.txt/b", 404),
        ("a.txt\0", 404),
        ("a.txt\0.png", 404),
        (".env", 404),
        ("sub/.git/config", 404),
        ("../outside/secret", 404),
        (&*long, 404),
    ] {
        assert_eq!(get(&mut cache, path, &[]).status.as_u16(), status, "{path:?}");
    }
    for path in ["../outside/secret", "sub/../../outside/secret", "sub/..", "/etc/passwd"] {
        let found = cache.lookup(path.as_bytes());
        assert!(matches!(found, Err(Refusal::Forbidden(_))), "{path}: {found:?}");
    }
    let response = respond(&mut cache, b"a.txt", &Method::POST, &HeaderMap::new());
    assert_eq!(response.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(field(&response, "Allow"), Some("GET, HEAD"));
}

#[test]
fn links_may_not_leave_the_root() {
    let site = Site::new();
    site.write("sub/real", "inside");
    fs::create_dir(site.outside("shared")).unwrap();
    fs::create_dir(site.outside("shared-not")).unwrap();
    for name in ["secret", "shared/ok", "shared-not/secret"] {
        fs::write(site.outside(name), "outside").unwrap();
    }
    for (target, link) in [
        (Path::new("sub/real"), "relative"),
        (&site.path("sub/real"), "absolute"),
        (Path::new("../sub/real"), "sub/up"),
        (&site.outside("secret"), "secret"),
        (Path::new("../outside/secret"), "relative-secret"),
        (&site.outside(""), "folder"),
        (&site.outside("shared/ok"), "shared"),
        (&site.outside("shared-not/secret"), "shared-not"),
        (Path::new("loop"), "loop"),
        (Path::new("nothing"), "dangling"),
        (Path::new("/proc/self/cwd"), "magic"),
    ] {
        symlink(target, site.path(link)).unwrap();
    }
    let mut strict = site.cache();
    let mut following = site.cache_of(&[site.outside("shared")], CacheLimits::default());
    for cache in [&mut strict, &mut following] {
        for path in ["relative", "absolute", "sub/up"] {
            assert_eq!(contents(&file(cache, path)), b"inside", "{path}");
        }
        for path in ["secret", "relative-secret", "folder", "folder/secret", "shared-not", "loop"] {
            let found = cache.lookup(path.as_bytes());
            assert!(matches!(found, Err(Refusal::Forbidden(_))), "{path}: {found:?}");
            assert!(cache.kind(path.as_bytes()).is_err());
        }
        assert!(matches!(cache.lookup(b"dangling"), Err(Refusal::NotFound)));
        assert!(cache.lookup(b"magic").is_err());
    }
    assert!(strict.lookup(b"shared").is_err());
    assert_eq!(contents(&file(&mut following, "shared")), b"outside");
}

/// The link led to a file in the root when it was first looked up.
#[test]
fn a_link_that_is_turned_outwards_is_noticed() {
    let site = Site::new();
    site.write("real", "inside");
    fs::write(site.outside("secret"), "secret").unwrap();
    symlink("real", site.path("link")).unwrap();
    let mut cache = site.cache();
    kept(&mut cache, "link");
    fs::remove_file(site.path("link")).unwrap();
    symlink(site.outside("secret"), site.path("link")).unwrap();
    assert!(matches!(cache.lookup(b"link"), Err(Refusal::Forbidden(_))));
    assert!(matches!(cache.kind(b"link"), Err(Refusal::Forbidden(_))));
}

/// Opening the FIFO for reading would block the test forever.
#[test]
fn only_regular_files() {
    let site = Site::new();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, site.path("fifo"), fifo, mode, 0).unwrap();
    let _listener = UnixListener::bind(site.path("socket")).unwrap();
    symlink("/dev/null", site.path("null")).unwrap();
    let mut cache = site.cache_of(&["/dev".into()], CacheLimits::default());
    for path in ["fifo", "socket", "null"] {
        let found = cache.lookup(path.as_bytes());
        assert!(matches!(found, Err(Refusal::Forbidden(_))), "{path}: {found:?}");
    }
}

#[test]
fn kinds() {
    let site = Site::new();
    site.write("sub/a.php", "x");
    let mut cache = site.cache();
    for _ in 0..2 {
        assert_eq!(cache.kind(b"sub/a.php").unwrap(), PathKind::File);
        assert_eq!(cache.kind(b"sub").unwrap(), PathKind::Directory);
        assert_eq!(cache.kind(b"sub/").unwrap(), PathKind::Directory);
        assert_eq!(cache.kind(b"").unwrap(), PathKind::Directory);
        assert!(matches!(cache.kind(b"sub/b.php"), Err(Refusal::NotFound)));
        assert!(matches!(cache.kind(b"sub/a.php/"), Err(Refusal::NotFound)));
        assert!(matches!(cache.lookup(b"sub"), Ok(Found::Directory)));
    }
    // The cache remembers neither missing nor removed files.
    site.write("sub/b.php", "x");
    assert_eq!(cache.kind(b"sub/b.php").unwrap(), PathKind::File);
    assert_eq!(contents(&file(&mut cache, "sub/b.php")), b"x");
    fs::remove_file(site.path("sub/b.php")).unwrap();
    assert!(matches!(cache.kind(b"sub/b.php"), Err(Refusal::NotFound)));
    fs::create_dir(site.path("sub/b.php")).unwrap();
    assert_eq!(cache.kind(b"sub/b.php").unwrap(), PathKind::Directory);
}

#[test]
fn every_change_is_noticed() {
    let site = Site::new();
    for size in [100, 2 * SMALL] {
        site.write("a", pattern(size));
        let mut cache = site.cache();
        let first = kept(&mut cache, "a");
        let old = contents(&first);

        let mut changed = old.clone();
        changed[0] ^= 1;
        fs::write(site.path("new"), &changed).unwrap();
        fs::rename(site.path("new"), site.path("a")).unwrap();
        let replaced = kept(&mut cache, "a");
        assert!(contents(&replaced) == changed, "replaced");
        assert_ne!(replaced.etag, first.etag);
        assert!(contents(&first) == old, "a response that has begun keeps the file it began with");

        let in_place = fs::File::options().write(true).open(site.path("a")).unwrap();
        in_place.write_all_at(&old, 0).unwrap();
        let rewritten = kept(&mut cache, "a");
        assert!(contents(&rewritten) == old, "rewritten in place, same size");
        assert_ne!(rewritten.etag, replaced.etag);

        in_place.set_len(10).unwrap();
        assert_eq!(contents(&kept(&mut cache, "a")), old[..10], "truncated");
        in_place.write_all_at(b"more", 10).unwrap();
        assert_eq!(file(&mut cache, "a").size, 14, "grown");
        fs::remove_file(site.path("a")).unwrap();
        assert!(matches!(cache.lookup(b"a"), Err(Refusal::NotFound)));
    }
}

/// Two rewrites within one tick of the clock can leave equal time stamps and sizes.
#[test]
fn quick_rewrites_are_never_missed() {
    let site = Site::new();
    let mut cache = site.cache();
    for round in 0..300_u32 {
        let new = round.to_be_bytes();
        site.write("a", new);
        assert_eq!(contents(&file(&mut cache, "a")), new, "round {round}");
    }
}

/// A page that names thousands of files must not hold a descriptor for each.
#[test]
fn short_parts_are_read_at_once() {
    let site = Site::new();
    site.write("a", pattern(2 * SMALL));
    let entry = file(&mut site.cache(), "a");
    let part = entry.part(10, SMALL);
    assert!(
        matches!(&part, Segment::Bytes(bytes) if bytes[..] == pattern(2 * SMALL)[10..][..bytes.len()])
    );
    assert!(matches!(entry.part(10, SMALL + 1), Segment::File(_)));
    fs::File::options().write(true).open(site.path("a")).unwrap().set_len(20).unwrap();
    assert!(
        matches!(entry.part(10, SMALL), Segment::File(_)),
        "too short: found out when it is sent"
    );
}

#[test]
fn the_cache_is_bounded() {
    let site = Site::new();
    let names: Vec<String> = (0..40).map(|i| format!("f{i}")).collect();
    for name in &names {
        site.write(name, pattern(1000));
    }
    let mut cache = site.cache_of(&[], CacheLimits { entries: 16 });
    let favourite = kept(&mut cache, "f0");
    for name in &names {
        kept(&mut cache, name);
        assert!(Rc::ptr_eq(&favourite, &file(&mut cache, "f0")), "used most, dropped first");
    }
    assert!((8..=16).contains(&cache.kept()), "{}", cache.kept());
    let mut nothing = site.cache_of(&[], CacheLimits { entries: 0 });
    assert_eq!(contents(&file(&mut nothing, "f1")), pattern(1000));
    assert_eq!(nothing.kept(), 0);
}

#[test]
fn conditions() {
    let site = Site::new();
    site.write("a", "contents");
    let mut cache = site.cache();
    let entry = file(&mut cache, "a");
    let etag = std::str::from_utf8(&entry.etag).unwrap();
    let modified = std::str::from_utf8(entry.fields.last_modified.value()).unwrap();
    let list = format!("\"a,b\" ,, W/\"c\",{etag}");
    let weak = format!("W/{etag}");
    let broken = format!("junk, {etag}");
    let (before, after) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 31 Dec 2100 00:00:00 GMT");
    let table: &[(&[(&str, &str)], u16)] = &[
        (&[], 200),
        (&[("if-match", "*")], 200),
        (&[("if-match", etag)], 200),
        (&[("if-match", &list)], 200),
        (&[("if-match", &weak)], 412),
        (&[("if-match", "\"x\"")], 412),
        (&[("if-match", &broken)], 412),
        (&[("if-match", "")], 412),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", etag)], 304),
        (&[("if-none-match", &list)], 304),
        (&[("if-none-match", &weak)], 304),
        (&[("if-none-match", "\"x\"")], 200),
        (&[("if-none-match", &etag[..etag.len() - 1])], 200),
        (&[("if-none-match", etag.trim_matches('"'))], 200),
        (&[("if-modified-since", modified)], 304),
        (&[("if-modified-since", after)], 304),
        (&[("if-modified-since", before)], 200),
        (&[("if-modified-since", "junk")], 200),
        (&[("if-unmodified-since", modified)], 200),
        (&[("if-unmodified-since", after)], 200),
        (&[("if-unmodified-since", before)], 412),
        (&[("if-unmodified-since", "junk")], 200),
        // Precedence.
        (&[("if-match", etag), ("if-unmodified-since", before)], 200),
        (&[("if-none-match", "\"x\""), ("if-modified-since", after)], 200),
        (&[("if-none-match", etag), ("if-modified-since", before)], 304),
        (&[("if-match", "\"x\""), ("if-none-match", etag)], 412),
        (&[("if-match", etag), ("if-none-match", etag)], 304),
        (&[("if-none-match", etag), ("range", "bytes=0-1")], 304),
    ];
    for (fields, status) in table {
        let response = get(&mut cache, "a", fields);
        assert_eq!(response.status.as_u16(), *status, "{fields:?}");
        if *status == 304 {
            assert_eq!(field(&response, "ETag"), Some(etag));
            assert_eq!(field(&response, "Last-Modified"), Some(modified));
            assert!(response.body.is_empty() && response.content_length.is_none());
        }
    }
}

#[test]
fn if_range() {
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let validators = Validators { etag: b"\"x\"", modified };
    let later = modified + Duration::from_secs(60);
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (validator, now, holds) in [
        ("\"x\"", modified, true),
        ("W/\"x\"", later, false),
        ("\"y\"", later, false),
        (date, later, true),
        (date, modified, false),
        ("Sun, 06 Nov 1994 08:49:38 GMT", later, false),
        ("junk", later, false),
    ] {
        let headers = headers(&[("range", "bytes=0-1"), ("if-range", validator)]);
        assert_eq!(validators.range(&headers, now).is_some(), holds, "{validator}");
    }
    let repeated = headers(&[("range", "bytes=0-1"), ("range", "bytes=0-1")]);
    assert_eq!(validators.range(&repeated, later), None);
}

#[test]
fn range_syntax() {
    let one = |first, len| Ranges::One(ByteRange { first, len });
    let several = |ranges: &[(u64, u64)]| {
        Ranges::Several(ranges.iter().map(|&(first, len)| ByteRange { first, len }).collect())
    };
    let max = u64::MAX;
    for (value, size, ranges) in [
        ("bytes=0-0", 10, one(0, 1)),
        ("BYTES=0-", 10, one(0, 10)),
        ("bytes=-3", 10, one(7, 3)),
        ("bytes=-30", 10, one(0, 10)),
        ("bytes=9-99999999999999999999999", 10, one(9, 1)),
        ("bytes= 1-2 ,, ", 10, one(1, 2)),
        ("bytes=0-0,20-30", 10, one(0, 1)),
        ("bytes=0-1,-2,4-4", 10, several(&[(0, 2), (8, 2), (4, 1)])),
        ("bytes=0-18446744073709551615", max, one(0, max)),
        ("bytes=10-", 10, Ranges::Unsatisfiable),
        ("bytes=-0", 10, Ranges::Unsatisfiable),
        ("bytes=99999999999999999999999-", 10, Ranges::Unsatisfiable),
        ("bytes=0-", 0, Ranges::Whole),
        ("bytes=0-9", 0, Ranges::Whole),
        ("bytes=-1", 0, Ranges::Whole),
        ("bytes=0-0,a", 10, Ranges::Whole),
        ("bytes=2-1", 10, Ranges::Whole),
        ("bytes=20-11", 10, Ranges::Whole),
        ("bytes=", 10, Ranges::Whole),
        ("bytes=,", 10, Ranges::Whole),
        ("bytes=-", 10, Ranges::Whole),
        ("bytes=+1-2", 10, Ranges::Whole),
        ("bytes=1 - 2", 10, Ranges::Whole),
        ("bytes=1-2-3", 10, Ranges::Whole),
        ("bytes 0-1", 10, Ranges::Whole),
        ("lines=0-1", 10, Ranges::Whole),
        ("", 10, Ranges::Whole),
        ("bytes=0-,0-", 10, Ranges::Whole),
        ("bytes=0-6,3-6", 10, Ranges::Whole),
    ] {
        assert_eq!(Ranges::parse(value.as_bytes(), size), ranges, "{value} of {size}");
    }
    let many = |n: usize| format!("bytes={}", vec!["0-0"; n].join(","));
    assert!(matches!(Ranges::parse(many(16).as_bytes(), 100), Ranges::Several(_)));
    assert_eq!(Ranges::parse(many(17).as_bytes(), 100), Ranges::Whole);
}

#[test]
fn parts_of_files() {
    let site = Site::new();
    let mut cache = site.cache();
    for size in [1000, 3 * SMALL] {
        let all = pattern(size);
        site.write("a.txt", &all);
        let one = get(&mut cache, "a.txt", &[("range", "bytes=10-19")]);
        assert_eq!((one.status.as_u16(), one.content_length), (206, Some(10)));
        assert_eq!(field(&one, "Content-Range"), Some(&*format!("bytes 10-19/{size}")));
        assert_eq!(field(&one, "Content-Type"), Some("text/plain"));
        assert_eq!(bytes(&one.body), all[10..20]);

        let none = get(&mut cache, "a.txt", &[("range", "bytes=9999999-")]);
        assert_eq!((none.status.as_u16(), none.content_length), (416, Some(0)));
        assert_eq!(field(&none, "Content-Range"), Some(&*format!("bytes */{size}")));

        let several = get(&mut cache, "a.txt", &[("range", "bytes=0-1,-3")]);
        let content_type = field(&several, "Content-Type").unwrap();
        let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let part = |first: u64, last: u64| {
            let range = format!("{first}-{last}/{size}");
            format!(
                "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {range}\r\n\r\n"
            )
        };
        let tail = &all[all.len() - 3..];
        let (first, second) = (part(0, 1), part(size - 3, size - 1));
        let end = format!("\r\n--{boundary}--\r\n");
        let expected =
            [first.as_bytes(), &all[..2], second.as_bytes(), tail, end.as_bytes()].concat();
        assert_eq!(several.status, StatusCode::PARTIAL_CONTENT);
        assert_eq!(several.content_length, Some(expected.len() as u64));
        assert!(bytes(&several.body) == expected);
        assert_eq!(field(&several, "Content-Range"), None);

        let fields = headers(&[("range", "bytes=0-1")]);
        let head = respond(&mut cache, b"a.txt", &Method::HEAD, &fields);
        assert_eq!((head.status.as_u16(), head.content_length), (200, Some(size)));
    }
}

#[test]
fn odd_times_are_no_reason_to_panic() {
    let site = Site::new();
    let mut cache = site.cache();
    site.write("a", "x");
    let handle = fs::File::options().write(true).open(site.path("a")).unwrap();
    let day = Duration::from_secs(86_400);
    for time in [
        SystemTime::UNIX_EPOCH - day,
        SystemTime::UNIX_EPOCH,
        SystemTime::now() + 365 * day,
        SystemTime::UNIX_EPOCH + 365 * 430 * day,
    ] {
        handle.set_modified(time).unwrap();
        let entry = file(&mut cache, "a");
        assert!(entry.modified <= SystemTime::now());
        assert_eq!(contents(&entry), b"x");
    }
}
