//! Whole applications, walked through beside Puma.

use std::path::PathBuf;

use sendoff_tests::{Client, Request, Response, Server, Site, assert_same, pattern, repository};

use super::application::{Application, Puma};
use super::{front, line};

/// A browser's cookies at one server.
#[derive(Default)]
pub struct Browser(Vec<(String, String)>);

impl Browser {
    /// Asks with the cookies that the server has set before.
    pub fn ask(&mut self, client: &mut Client, request: &Request) -> Response {
        let cookies: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = request.clone().header("Cookie", &cookies.join("; "));
        let response = client.ask(&request);
        for line in response.head.all("Set-Cookie") {
            let pair = line.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.0.retain(|(known, _)| known != name);
                self.0.push((name.to_owned(), value.to_owned()));
            }
        }
        response
    }
}

fn sinatra_requests() -> Vec<Request> {
    let form = "application/x-www-form-urlencoded";
    let mut all = vec![
        Request::get("/"),
        Request::post("/basket", form, "item=tea"),
        Request::post("/basket", form, "item=caf%C3%A9+%26+milk"),
        Request::get("/"),
        Request::upload("/upload", "file", "a.bin", &pattern(1, 500)),
        Request::upload("/upload", "file", "b.bin", &pattern(2, 500_000)),
        Request::get("/download/large.bin").header("Range", "bytes=100-200000"),
        Request::get("/cached").header("If-None-Match", "\"one\""),
        Request::new("HEAD", "/download/large.bin"),
        Request::new("HEAD", "/"),
        Request::new("DELETE", "/"),
        Request::get("/stream").http10(),
    ];
    let pages = [
        "/download/large.bin",
        "/download/small.txt",
        "/download/none",
        "/large.bin",
        "/stream",
        "/cached",
        "/fields",
        "/old",
        "/error",
        "/caf%C3%A9",
        "/nowhere/at%20all?x=%zz",
    ];
    all.extend(pages.map(Request::get));
    all
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn a_sinatra_site_answers_as_on_puma() {
    let site = Site::with("small.txt", "small");
    site.write("large.bin", pattern(3, 3_000_000));
    let config: PathBuf = repository::root().join("languages/ruby/tests/sinatra.ru");
    let application = Application::start(&site, &config, &["workers=2"]);
    let puma = Puma::start(&site, &config, |_| {});
    for delivery in ["auto", "direct", "file", "relay"] {
        let server: Server = front(&site, &application, &["--delivery", delivery]);
        let (mut here, mut there) = (Browser::default(), Browser::default());
        for request in sinatra_requests() {
            // Links in responses name the host.
            let request = request.header("Host", "shop.test");
            let theirs = there.ask(&mut Client::connect(puma.addr()), &request);
            let ours = here.ask(&mut server.connect(), &request);
            let what = format!("{delivery}: {}", line(&request));
            // Session cookies are encrypted with a number used once.
            assert_same(&what, &without_cookies(theirs), &without_cookies(ours));
        }
    }
}

/// A response whose cookies have lost their values.
pub fn without_cookies(mut response: Response) -> Response {
    for (name, value) in &mut response.head.headers {
        if name.eq_ignore_ascii_case("set-cookie") {
            let (start, rest) = value.split_once('=').unwrap_or_default();
            let attributes = rest.split_once(';').map_or("", |(_, attributes)| attributes);
            *value = format!("{start}=; {attributes}");
        }
    }
    response
}
