//! Random Caddyfiles: Sendoff sends what Caddy sends, and never what Caddy refuses.

use sendoff_tests::Request;

use crate::original::Original;
use crate::random::Random;

/// The number of groups, each with directives of its own, in one Caddyfile: starting the servers
/// takes longer than asking them.
const GROUPS: usize = 14;
/// The number of Caddyfiles, unless `SEEDS` has another one. Each takes about a second.
const CONFIGURATIONS: u64 = 4;
/// The deepest nesting of blocks.
const DEPTH: usize = 3;
/// The parts of a group, which have files.
const PARTS: [&str; 2] = ["a", "b"];

/// Matchers with names. `GROUP` is the folder of the group.
const NAMED: &str = "@css path *.css
@get method GET
@key header X-Key good
@none header !X-Key
@not not path GROUP/a/* *.css
@regexp path_regexp /a/[^/]+\\.txt$
@lan remote_ip 10.0.0.0/8
@away not remote_ip 127.0.0.0/8
@here remote_ip 127.0.0.1 ::1
@query query k=x
@host host other.test
@two {
path GROUP/a/* GROUP/b/*
not path *.txt
}
@both {
path *.txt
header X-Key good
}
@unknown expression {http.request.uri.query.k} == 'x'
";

fn matcher(random: &mut Random) -> &'static str {
    random.one(&[
        "",
        "",
        "",
        "*",
        "GROUP/a/*",
        "GROUP/a/x.txt",
        "@css",
        "@get",
        "@key",
        "@none",
        "@not",
        "@regexp",
        "@lan",
        "@away",
        "@here",
        "@query",
        "@host",
        "@two",
        "@both",
        "@unknown",
    ])
}

/// A directive, perhaps with others in its block.
fn directive(random: &mut Random, depth: usize) -> String {
    let matcher = matcher(random);
    let kinds = if depth < DEPTH { 22 } else { 16 };
    match random.below(kinds) {
        0 => format!("respond {matcher} {}", random.one(&["403", "text", "text 404", "401"])),
        1 => format!("error {matcher} {}", random.one(&["403", "404"])),
        2 => format!("rewrite {} GROUP/{}/x.txt", all(matcher), random.one(&PARTS)),
        3 => format!("rewrite {} GROUP/b{{path}}", all(matcher)),
        4 => format!(
            "redir {} {}",
            all(matcher),
            random.one(&["/elsewhere", "https://{host}{uri} 301"])
        ),
        5 => format!("uri {matcher} strip_prefix GROUP/{}", random.one(&PARTS)),
        6 => "try_files {path} {path}/ GROUP/a/x.txt".to_owned(),
        7 => "try_files {path} GROUP/b/x.txt =404".to_owned(),
        8 => format!("header {matcher} X-Test {}", random.one(&["a", "b"])),
        9 => format!("request_header {matcher} X-Key good"),
        10 => format!("basicauth {matcher} {{\nuser HASH\n}}"),
        11..=14 => format!("file_server {matcher}"),
        15 => format!("reverse_proxy {matcher} 127.0.0.1:APP"),
        16 => format!("handle {matcher} {{\n{}}}", directives(random, depth + 1)),
        17 => {
            format!("handle GROUP/{}/* {{\n{}}}", random.one(&PARTS), directives(random, depth + 1))
        }
        18 => {
            let path = random.one(&["GROUP/a/*", "GROUP/b/*", "GROUP/*"]);
            format!("handle_path {path} {{\n{}}}", directives(random, depth + 1))
        }
        19 => format!("handle {{\n{}}}", directives(random, depth + 1)),
        20 => format!("route {matcher} {{\n{}}}", directives(random, depth + 1)),
        _ => format!("handle {matcher} {{\nroot * ROOT/other\n{}}}", directives(random, depth + 1)),
    }
}

/// A matcher in front of a word that looks like one.
fn all(matcher: &str) -> &str {
    if matcher.is_empty() { "*" } else { matcher }
}

fn directives(random: &mut Random, depth: usize) -> String {
    let count = 1 + random.below(3);
    (0..count).map(|_| directive(random, depth) + "\n").collect()
}

fn requests(target: &str) -> Vec<Request> {
    let to = |target: &str| Request::get(target).header("Host", "example.test");
    vec![
        to(target),
        Request::post(target, "text/plain", "a=b").header("Host", "example.test"),
        to(&format!("{target}?k=x")),
        to(target).header("X-Key", "good"),
        to(target).header("X-Key", "bad"),
        to(target).header("Authorization", "Basic dXNlcjpzZWNyZXQ="),
    ]
}

#[test]
fn random_caddyfiles() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok());
    let first = std::env::var("FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut wrong = Vec::new();
    let (mut open, mut same) = (0, 0);
    for seed in first..first + seeds.unwrap_or(CONFIGURATIONS) {
        let mut random = Random(seed * 1_000_003 + 11);
        let groups: Vec<String> = (0..GROUPS)
            .map(|number| {
                let named = NAMED.replace("@", &format!("@g{number}"));
                let own = directives(&mut random, 1).replace('@', &format!("@g{number}"));
                format!("{named}handle GROUP/* {{\n{own}}}\n")
                    .replace("GROUP", &format!("/g{number}"))
            })
            .collect();
        let lines = format!("root * ROOT\n{}", groups.concat());
        let mut files = Vec::new();
        for number in 0..GROUPS {
            for part in PARTS {
                for file in ["x.txt", "y.css", "sub/index.html"] {
                    files.push(format!("g{number}/{part}/{file}"));
                    files.push(format!("g{number}/b/g{number}/{part}/{file}"));
                    files.push(format!("other/g{number}/{part}/{file}"));
                    files.push(format!("{part}/{file}"));
                    files.push(file.to_owned());
                }
            }
        }
        let pair = Original::caddy(&lines, &files.iter().map(String::as_str).collect::<Vec<_>>());
        for (number, group) in groups.iter().enumerate() {
            for part in PARTS {
                for file in ["x.txt", "y.css", "none.txt", "sub", "sub/", "%78.txt"] {
                    let target = format!("/g{number}/{part}/{file}");
                    for (kind, request) in requests(&target).iter().enumerate() {
                        let [theirs, ours] = pair.ask(request);
                        let is_open = theirs.status() == 200 && !theirs.text().is_empty();
                        open += usize::from(is_open);
                        // For an application, a folder that try_files found has no slash here, and a path is
                        // encoded anew.
                        let shown =
                            |text: String| text.replace("/sub/", "/sub").replace("%78", "x");
                        let is_same = shown(theirs.text()) == shown(ours.text());
                        same += usize::from(is_open && ours.status() == 200 && is_same);
                        // The application of the test may close before it has read a body.
                        let is_known = theirs.status() < 500;
                        if ours.status() == 200 && !ours.text().is_empty() && !is_same && is_known {
                            let text = format!(
                                "{seed} {target} {kind}: {:?}, Caddy {} {:?}",
                                ours.text(),
                                theirs.status(),
                                theirs.text()
                            );
                            wrong.push((text, group.clone()));
                        }
                    }
                }
            }
        }
    }
    let mut known = std::collections::HashSet::new();
    let shown: Vec<_> = wrong
        .iter()
        .filter(|(_, group)| known.insert(group))
        .map(|(text, group)| {
            let own = group.split_once("handle /g").map_or("", |(_, own)| own);
            format!("{text}\nhandle /g{own}")
        })
        .collect();
    assert!(wrong.is_empty(), "{} answers differ\n{}", wrong.len(), shown.join("\n"));
    // Refusing everything would be no conversion.
    assert!(same * 3 > open * 2, "{same} of {open}");
}
