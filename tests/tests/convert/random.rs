//! Random configurations: what nginx refuses, the converted configuration refuses, too.

use sendoff_tests::Request;

use crate::original::Original;

/// The number of folders, each with locations of its own, in one configuration.
const FOLDERS: usize = 12;
/// The number of configurations.
const CONFIGURATIONS: u64 = 6;
/// The parts of a folder that have a location.
const PARTS: [&str; 3] = ["a", "b", "c"];

/// Random numbers, the same in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    pub(crate) fn one<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }
}

/// A directive that rewrites or answers, for a location of a folder.
fn rewriting(random: &mut Random, folder: &str, own: &str) -> String {
    let other = random.one(&PARTS);
    match random.below(6) {
        0 => format!("return {};", random.one(&["403", "404", "401", "200 text", "410"])),
        1 => format!("return 302 /{folder}/{other}/;"),
        2 => {
            let flag = random.one(&["last", "break", "", "permanent"]);
            format!("rewrite ^/{folder}/{own}/(.*)$ /{folder}/{other}/$1 {flag};")
        }
        3 => {
            let flag = random.one(&["last", "break", ""]);
            format!("rewrite ^ /{folder}/{other}/a.txt {flag};")
        }
        4 => {
            let flag = random.one(&["last", "break", ""]);
            format!("rewrite \\.css$ /{folder}/{other}/x.php {flag};")
        }
        _ => "break;".to_owned(),
    }
}

/// The condition of an `if`.
fn condition(random: &mut Random) -> &'static str {
    random.one(&[
        "$http_x_key = \"\"",
        "$http_x_key != good",
        "$http_x_key = good",
        "$http_x_key",
        "$http_x_key ~ \"^$|bad\"",
        "$http_x_key !~ \"^$|bad\"",
        "$http_cookie = ''",
        "$http_cookie !~ k=v",
        "$request_method = POST",
        "!-f $request_filename",
        "!-e $request_filename",
        "$arg_k = x",
        "$arg_k != x",
        "$arg_k",
        "$host ~ test$",
    ])
}

/// The directives of a location, in any order.
fn block(random: &mut Random, folder: &str, own: &str) -> String {
    let mut lines = Vec::new();
    for _ in 0..random.below(4) {
        lines.push(match random.below(3) {
            0 => rewriting(random, folder, own),
            _ => {
                let condition = condition(random);
                let inner: String =
                    (0..=random.below(2)).map(|_| rewriting(random, folder, own)).collect();
                format!("if ({condition}) {{ {inner} }}")
            }
        });
    }
    if random.below(4) == 0 {
        let rule = random.one(&[
            "deny all;",
            "allow 127.0.0.1; deny all;",
            "auth_basic x; auth_basic_user_file USERS;",
            "limit_except GET { deny all; }",
        ]);
        lines.push(rule.to_owned());
    }
    if random.below(4) == 0 {
        lines.push("internal;".to_owned());
    }
    let other = random.one(&PARTS);
    // nginx forgets try_files where the condition of an if holds.
    if random.below(4) == 0 && !lines.iter().any(|line| line.starts_with("if")) {
        let last = match random.below(4) {
            0 => "=404".to_owned(),
            1 => "=403".to_owned(),
            2 => format!("@{folder}"),
            _ => format!("/{folder}/{other}/a.txt"),
        };
        lines.push(format!("try_files {} {last};", random.one(&["$uri", "$uri $uri/", "/none"])));
    }
    match random.below(6) {
        0 => lines.push("include /etc/nginx/fastcgi.conf; fastcgi_pass PHP;".to_owned()),
        1 => lines.push("proxy_pass http://127.0.0.1:APP;".to_owned()),
        2 => lines.push("expires 1h;".to_owned()),
        _ => {}
    }
    for at in (1..lines.len()).rev() {
        lines.swap(at, random.below(at + 1));
    }
    lines.join(" ")
}

