//! Requests to the scripts of the test suite, which every server must answer alike.

use super::link::Request;
use super::script;

struct Cases(Vec<(String, Request)>);

impl Cases {
    fn add(&mut self, name: &str, request: Request) {
        self.0.push((name.to_owned(), request));
    }

    /// Requests the script once for each query string.
    fn queries(&mut self, file: &str, queries: &[&str]) {
        for query in queries {
            self.add(&format!("{file}?{query}"), get(file).query(query));
        }
    }
}

/// GET of a script of the test suite.
pub fn get(file: &str) -> Request {
    Request::new(&script(file))
}

/// Requests of every kind, each with its name.
pub fn cases() -> Vec<(String, Request)> {
    let mut cases = Cases(Vec::new());
    cases.add("hello", get("hello.php"));
    cases.add("functions", get("functions.php"));
    cases.add("finish", get("finish.php"));
    cases.add("opcache", get("hello.php"));
    server_cases(&mut cases);
    path_cases(&mut cases);
    body_cases(&mut cases);
    cases.queries(
        "headers.php",
        &[
            "plain",
            "location",
            "code",
            "unknown-code",
            "status-header",
            "status-header-and-code",
            "http-line",
            "http-line-and-status",
            "not-modified",
            "no-type",
            "injection",
            "late",
            "callback",
            "length",
            "nothing",
        ],
    );
    cases.add(
        "compressed",
        get("headers.php").query("compressed").with("HTTP_ACCEPT_ENCODING", "gzip"),
    );
    cases.queries(
        "output.php",
        &[
            "big", "one-big", "small", "buffers", "unended", "stream", "binary", "info", "tags",
            "file", "none",
        ],
    );
    error_cases(&mut cases);
    cases.0
}

fn server_cases(cases: &mut Cases) {
    let server = || get("server.php");
    cases.add("server", server());
    cases.add("query", server().query("a=1&b[]=2&b[]=3&c%5Bx%5D=4"));
    cases.add("odd names", server().with("HTTP_A.B", "1").with("HTTP_C[D]", "2").with("X Y", "3"));
    cases.add("empty value", server().with("HTTP_EMPTY", ""));
    cases.add("long value", server().with("HTTP_LONG", &"x".repeat(20_000)));
    cases.add("proxy header", server().with("HTTP_PROXY", "http://evil"));
    let mut twice = server();
    twice.params.push(("HTTP_HOST".into(), "second".into()));
    cases.add("a parameter twice", twice);
    environment_cases(cases);
    for (name, value) in [
        ("basic", "Basic dXNlcjpwYTpzcw=="),
        ("digest", "Digest username=\"u\", realm=\"r\""),
        ("bearer", "Bearer token"),
        ("broken basic", "Basic !!!"),
    ] {
        cases.add(name, get("auth.php").with("HTTP_AUTHORIZATION", value));
    }
    cases.add(
        "all headers",
        get("all_headers.php")
            .with("HTTP_X_SOME_THING", "1")
            .with("HTTP_ACCEPT_LANGUAGE", "de")
            .with("CONTENT_TYPE", "text/x"),
    );
    cases.add("HEAD", get("headers.php").query("plain").with("REQUEST_METHOD", "HEAD"));
    cases.add("OPTIONS", server().with("REQUEST_METHOD", "OPTIONS"));
    let cookies = "a=1; b=two%20words; c[x]=3; a=second";
    cases.add("cookies", get("globals.php").query("g=1").with("HTTP_COOKIE", cookies));
}

/// `getenv()` with names whose keys in `$_SERVER` differ, in both orders.
fn environment_cases(cases: &mut Cases) {
    let ask = || get("getenv.php").with("PATH_INFO", "/extra");
    cases.add("environment", ask());
    let odd =
        [("HTTP_X_A", "plain"), ("HTTP_X.A", "dot"), ("HTTP_X A", "blank"), ("HTTP_X-A", "dash")];
    let lower = [("http_x_a", "lower"), ("HTTP_A[B]", "list"), ("HTTP_EMPTY", ""), ("", "no name")];
    let special =
        [("HTTP_PROXY", "http://evil"), ("HTTP_NUL", "a\0b"), ("PATH", "/evil"), ("HOME", "/evil")];
    let twice = [("HTTP_TWICE", "1"), ("HTTP_TWICE", "2"), ("HTTP_TWICE", "")];
    for names in [&odd[..], &lower[..], &special[..], &twice[..2], &twice[..]] {
        let (mut there, mut back) = (ask(), ask());
        for (name, value) in names {
            there.params.push(((*name).into(), (*value).into()));
        }
        for (name, value) in names.iter().rev() {
            back.params.push(((*name).into(), (*value).into()));
        }
        cases.add(&format!("environment with {names:?}"), there);
        cases.add(&format!("environment with {names:?}, backwards"), back);
    }
}

