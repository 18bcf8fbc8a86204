//! The promise: for every `.htaccess` file and request the evaluation ends, the response's fields
//! are well-formed, and a file with an unknown requirement denies everything.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use sendoff_htaccess::{
    Answer, CacheLines, Fields, File, FileInfo, Files, Head, Kind, Look, Outcome, Request, Site,
    evaluate,
};

/// A site in memory: `/` with `index.php`, `a.txt` and the folder `sub`, which has `index.html`.
struct Memory {
    root: Arc<File>,
    sub: Arc<File>,
}

impl Look for Memory {
    fn look(&self, path: &[u8]) -> Option<FileInfo> {
        let kind = match path {
            b"/site" | b"/site/sub" | b"/site/sub/" => Kind::Folder,
            b"/site/index.php" | b"/site/a.txt" | b"/site/sub/index.html" => Kind::File,
            _ => return None,
        };
        Some(FileInfo { kind, size: 1, executable: false })
    }

    fn is_link(&self, path: &[u8]) -> bool {
        path.ends_with(b"a.txt")
    }

    fn is_foreign_link(&self, path: &[u8]) -> bool {
        self.is_link(path)
    }

    fn groups(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn processor_time(&self) -> Duration {
        Duration::ZERO
    }
}

impl Files for Memory {
    fn rules(&self, folder: &[u8]) -> Option<Arc<File>> {
        Some(Arc::clone(if folder == b"/site" { &self.root } else { &self.sub }))
    }
}

struct Sent<'a>(&'a [u8]);

impl Fields for Sent<'_> {
    fn get(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let known = [&b"Host"[..], b"User-Agent", b"Cookie", b"X-A"];
        let is_known = known.iter().any(|field| field.eq_ignore_ascii_case(name));
        is_known.then_some(Cow::Borrowed(self.0))
    }

    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        each(b"Host", self.0);
        each(b"X-A", self.0);
    }
}

fn outcome(rules: &[u8], below: &[u8], target: &[u8]) -> (Outcome, Head) {
    let mark = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let path = [b"/", target[..mark].strip_prefix(b"/").unwrap_or(&target[..mark])].concat();
    let fields = Sent(target);
    let request = Request {
        method: b"GET",
        target,
        path: &path,
        query: target.get(mark + 1..),
        protocol: b"HTTP/1.1",
        https: false,
        host: b"example.org",
        port: None,
        server: ([127, 0, 0, 1], 80).into(),
        client: ([127, 0, 0, 2], 1).into(),
        fields: &fields,
        now: UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        user: None,
        error: None,
    };
    let index = [b"index.php".to_vec(), b"index.html".to_vec()];
    let site = Site {
        root: b"/site",
        index: &index,
        is_script: &|name| name.ends_with(b".php"),
        media_type: &|ending| (ending == b"txt").then(|| b"text/plain".to_vec()),
        listing: true,
        software: b"Apache",
        admin: b"root",
        cache_lines: CacheLines::Obeyed,
    };
    let parse = |bytes| Arc::new(File::parse(bytes, ".htaccess", CacheLines::Obeyed));
    let memory = Memory { root: parse(rules), sub: parse(below) };
    let outcome = evaluate(&site, &request, &memory);
    let mut head = Head { status: 200, ..Head::default() };
    head.fields.push((b"Content-Type".to_vec(), b"text/html".to_vec()));
    outcome.response.apply(&site, &request, &memory, &mut head);
    (outcome, head)
}

