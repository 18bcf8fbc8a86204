//! Kept pages with kept fragments. The server remembers how it planned a fragment; each client still
//! gets what its own requests for page and fragment would get.

use std::fs;

use sendoff_tests::{LIMIT, Request, Response, wait};

use crate::esi::{Assembling, FRAGMENT, KEPT};
use crate::is_hit;

/// Requests of each client, in turn with the others: the first plans the fragment, later ones may
/// use the plan.
const TURNS: usize = 5;

/// A page with a kept fragment, which it does without.
const PAGE: &str = "[<esi:include src='/fragment.php?name=menu&h[]=Cache-Control:+max-age=600' onerror='continue'/>]";

fn start(lines: &str) -> Assembling {
    Assembling::with(&[("index.php", &format!("{KEPT}{PAGE}"))], lines)
}

/// The page for a client with these fields, once it is kept.
fn ask(site: &Assembling, fields: &[(&str, &str)]) -> Response {
    let request =
        fields.iter().fold(Request::get("/"), |request, (name, value)| request.header(name, value));
    site.server.ask(&request)
}

/// Each client asks in turn, and gets its own text: the fragment or not.
fn each_gets_its_own(lines: &str, clients: &[(&[(&str, &str)], bool)]) {
    let site = start(lines);
    wait::for_some("a kept page", || Some(ask(&site, clients[0].0)).filter(is_hit));
    for turn in 0..TURNS {
        for (fields, sees_it) in clients {
            let text = ask(&site, fields).text();
            let place = format!("{lines}, {fields:?}, turn {turn}: {text}");
            assert_eq!(text.starts_with("[(menu run"), *sees_it, "{place}");
            assert_eq!(text == "[]", !sees_it, "{place}");
        }
    }
    assert!(site.runs("menu") <= 2, "{lines}: {} runs", site.runs("menu"));
}

const INSIDE: &[(&str, &str)] = &[("X-Forwarded-For", "10.0.0.1")];
const OUTSIDE: &[(&str, &str)] = &[("X-Forwarded-For", "192.0.2.1")];

#[test]
fn addresses_of_clients_count_for_each_fragment() {
    for lines in [
        "[[site.route]]\npath = '/fragment.php'\nallow_from = '10.0.0.0/8'\n",
        "[[site.route]]\nextension = '.php'\nquery = { name = 'menu' }\ndeny_from = '192.0.2.0/24'\n",
    ] {
        each_gets_its_own(lines, &[(INSIDE, true), (OUTSIDE, false)]);
        each_gets_its_own(lines, &[(OUTSIDE, false), (INSIDE, true)]);
    }
}

#[test]
fn fields_of_clients_count_for_each_fragment() {
    let (plain, other): (&[_], &[_]) = (&[], &[("X-Group", "b")]);
    let cookie: &[_] = &[("Cookie", "group=b")];
    for lines in [
        "[[site.route]]\npath = '/fragment.php'\nheader = { X-Group = 'b' }\ndeny = true\n",
        "[site.map.group]\nfrom = 'header:X-Group'\nvalues = { b = 'yes' }\n\
         [[site.route]]\npath = '/fragment.php'\nwhen = { group = 'yes' }\ndeny = true\n",
    ] {
        each_gets_its_own(lines, &[(plain, true), (other, false)]);
    }
    let lines =
        "[[site.route]]\npath = '/fragment.php'\nheader = { Cookie = 'group=b' }\ndeny = true\n";
    each_gets_its_own(lines, &[(plain, true), (cookie, false), (other, true)]);
}

#[test]
fn passwords_count_for_each_fragment() {
    let lines = "[[site.route]]\npath = '/fragment.php'\nauth = { users = 'users' }\n";
    let users = "ann:$apr1$x$12YdXEY0/hH4rDNkmZupO0\n";
    let page = format!("{KEPT}{PAGE}");
    let site = Assembling::with(&[("index.php", &page), ("../users", users)], lines);
    wait::for_some("a kept page", || Some(ask(&site, &[])).filter(is_hit));
    for _ in 0..TURNS {
        assert_eq!(ask(&site, &[]).text(), "[]");
        let text = ask(&site, &[("Authorization", "Basic YW5uOnNlY3JldA==")]).text();
        assert!(text.starts_with("[(menu run"), "{text}");
    }
}

#[test]
fn scripts_decide_for_each_fragment() {
    let lines = "[[site.route]]\npath = '/fragment.php'\nlua = 'guard.lua'\n";
    let page = format!("{KEPT}{PAGE}");
    let guard = "if lighty.r.req_header['X-Group'] == 'b' then return 403 end\n";
    let site = Assembling::with(&[("index.php", &page), ("../guard.lua", guard)], lines);
    wait::for_some("a kept page", || Some(ask(&site, &[])).filter(is_hit));
    for _ in 0..TURNS {
        let text = ask(&site, &[]).text();
        assert!(text.starts_with("[(menu run"), "{text}");
        assert_eq!(ask(&site, &[("X-Group", "b")]).text(), "[]");
    }
}