fn path_cases(cases: &mut Cases) {
    let server = || get("server.php");
    let file = script("server.php");
    let root = script("");
    let appended = format!("{file}/extra/path");
    cases.add("path info, split", server().with("PATH_INFO", "/extra/path"));
    cases.add("path info, appended", server().with("SCRIPT_FILENAME", &appended));
    cases.add(
        "path info, appended twice",
        server()
            .with("SCRIPT_FILENAME", &appended)
            .with("SCRIPT_NAME", "/server.php/extra/path")
            .with("PATH_INFO", "/server.php/extra/path"),
    );
    cases.add(
        "path info, other script name",
        server()
            .with("SCRIPT_FILENAME", &appended)
            .with("SCRIPT_NAME", "/elsewhere.php")
            .with("PATH_INFO", "/prefix/server.php/extra/path"),
    );
    cases.add(
        "path info without a root",
        server().with("SCRIPT_FILENAME", &appended).with("PATH_INFO", "").without("DOCUMENT_ROOT"),
    );
    let translated = format!("{root}extra/path");
    cases.add(
        "path translated",
        server().with("PATH_INFO", "/extra/path").with("PATH_TRANSLATED", &translated),
    );
    cases.add(
        "path translated, appended",
        server().with("SCRIPT_FILENAME", &appended).with("PATH_TRANSLATED", &translated),
    );
    cases.add(
        "path translated alone",
        server().without("SCRIPT_FILENAME").with("PATH_TRANSLATED", &file),
    );
    for (name, path) in [
        ("no such file", "nothing.php"),
        ("no such file, long path", "nothing/of/this/kind.php"),
        ("a folder", "folder"),
        ("a folder with a slash", "folder/"),
        ("a folder above", "folder/../hello.php"),
        ("a file as a folder", "folder/file.txt/x.php"),
        ("a text file", "folder/file.txt"),
        ("an extension that does not run", "page.phtml"),
        ("phar", "page.phar"),
        ("a slash at the end", "server.php/"),
        ("no path", ""),
    ] {
        cases.add(name, Request::new(&format!("{root}{path}")).with("DOCUMENT_ROOT", &root));
    }
    cases.add("an empty path", server().with("SCRIPT_FILENAME", ""));
    cases.add("no script", server().without("SCRIPT_FILENAME"));
    cases.add("no method", server().without("REQUEST_METHOD"));
    for page in ["user_ini/page.php", "user_ini/inner/page.php"] {
        cases.add(page, get(page).with("DOCUMENT_ROOT", &root));
        cases.add(page, get(page).with("DOCUMENT_ROOT", &script("user_ini")));
        cases.add(page, get(page).with("DOCUMENT_ROOT", "/elsewhere"));
    }
}

fn body_cases(cases: &mut Cases) {
    let form = "application/x-www-form-urlencoded";
    let globals = || get("globals.php");
    cases.add("form", globals().query("q=1").post(form, b"a=1&b[k]=%20x&q=2&empty="));
    cases
        .add("form with a charset", globals().post(&format!("{form}; charset=UTF-8"), b"a=%C3%A4"));
    cases.add("form, PUT", globals().post(form, b"a=1").with("REQUEST_METHOD", "PUT"));
    cases.add("json", globals().post("application/json", br#"{"a":1}"#));
    cases.add("no type", globals().post("", b"a=1"));
    cases.add("length too small", globals().post(form, b"a=1234").with("CONTENT_LENGTH", "3"));
    // A length larger than the body makes php-fpm wait forever.
    cases.add("length nonsense", globals().post(form, b"a=1").with("CONTENT_LENGTH", "x"));
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    cases.add("binary input", get("input.php").post("application/octet-stream", &bytes));
    cases.add("long form", get("input.php").post(form, "abcdef=123456&".repeat(40).as_bytes()));
    cases.add("unread body", get("hello.php").post("application/octet-stream", &bytes));
    cases.add("uploads", globals().post("multipart/form-data; boundary=XX", &multipart(&bytes)));
    let broken = &multipart(&bytes)[..5000];
    cases.add("broken upload", globals().post("multipart/form-data; boundary=XX", broken));
    cases.add("no boundary", globals().post("multipart/form-data", broken));
}

fn multipart(file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut part = |head: &str, data: &[u8]| {
        body.extend_from_slice(
            format!("--XX\r\nContent-Disposition: form-data; {head}\r\n\r\n").as_bytes(),
        );
        body.extend_from_slice(data);
        body.extend_from_slice(b"\r\n");
    };
    part("name=\"field\"", b"value");
    part("name=\"list[]\"", b"1");
    part("name=\"one\"; filename=\"a b.bin\"\r\nContent-Type: image/x", file);
    part("name=\"many[]\"; filename=\"../../x.txt\"", b"x");
    part("name=\"many[]\"; filename=\"y\"", b"");
    part("name=\"none\"; filename=\"\"", b"");
    body.extend_from_slice(b"--XX--\r\n");
    body
}

fn error_cases(cases: &mut Cases) {
    for kind in [
        "warning",
        "exception",
        "error",
        "memory",
        "parse",
        "require",
        "time",
        "exit",
        "die",
        "shutdown",
        "shutdown-fatal",
        "handler",
        "recursion",
    ] {
        for more in ["", "&display=1", "&out=1", "&out=flush&display=1"] {
            // The time limit costs a second each.
            if kind != "time" || more.is_empty() || more == "&display=1" {
                cases.queries("errors.php", &[&format!("kind={kind}{more}")]);
            }
        }
    }
}
