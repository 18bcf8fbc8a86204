//! Applications that speak as they do to CDNs and to Varnish (docs/page-cache.md, "Plugins for
//! Varnish"): tags, `Surrogate-Control`, and requests that purge pages.

use sendoff_tests::{Request, Response, Site, wait};

use crate::{CachingServer, PAGE, is_hit, status};

/// Obeys requests from this machine.
const FROM_HERE: &str = "purge_from = ['127.0.0.1']";

fn start(lines: &str) -> CachingServer {
    CachingServer::with_lines(Site::with("page.php", PAGE), lines, "10m")
}

/// Sends a purge with these fields.
fn order(kept: &CachingServer, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    let request = Request::new(method, target);
    kept.server
        .ask(&fields.iter().fold(request, |request, (name, value)| request.header(name, value)))
}

/// Keeps a page for each of these fields, and returns their addresses.
fn keep<const N: usize>(kept: &CachingServer, fields: [&str; N]) -> [String; N] {
    fields.map(|field| {
        let target = format!("/page.php?head[]={field}");
        kept.get(&target);
        kept.get_kept(&target);
        target
    })
}

#[test]
fn pages_are_purged_by_their_tags() {
    for (tags, [method, name, value]) in [
        (["xkey:+a+b", "xkey:+b+c"], ["PURGE", "xkey-purge", "a"]),
        (["xkey:+a+b", "xkey:+b+c"], ["PURGEKEYS", "xkey-purge", "a x"]),
        (["Surrogate-Key:+a+b", "Surrogate-Key:+b"], ["PURGE", "Surrogate-Key", "a"]),
        (["Cache-Tag:+a,b", "Cache-Tag:+b"], ["PURGE", "Cache-Tag", "x,a"]),
        (
            ["Cache-Tags:+node:1+node_list", "Cache-Tags:+node:11"],
            ["BAN", "Cache-Tags", "node:1|node:2"],
        ),
        (
            ["X-Magento-Tags:+cat_c_1,cat_p_1", "X-Magento-Tags:+cat_c_11"],
            ["PURGE", "X-Magento-Tags-Pattern", "((^|,)cat_c_1(,|$))"],
        ),
        (
            ["X-Cache-Tags:+post-1,all", "X-Cache-Tags:+post-2,all"],
            ["BAN", "X-Cache-Tags", "(^|,)(post\\-1)(,|$)"],
        ),
        (["Cache-Tags:+node:1+list", "Cache-Tags:+user:1"], ["BAN", "Cache-Tags", "node:."]),
    ] {
        let kept = start(FROM_HERE);
        let [one, other] = keep(&kept, tags);
        let answer = order(&kept, method, "/", &[(name, value)]);
        assert_eq!((answer.status(), &*answer.text()), (200, "purged: 1\n"), "{name} {value}");
        assert!(!is_hit(&kept.get(&one)), "{name}: {one}");
        assert!(is_hit(&kept.get(&other)), "{name}: {other}");
    }
}

#[test]
fn pages_are_purged_by_their_addresses() {
    let site = Site::with("page.php", PAGE);
    site.write("blog/page.php", PAGE.replace("'/../", "'/../../"));
    let kept = CachingServer::with_lines(site, FROM_HERE, "10m");
    let keep = |target: &str| {
        kept.get(target);
        kept.get_kept(target);
    };
    let regex = ("X-Purge-Method", "regex");
    for (method, target, fields, are_purged) in [
        ("PURGE", "/page.php", vec![], [true, false]),
        ("PURGE", "/page.php", vec![("X-Purge-Method", "default")], [true, false]),
        ("PURGE", "/.*", vec![regex], [true, true]),
        ("PURGE", "/blog/.*", vec![regex], [false, true]),
        ("BAN", "/blog", vec![], [false, true]),
        ("BAN", "/", vec![("X-Url", "^/blog/page\\.php$"), ("X-Host", ".*")], [false, true]),
        ("BAN", "/", vec![("X-Url", "\\.(php|css)$")], [true, true]),
        ("PURGE", "/", vec![("X-Magento-Tags-Pattern", ".*")], [true, true]),
        // A dot is any character.
        ("BAN", "/", vec![("X-Url", "^/blog.page.php$")], [false, true]),
        ("BAN", "/", vec![("X-Url", "^http://example.test/page.php$")], [true, true]),
        ("BAN", "/", vec![("X-Url", "bl%6Fg")], [false, true]),
    ] {
        keep("/page.php");
        keep("/blog/page.php");
        assert_eq!(order(&kept, method, target, &fields).status(), 200);
        let purged = ["/page.php", "/blog/page.php"].map(|page| !is_hit(&kept.get(page)));
        assert_eq!(purged, are_purged, "{method} {target} {fields:?}");
    }
}