/// Checks the promise for a file, a file of a subfolder, and a target, separated by zeros.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let (rules, below) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let target = parts.next().unwrap_or(b"/sub/?a=b");
    let (found, head) = outcome(rules, below, target);
    let is_clean = |text: &[u8]| !text.iter().any(|byte| b"\r\n\0".contains(byte));
    for (name, value) in &head.fields {
        assert!(is_clean(name) && is_clean(value), "{name:?}: {value:?}");
    }
    assert!(head.fields.iter().map(|(_, value)| value.len()).sum::<usize>() <= 8 << 20);
    match &found.answer {
        Answer::Refuse { status } => assert!((200..600).contains(status), "{status}"),
        Answer::Redirect { status, location } => {
            assert!((300..400).contains(status) && is_clean(location), "{status} {location:?}");
        }
        Answer::Serve(target) => {
            let content_type = target.content_type.clone().flatten().unwrap_or_default();
            assert!(is_clean(&content_type), "{content_type:?}");
        }
        _ => {}
    }
    let refused = [rules, b"\n\nRequire nonsense\n"].concat();
    let (found, _) = outcome(&refused, b"", target);
    assert!(matches!(found.answer, Answer::Refuse { .. }), "{:?}", found.answer);
}

/// Files to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let files: [&[u8]; 6] = [
        b"RewriteEngine On\nRewriteBase /\nRewriteCond %{REQUEST_FILENAME} !-f [OR]\nRewriteCond %{HTTP:X-A} =a [NC]\n\
          RewriteRule ^(.*)$ /index.php?q=$1&h=%{HTTP_HOST} [L,QSA,T=text/$1,NE,E=A:$1,CO=a:b:c:5:/:secure]\0Options -Indexes\0/x/y?z",
        b"<IfModule mod_headers.c>\nHeader always set X-A \"%{A}e\" env=A\nHeader edit* X-A (a) <$1>\n\
          Header set X-B \"expr=%{req:X-A}\" \"expr=%{CONTENT_TYPE} =~ m#html#\"\n</IfModule>\nSetEnvIf X-A (.+) A=$1$1\0\0/a.txt",
        b"<If \"%{QUERY_STRING} =~ /a(b)/ && -f %{REQUEST_FILENAME} || ! ('x' -in {'a','b'})\">\nRequire all denied\n</If>\n\
          <ElseIf \"tolower(req('X-A')) == 'b' . $1\">\nDeny from env=A\n</ElseIf>\n<Else>\nSatisfy any\n</Else>\0\0/a.txt?ab",
        b"<RequireAll>\nRequire ip 10.0.0.0/8 ::1\nRequire not env A\n<RequireNone>\nRequire user a\n</RequireNone>\n</RequireAll>\n\
          AuthType Basic\nAuthName \"x y\"\nAuthUserFile /users\n<Limit POST>\nOrder allow,deny\n</Limit>\0Require valid-user\0/sub/",
        b"Redirect 301 /a /b\nRedirectMatch gone ^/x(.*)$\nErrorDocument 404 /index.php?%{REQUEST_URI}\nExpiresActive on\n\
          ExpiresDefault \"access plus 1 month\"\nAddType text/x .txt\nAddEncoding gzip .gz\nphp_value a b\nForceType a/b\0FallbackResource /index.php\0/sub/q",
        b"RewriteEngine On\nRewriteRule (.*) $1a [N=500]\nRewriteCond %{LA-U:REQUEST_URI} a\nRewriteRule ^ /$0x\n\
          <Files ~ \"\\.(php|txt)$\">\nSetHandler none\n</Files>\nDirectoryIndex a.txt index.php disabled\0DirectorySlash Off\0/sub",
    ];
    files.map(<[u8]>::to_vec).to_vec()
}

/// Strings that files are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\n",
    b"\0",
    b"\\\n",
    b"RewriteRule ",
    b"RewriteCond ",
    b"%{",
    b"}",
    b"$1",
    b"[L,R=301]",
    b"[P]",
    b" -f",
    b" -U",
    b"<If \"",
    b"</If>\n",
    b"<Files *>\n",
    b"</Files>\n",
    b"Require ",
    b"<RequireAny>\n",
    b"</RequireAny>\n",
    b"Header set ",
    b"SetEnvIf ",
    b"(a+)+$",
    b"%0d%0a",
    b"/../",
    b"99999999999999999999",
    b"\xff",
];