#[test]
fn fragments_that_vary_are_for_their_clients() {
    let markup = "[<esi:include src='/fragment.php?name=menu&h[]=Cache-Control:+max-age=600&h[]=Vary:+Cookie'/>]";
    let site = Assembling::with(&[("index.php", &format!("{KEPT}{markup}"))], "");
    for _ in 0..TURNS {
        for user in ["ann", "bob"] {
            for _ in 0..2 {
                let text = site.get("/", &format!("user={user}")).text();
                assert!(text.ends_with(&format!(" user {user})]")), "{text}");
            }
        }
    }
    assert!(site.runs("menu") <= 4, "{}", site.runs("menu"));
}

/// A fragment is purged, and the next page has a new one.
#[test]
fn purges_of_fragments_count_at_once() {
    let site = start("purge_from = ['127.0.0.1']\n");
    let kept = |site: &Assembling| {
        wait::for_some("kept parts", || {
            let (one, two) = (ask(site, &[]), ask(site, &[]));
            (is_hit(&two) && one.text() == two.text()).then(|| two.text())
        })
    };
    for _ in 0..TURNS {
        let before = kept(&site);
        let target = "/fragment.php?name=menu&h[]=Cache-Control:+max-age=600";
        assert_eq!(site.server.ask(&Request::new("PURGE", target)).status(), 200);
        assert_ne!(ask(&site, &[]).text(), before);
    }
}

/// An `.htaccess` file appears beside a fragment, and goes again.
#[test]
fn files_beside_a_fragment_count_at_once() {
    let markup = "[<esi:include src='/sub/fragment.php?name=menu&h[]=Cache-Control:+max-age=600' onerror='continue'/>]";
    let site = Assembling::with(&[("index.php", &format!("{KEPT}{markup}"))], "");
    site.site.write("sub/fragment.php", FRAGMENT.replace("'/../runs-'", "'/../../runs-'"));
    let sees_it = |site: &Assembling| ask(site, &[]).text().starts_with("[(menu run");
    assert!(wait::until(LIMIT, || sees_it(&site) && is_hit(&ask(&site, &[]))));
    for _ in 0..TURNS {
        assert!((0..TURNS).all(|_| sees_it(&site)));
        let file = site.site.write("sub/.htaccess", "Require all denied\n");
        assert!((0..TURNS).all(|_| !sees_it(&site)));
        fs::remove_file(file).unwrap();
        assert!(wait::until(LIMIT, || sees_it(&site)));
    }
    // A script that is gone is noticed within a second, as other files are.
    fs::remove_file(site.site.path("sub/fragment.php")).unwrap();
    assert!(wait::until(LIMIT, || !sees_it(&site)));
}

/// A reload gives the fragment other rules.
#[test]
fn rules_of_a_new_configuration_count_at_once() {
    let site = start("");
    wait::for_some("a kept page", || Some(ask(&site, &[])).filter(is_hit));
    assert!((0..TURNS).all(|_| ask(&site, &[]).text().starts_with("[(menu run")));
    let config = site.site.outside("sendoff.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text + "[[site.route]]\npath = '/fragment.php'\ndeny = true\n").unwrap();
    site.server.command(&["reload"]).unwrap();
    assert!((0..TURNS).all(|_| ask(&site, &[]).text() == "[]"));
}

/// The head of the assembled page is the same with a plan and without; the age counts.
#[test]
fn rules_for_a_fragments_head_count() {
    let lines = "[[site.route]]\npath = '/fragment.php'\nresponse_headers = { Cache-Control = 'max-age=60, must-revalidate', Vary = 'X-Of-Rule' }\n";
    let site = start(lines);
    let head = |response: &Response| {
        let names = ["Cache-Control", "Vary", "Set-Cookie", "Content-Length", "Age"];
        names.map(|name| response.header(name).map(str::to_owned))
    };
    let first = ask(&site, &[]);
    wait::for_some("a kept page", || Some(ask(&site, &[])).filter(is_hit));
    let control = head(&first)[0].clone().unwrap();
    assert!(control.starts_with("must-revalidate, max-age="), "{control}");
    assert_eq!(head(&first)[1].as_deref(), Some("x-of-rule"));
    let age = |control: &str| control.rsplit('=').next().unwrap().parse::<u64>().unwrap();
    let mut last = age(&control);
    let is_older = || {
        let response = ask(&site, &[]);
        let [control, rest @ ..] = head(&response);
        let control = control.unwrap();
        assert!(control.starts_with("must-revalidate, max-age="), "{control}");
        assert_eq!(rest, head(&first)[1..]);
        assert!(age(&control) <= last, "{control} after {last}");
        last = age(&control);
        last < 59
    };
    assert!(wait::until(LIMIT, is_older));
}
