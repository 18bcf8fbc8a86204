//! Guarantees of the types: remarks and reasons name lines, limits hold, outcomes name the inputs
//! that they depend on.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use sendoff_htaccess::{
    Answer, CacheLines, Fields, File, FileInfo, Files, Handler, Kind, Look, MAX_FILE, Outcome,
    Request, Severity, Site, evaluate,
};

/// Processor time of this thread: other work on the machine does not count.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a clock that began at 0")
}

/// A site with one file of rules, `index.php` and `a.txt`.
struct OneFolder(Arc<File>);

impl Look for OneFolder {
    fn look(&self, path: &[u8]) -> Option<FileInfo> {
        let kind = match path {
            b"/site" | b"/site/" => Kind::Folder,
            b"/site/index.php" | b"/site/a.txt" => Kind::File,
            _ => return None,
        };
        Some(FileInfo { kind, size: 1, executable: false })
    }

    fn is_link(&self, _: &[u8]) -> bool {
        false
    }

    fn is_foreign_link(&self, _: &[u8]) -> bool {
        false
    }

    fn groups(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn processor_time(&self) -> Duration {
        processor_time()
    }
}

impl Files for OneFolder {
    fn rules(&self, _: &[u8]) -> Option<Arc<File>> {
        Some(Arc::clone(&self.0))
    }
}

struct NoFields;

impl Fields for NoFields {
    fn get(&self, _: &[u8]) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn each(&self, _: &mut dyn FnMut(&[u8], &[u8])) {}
}

fn file(rules: &str) -> File {
    File::parse(rules.as_bytes(), "site/.htaccess", CacheLines::Skipped)
}

fn outcome(rules: &str, path: &str) -> Outcome {
    outcome_of(&Arc::new(file(rules)), path)
}

fn outcome_of(file: &Arc<File>, path: &str) -> Outcome {
    outcome_in(&OneFolder(Arc::clone(file)), path)
}

fn outcome_in(files: &dyn Files, path: &str) -> Outcome {
    let index = [b"index.php".to_vec()];
    let site = Site {
        root: b"/site",
        index: &index,
        is_script: &|name| name.ends_with(b".php"),
        media_type: &|_| None,
        listing: false,
        software: b"Apache",
        admin: b"",
        cache_lines: CacheLines::Skipped,
    };
    let request = Request {
        method: b"GET",
        target: path.as_bytes(),
        path: path.as_bytes(),
        query: None,
        protocol: b"HTTP/1.1",
        https: false,
        host: b"example.org",
        port: None,
        server: ([127, 0, 0, 1], 80).into(),
        client: ([192, 0, 2, 1], 1).into(),
        fields: &NoFields,
        now: UNIX_EPOCH,
        user: None,
        error: None,
    };
    evaluate(&site, &request, files)
}

#[test]
fn remarks_name_lines_and_consequences() {
    let rules =
        "# rules\nIndexOptions FancyIndexing\nOptions \\\n -Indexes\nRequire ldap-user anna\n";
    let parsed = file(rules);
    let remarks: Vec<_> = parsed.remarks().iter().map(|r| (r.line, r.severity)).collect();
    assert_eq!(remarks, [(2, Severity::Ignored), (5, Severity::Refused)]);
    assert_eq!(
        parsed.remarks()[1].to_string(),
        "line 5: Require: Require ldap-user is not supported (what it covers is answered with 403)"
    );
    assert!(parsed.broken().is_none());

    let (status, broken) = file("Options -Indexes\nNoSuchThing on\n").broken().unwrap();
    assert_eq!((status, broken.file.as_str(), broken.line), (500, "site/.htaccess", 2));
}

#[test]
fn a_refusal_names_the_line() {
    let found = outcome("Options -Indexes\nRequire ldap-user anna\n", "/a.txt");
    assert_eq!(found.answer, Answer::Refuse { status: 403 });
    assert_eq!(
        found.reasons[0].to_string(),
        "site/.htaccess:2: Require: Require ldap-user is not supported"
    );
    let found = outcome("RewriteEngine On\nRewriteRule ^a - [F]\n", "/a.txt");
    assert_eq!(found.answer, Answer::Refuse { status: 403 });
    assert_eq!(found.reasons[0].line, 2);
}

/// Apache ignores a section by name within another section.
#[test]
fn a_nested_section_by_name_denies_and_grants_nothing() {
    let granted = "Require all granted\n";
    for (outer, denied, granted) in [
        ("<Files \"*.txt\">", "Require all denied\n", granted),
        ("<If \"true\">", "Require all denied\n", granted),
        ("<Files \"*.txt\">", "Order deny,allow\nDeny from all\n", "Allow from all\n"),
    ] {
        let end = &outer[1..].split(' ').next().unwrap();
        let nested = |own: &str, inner: &str| {
            format!("{own}{outer}\n<FilesMatch \"^a\">\n{inner}</FilesMatch>\n</{end}>\n")
        };
        let refused = Answer::Refuse { status: 403 };
        assert_eq!(outcome(&nested(denied, granted), "/a.txt").answer, refused, "{outer}");
        assert_eq!(outcome(&nested("", denied), "/a.txt").answer, refused, "{outer}");
        assert_ne!(outcome(&nested("", granted), "/a.txt").answer, refused, "{outer}");
    }
}

#[test]
fn limits_refuse_the_whole_file() {
    let deep = "<Files a>\n".repeat(40) + &"</Files>\n".repeat(40);
    let many = "Options -Indexes\n".repeat(10_001);
    let large = "#".repeat(80) + "\n";
    let large = large.repeat(MAX_FILE / 81 + 1);
    let long = format!("Header set A {}", "b".repeat(9000));
    let expanding = "RewriteRule ((a|b){60}){30} -\n".repeat(100);
    let nested = format!("<If \"{}true\">\n</If>\n", "!".repeat(100));
    for rules in [deep, many, large, long, expanding] {
        assert!(file(&rules).broken().is_some(), "{} bytes", rules.len());
        assert_eq!(outcome(&rules, "/a.txt").answer, Answer::Refuse { status: 500 });
    }
    assert_eq!(outcome(&nested, "/a.txt").answer, Answer::Refuse { status: 403 });
}

#[test]
fn costly_expressions_and_endless_rules_end() {
    let path = format!("/{}", "a".repeat(3000));
    let costly = outcome("RewriteEngine On\nRewriteRule ^(a+)+(?=b)$ x\n", &path);
    assert_eq!(costly.answer, Answer::Refuse { status: 500 });
    for rules in [
        "RewriteRule ^(.*)$ $1 [N]",
        "RewriteRule ^ /x$0%{REQUEST_URI}",
        "RewriteCond %{LA-U:REQUEST_URI} x\nRewriteRule ^ - [F]",
    ] {
        let found = outcome(&format!("RewriteEngine On\n{rules}\n"), "/a.txt");
        assert!(!matches!(found.answer, Answer::Serve(_)) || rules.contains("LA-U"), "{rules}");
    }
}

/// Each of these took seconds to minutes before all parts of an evaluation shared one limit.
#[test]
fn all_expressions_and_look_ups_of_a_request_share_one_bound() {
    let names: Vec<String> = (0..60).map(|number| format!("i{number}")).collect();
    let index = format!("DirectoryIndex {}\n", names.join(" "));
    let costly = "(x+x+)+(?=y)";
    let path = format!("/{}/", "x".repeat(200));
    let lines = |line: &str| line.repeat(8000);
    let sections = format!("<FilesMatch \"{costly}\">\n</FilesMatch>\n").repeat(4000);
    let endings = format!("AddType text/plain {}\n", "q ".repeat(4000)).repeat(100);
    let edit = format!("RequestHeader set A {}\n", "x".repeat(4000));
    let edit = edit + &"RequestHeader edit* A \"(?=(x+x+)+y)|x\" x\n".repeat(100);
    for (rules, path) in [
        (index.clone() + &lines(&format!("SetEnvIf Request_URI {costly} a\n")), "/"),
        (lines(&format!("SetEnvIf Request_URI {costly} a\n")), &path),
        (lines(&format!("RedirectMatch {costly} http://a/\n")), &path),
        (lines(&format!("Header set A b \"expr=%{{REQUEST_URI}} =~ /{costly}/\"\n")), &path),
        (lines(&format!("Require expr %{{REQUEST_URI}} =~ /{costly}/\n")), &path),
        (sections, &path[..path.len() - 1]),
        (index + &lines("Redirect /elsewhere /x\n"), "/"),
        (endings, &format!("/{}", "a.".repeat(4000))),
        (edit, "/a.txt"),
    ] {
        let file = Arc::new(file(&rules));
        assert!(file.broken().is_none(), "{:?}", file.broken());
        let start = processor_time();
        let found = outcome_of(&file, path);
        let took = processor_time() - start;
        let line = rules.lines().nth(1).unwrap();
        assert!(took < Duration::from_secs(2), "{took:?}: {line}");
        // The limit is 200 ms, counted from the first look after 20 ms, with a look every 20 ms.
        if took > Duration::from_millis(250) {
            assert_eq!(found.answer, Answer::Refuse { status: 500 }, "{took:?}: {line}");
            assert!(!found.reasons.is_empty(), "{line}");
        }
    }
}

/// A site with the same file of rules in every folder at any depth.
struct Everywhere(OneFolder);

impl Look for Everywhere {
    fn look(&self, _: &[u8]) -> Option<FileInfo> {
        Some(FileInfo { kind: Kind::Folder, size: 1, executable: false })
    }