/// The locations of a folder, in any order.
fn locations(random: &mut Random, folder: &str) -> String {
    let mut all: Vec<_> = PARTS
        .iter()
        .map(|part| {
            let sign = random.one(&["", "", "^~"]);
            format!("location {sign} /{folder}/{part}/ {{ {} }}", block(random, folder, part))
        })
        .collect();
    if random.below(2) == 0 {
        let inner = block(random, folder, "[ab]");
        all.push(format!("location ~ ^/{folder}/[ab]/.*\\.css$ {{ {inner} }}"));
    }
    if random.below(2) == 0 {
        let inner = block(random, folder, "c");
        all.push(format!("location = /{folder}/c/a.txt {{ {inner} }}"));
    }
    for at in (1..all.len()).rev() {
        all.swap(at, random.below(at + 1));
    }
    let mut text = all.join("\n");
    if random.below(3) == 0 {
        text = format!("location /{folder}/ {{ {}\n{text} }}", block(random, folder, "a"));
    }
    format!("{text}\nlocation @{folder} {{ {} }}", block(random, folder, "b"))
}

/// The requests for a path of a client.
fn requests(target: &str) -> Vec<Request> {
    let to = |target: &str| Request::get(target).header("Host", "example.test");
    vec![
        to(target),
        Request::post(target, "text/plain", "a=b").header("Host", "example.test"),
        to(target).header("X-Key", "good"),
        to(target).header("X-Key", "bad").header("Cookie", "k=v"),
        to(&format!("{target}?k=x")),
        to(target).header("X-Key", "0"),
        to(target).header("Authorization", "Basic dXNlcjpzZWNyZXQ="),
    ]
}

#[test]
fn random_locations() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok());
    let mut opened = Vec::new();
    let (mut open, mut same) = (0, 0);
    for seed in 0..seeds.unwrap_or(CONFIGURATIONS) {
        let mut random = Random(seed * 1_000_003 + 7);
        let names: Vec<_> = (0..FOLDERS).map(|number| format!("g{number}")).collect();
        let folders: Vec<_> = names.iter().map(|name| locations(&mut random, name)).collect();
        let php = "location ~ \\.php$ { include /etc/nginx/fastcgi.conf; fastcgi_pass PHP; }";
        let lines = format!("index index.html;\n{}\n{php}", folders.join("\n"));
        let paths: Vec<_> = names
            .iter()
            .flat_map(|name| PARTS.map(|part| format!("{name}/{part}")))
            .flat_map(|part| {
                ["a.txt", "b.css", "x.php", "index.html"].map(|file| format!("{part}/{file}"))
            })
            .collect();
        let pair = Original::start(&lines, &paths.iter().map(String::as_str).collect::<Vec<_>>());
        for (folder, own) in names.iter().zip(&folders) {
            for part in PARTS {
                for file in ["a.txt", "b.css", "x.php", "", "none", "x.php/i", "x.php/i.css"] {
                    let target = format!("/{folder}/{part}/{file}");
                    for (number, request) in requests(&target).iter().enumerate() {
                        let [theirs, ours] = pair.ask(request).map(|answer| answer.status());
                        open += usize::from(theirs == 200);
                        same += usize::from(theirs == 200 && ours == 200);
                        if (401..=404).contains(&theirs) && (200..300).contains(&ours) {
                            let text = format!("{seed} {target} {number}: {ours}, nginx {theirs}");
                            opened.push((text, own.clone(), pair.routes_of(folder)));
                        }
                    }
                }
            }
        }
    }
    let mut known = std::collections::HashSet::new();
    let shown: Vec<_> = opened
        .iter()
        .map(|(text, own, routes)| match known.insert(own) {
            true => format!("{own}\n{routes}\n{text}"),
            false => text.clone(),
        })
        .collect();
    assert!(opened.is_empty(), "{} opened\n{}", opened.len(), shown.join("\n"));
    // Refusing everything would be no conversion.
    assert!(same * 3 > open, "{same} of {open}");
}