#[test]
fn a_soft_purge_leaves_the_old_page_until_there_is_a_new_one() {
    let kept = start(FROM_HERE);
    let [page] = keep(&kept, ["xkey:+a"]);
    let old = kept.get(&page).text();
    let answer = order(&kept, "PURGEKEYS", "/", &[("xkey-softpurge", "a")]);
    assert_eq!((answer.status(), &*answer.text()), (200, "purged: 1\n"));
    let stale = kept.get(&page);
    assert_eq!((stale.text(), status(&stale)), (old.clone(), "sendoff; hit; detail=stale; ttl=0"));
    wait::for_some("a new page", || Some(kept.get(&page)).filter(|new| new.text() != old));
}

/// By default no client purges pages by requests, and otherwise only clients at the named addresses.
#[test]
fn only_named_addresses_purge_pages() {
    for lines in ["", "purge_from = ['10.9.8.7', '::1']"] {
        let kept = start(lines);
        let [page] = keep(&kept, ["xkey:+a"]);
        for (method, fields) in [
            ("PURGE", vec![]),
            ("PURGE", vec![("xkey-purge", "a")]),
            ("BAN", vec![("X-Url", ".*")]),
            ("PURGEKEYS", vec![("xkey-purge", "a")]),
        ] {
            let answer = order(&kept, method, "/page.php?other", &fields);
            assert!(!answer.text().contains("purged"), "{method} {fields:?}");
            assert!(is_hit(&kept.get(&page)), "{method} {fields:?}");
        }
        // The address of a client behind a trusted proxy counts.
        let from = [("X-Forwarded-For", "10.9.8.7"), ("xkey-purge", "a")];
        let answer = order(&kept, "PURGE", "/", &from);
        assert_eq!(answer.text().contains("purged: 1"), !lines.is_empty());
    }
}

#[test]
fn surrogate_control_is_for_this_cache() {
    let kept = start("");
    for (fields, ttl) in [
        ("head[]=Surrogate-Control:+max-age=60&head[]=Cache-Control:+no-store", Some(60)),
        ("head[]=Surrogate-Control:+max-age=60%2b30,+content=%22ESI/1.0%22", Some(60)),
        ("head[]=Surrogate-Control:+max-age=60&head[]=CDN-Cache-Control:+max-age=30", Some(30)),
        ("head[]=Surrogate-Control:+max-age=60;other&head[]=Cache-Control:+max-age=20", Some(20)),
        ("head[]=Surrogate-Control:+content=%22ESI/1.0%22", Some(600)),
        ("head[]=Surrogate-Control:+no-store&head[]=Cache-Control:+max-age=20", None),
        ("head[]=Surrogate-Control:+max-age=60&head[]=Set-Cookie:+a=b", None),
        ("head[]=Surrogate-Control:+max-age=soon", None),
    ] {
        let response = kept.get(&format!("/page.php?{fields}"));
        let expected = match ttl {
            Some(ttl) => format!("sendoff; fwd=uri-miss; ttl={ttl}"),
            None => "sendoff; fwd=uri-miss".to_owned(),
        };
        assert_eq!(status(&response), expected, "{fields}");
        // Without `esi` it passes as it is.
        assert!(response.header("Surrogate-Control").is_some());
    }
}