    fn is_link(&self, _: &[u8]) -> bool {
        false
    }

    fn is_foreign_link(&self, _: &[u8]) -> bool {
        false
    }

    fn groups(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn processor_time(&self) -> Duration {
        self.0.processor_time()
    }
}

impl Files for Everywhere {
    fn rules(&self, folder: &[u8]) -> Option<Arc<File>> {
        self.0.rules(folder)
    }
}

#[test]
fn the_files_of_a_path_have_a_bound_together() {
    let file = Arc::new(file(&"RewriteRule ^some/old/page-[0-9]+$ /new [R=301]\n".repeat(5000)));
    let files = Everywhere(OneFolder(file));
    let found = outcome_in(&files, &"/a".repeat(2));
    assert!(!matches!(found.answer, Answer::Refuse { status: 500 }), "{:?}", found.reasons);
    let found = outcome_in(&files, &"/a".repeat(200));
    assert_eq!(found.answer, Answer::Refuse { status: 500 });
    assert!(found.reasons[0].to_string().ends_with("take too much memory"), "{:?}", found.reasons);
}

#[test]
fn php_runs_only_where_rules_let_it() {
    let handler = |rules: &str| match outcome(rules, "/").answer {
        Answer::Serve(target) => Some(target.handler),
        _ => None,
    };
    assert_eq!(handler(""), Some(Handler::Php));
    for rules in
        ["php_flag engine off", "SetHandler none", "RemoveHandler .php", "AddType text/plain .php"]
    {
        assert_eq!(handler(rules), Some(Handler::Source), "{rules}");
    }
    assert_eq!(handler("AddHandler cgi-script .php"), None);
    assert_eq!(
        handler("SetHandler \"proxy:unix:/run/php.sock|fcgi://localhost\""),
        Some(Handler::Php)
    );
}

#[test]
fn an_outcome_says_what_it_depends_on() {
    let depends_on = |rules: &str| outcome(rules, "/a.txt").depends_on;
    assert!(!depends_on("Header set A b").more);
    let fields = depends_on("SetEnvIf User-Agent x y").fields;
    assert_eq!(fields, [b"User-Agent".to_vec()]);
    let by_address = depends_on("Require ip 192.0.2.0/24");
    assert!(by_address.client && !by_address.more);
    assert!(depends_on("RewriteEngine On\nRewriteCond %{REMOTE_PORT} 1\nRewriteRule ^ - [F]").more);
    assert!(
        depends_on("RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} -s\nRewriteRule ^ -").more
    );
    assert!(depends_on("RewriteEngine On\nRewriteCond %{TIME_HOUR} >12\nRewriteRule ^ - [F]").more);
}
