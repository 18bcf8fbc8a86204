//! Random sections of Apache: Sendoff sends what Apache sends, and never what Apache refuses.

use sendoff_tests::Request;

use crate::original::Original;
use crate::random::Random;

/// The number of groups, each with sections of its own, in one configuration.
const GROUPS: usize = 24;
/// The number of configurations, unless `SEEDS` has another one. Each takes about a second.
const CONFIGURATIONS: u64 = 4;
/// The parts of a group, which have files.
const PARTS: [&str; 2] = ["a", "b"];

/// A section's beginning and end. `GROUP` is the name of the folder of the group.
fn section(random: &mut Random, inner: &str) -> String {
    let part = random.one(&PARTS);
    let (begin, end) = match random.below(14) {
        0 => ("<Directory ROOT/GROUP>".to_owned(), "</Directory>"),
        1 | 2 => (format!("<Directory ROOT/GROUP/{part}>"), "</Directory>"),
        3 => (format!("<Directory ROOT/*/{part}>").replace("*", "GROUP*"), "</Directory>"),
        4 => (format!("<Directory ROOT/GROUP/{part}/sub/>"), "</Directory>"),
        5 => ("<Location /GROUP>".to_owned(), "</Location>"),
        6 => (format!("<Location /GROUP/{part}/>"), "</Location>"),
        7 => (format!("<Location /GROUP/{part}/x.txt>"), "</Location>"),
        8 => (format!("<LocationMatch \"^/GROUP/({part}|c)/[xy]\">"), "</LocationMatch>"),
        9 => (format!("<DirectoryMatch \"/GROUP/{part}\">"), "</DirectoryMatch>"),
        10 => ("<Directory ROOT/GROUP>\n<Files x.txt>".to_owned(), "</Files>\n</Directory>"),
        11 => (
            "<Directory ROOT/GROUP>\n<FilesMatch \"\\.css$\">".to_owned(),
            "</FilesMatch>\n</Directory>",
        ),
        12 => {
            (format!("<Directory ROOT/GROUP/{part}>\n<Files \"*.txt\">"), "</Files>\n</Directory>")
        }
        _ => (format!("<Directory ~ \"/GROUP/{part}/s\">"), "</Directory>"),
    };
    format!("{begin}\n{inner}\n{end}\n")
}

fn rules(random: &mut Random) -> String {
    let user = "AuthType Basic\nAuthName x\nAuthUserFile USERS\n";
    let one = random.one(&[
        "Require all granted",
        "Require all granted",
        "Require all denied",
        "Require ip 127.0.0.1",
        "Require ip 10.0.0.0/8",
        "Require local",
        "Require valid-user",
        "Require user other",
        "Require not ip 10.0.0.0/8\nRequire all granted",
        "<RequireAll>\nRequire all granted\nRequire not ip 127.0.0.0/8\n</RequireAll>",
        "<RequireAll>\nRequire valid-user\nRequire ip 127\n</RequireAll>",
        "<RequireAny>\nRequire valid-user\nRequire ip 10\n</RequireAny>",
        "Order deny,allow\nDeny from all",
        "Order allow,deny\nAllow from all\nDeny from 127.0.0.1",
        "Order deny,allow\nDeny from all\nAllow from 127.0.0.1",
        "Order allow,deny\nAllow from all",
        "Require env x",
        "Options +Indexes",
        "Header set X-Test a",
    ]);
    // A negation alone lets nothing through, and Apache refuses it beside others.
    let one = one.replace("Require not ip 10.0.0.0/8\nRequire all granted", "Require all granted");
    format!("{user}{one}")
}

/// Directives outside of sections. The first three kinds give no request another path.
fn other(random: &mut Random, kinds: usize) -> String {
    let part = random.one(&PARTS);
    match random.below(kinds) {
        0 => format!("Redirect /GROUP/{part}/y.css /GROUP/b/x.txt"),
        1 => format!("RedirectMatch 403 ^/GROUP/{part}/.*\\.css$"),
        2 => format!("Alias /GROUP/alias ROOT/GROUP/{part}"),
        3 => format!("RewriteRule ^/GROUP/{part}/(.*)$ /GROUP/b/$1 [L]"),
        4 => format!("RewriteRule ^/GROUP/a/x /GROUP/{part}/y.css"),
        5 => format!("RewriteRule ^/GROUP/{part}/.*css$ - [F]"),
        6 => format!("ProxyPass /GROUP/{part}/sub http://127.0.0.1:APP/GROUP/{part}/sub"),
        _ => "RewriteCond %{HTTP:X-Key} ^good$\nRewriteRule ^/GROUP/(.*)txt$ /GROUP/$1css [L]"
            .to_owned(),
    }
}

#[test]
fn random_sections() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok());
    let mut wrong = Vec::new();
    let (mut open, mut same) = (0, 0);
    for seed in 0..seeds.unwrap_or(CONFIGURATIONS) {
        let mut random = Random(seed * 1_000_003 + 5);
        let groups: Vec<String> = (0..GROUPS)
            .map(|number| {
                let count = 1 + random.below(4);
                let mut own: String = (0..count)
                    .map(|_| {
                        let inner = rules(&mut random);
                        section(&mut random, &inner)
                    })
                    .collect();
                if random.below(2) == 0 {
                    // Without rules that change paths, sections are compared in another way.
                    let kinds = if seed % 2 == 0 { 8 } else { 3 };
                    own.push_str(&other(&mut random, kinds));
                    own.push('\n');
                }
                own.replace("GROUP", &format!("g{number}x"))
            })
            .collect();
        let lines = format!("RewriteEngine On\n{}", groups.concat());
        let mut files = Vec::new();
        for number in 0..GROUPS {
            for part in PARTS {
                for file in ["x.txt", "y.css", "sub/x.txt", "sub/index.html"] {
                    files.push(format!("g{number}x/{part}/{file}"));
                }
            }
        }
        let pair = Original::apache(&lines, &files.iter().map(String::as_str).collect::<Vec<_>>());
        for (number, group) in groups.iter().enumerate() {
            for part in ["a", "b", "alias"] {
                for file in ["x.txt", "y.css", "sub/x.txt", "sub/", "none", "%78.txt", "x.txt/i"] {
                    let target = format!("/g{number}x/{part}/{file}");
                    let to = || Request::get(&target).header("Host", "example.test");
                    let requests = [
                        to(),
                        to().header("Authorization", "Basic dXNlcjpzZWNyZXQ="),
                        to().header("X-Key", "good"),
                    ];
                    for (kind, request) in requests.iter().enumerate() {
                        let [theirs, ours] = pair.ask(request);
                        let is_open = theirs.status() == 200;
                        open += usize::from(is_open);
                        let text = ours.text().replace("x-forwarded-proto: http", "");
                        let is_same = theirs.text().trim_end() == text.trim_end();
                        same += usize::from(is_open && ours.status() == 200 && is_same);
                        // Listings look different.
                        let is_listing = text.contains("</html>") && is_open;
                        let is_known = theirs.status() < 500;
                        if ours.status() == 200 && !is_same && !is_listing && is_known {
                            let (theirs, code) = (theirs.text(), theirs.status());
                            let text = format!(
                                "{seed} {target} {kind}: {text:?}, Apache {code} {theirs:?}"
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
        .map(|(text, group)| format!("{text}\n{group}"))
        .collect();
    assert!(wrong.is_empty(), "{} answers differ\n{}", wrong.len(), shown.join("\n"));
    // Refusing everything would be no conversion.
    assert!(same * 3 > open * 2, "{same} of {open}");
}
