//! Debian's Redmine 5 (Rails), beside Puma on the same database.

use std::path::PathBuf;
use std::process::Command;

use sendoff_tests::{Client, Request, Response, Server, Site, assert_same, repository};

use super::application::{Application, Puma, rack};
use super::sites::{Browser, without_cookies};
use super::{front, line};

const REDMINE: &str = "/usr/share/redmine";

/// An instance in a folder of its own, on SQLite.
struct Instance(PathBuf);

impl Instance {
    fn new(site: &Site) -> Self {
        let instance = Self(site.outside("redmine"));
        for folder in ["config", "files", "log", "tmp", "public"] {
            std::fs::create_dir_all(instance.0.join(folder)).unwrap();
        }
        let write = |name: &str, text: &str| std::fs::write(instance.0.join(name), text).unwrap();
        let database = instance.0.join("db.sqlite");
        write(
            "config/database.yml",
            &format!(
                "production:\n  adapter: sqlite3\n  timeout: 20000\n  database: {}\n",
                database.display()
            ),
        );
        write("config/secret_key.txt", &"0123456789abcdef".repeat(4));
        // As an administrator does in Gemfile.local.
        write(
            "Gemfile",
            &format!(
                "eval_gemfile '{REDMINE}/Gemfile'\ngem 'sqlite3', '~> 1.4'\ngem 'puma'\ngem 'sendoff'\n"
            ),
        );
        let seeds = repository::root().join("languages/ruby/tests/redmine.rb");
        instance.run(site, &["rake", "db:migrate"]);
        instance.run(site, &["rake", "redmine:load_default_data"]);
        instance.run(site, &["rails", "runner", seeds.to_str().unwrap()]);
        instance
    }

    fn run(&self, site: &Site, what: &[&str]) {
        let mut command = rack("bundle", site);
        command.arg("exec").args(what);
        self.settle(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what:?}: {text}");
    }

    /// Has a command work on this instance.
    fn settle(&self, command: &mut Command) {
        // Redmine looks for instances beneath its own folder.
        let upwards = "../../../..";
        command
            .current_dir(REDMINE)
            .env("REDMINE_INSTANCE", format!("{upwards}{}", self.0.display()))
            .env("BUNDLE_GEMFILE", self.0.join("Gemfile"))
            .env("HOME", &self.0)
            .env("RAILS_ENV", "production")
            .env("REDMINE_LANG", "en")
            .env("SCHEMA", "/dev/null");
    }
}

fn pages() -> Vec<Request> {
    let mut all: Vec<Request> = [
        "/",
        "/login",
        "/projects",
        "/projects/trials",
        "/projects/trials/issues",
        "/projects/trials/issues.csv",
        "/projects/trials/issues.atom",
        "/issues/1",
        "/issues/1.json",
        "/issues.xml?limit=2",
        "/issues/999",
        "/projects/trials/wiki",
        "/projects/trials/wiki/Wiki.txt",
        "/projects/trials/activity.atom",
        "/attachments/1",
        "/attachments/download/1/large.bin",
        "/attachments/download/2/page.bin",
        "/attachments/download/3/small.txt",
        "/attachments/download/99/none",
        "/my/page",
        "/admin",
        "/users/1",
        "/no/such/page",
        "/search?q=Issue&issues=1",
    ]
    .map(Request::get)
    .into();
    let large = "/attachments/download/1/large.bin";
    all.push(Request::get(large).header("Range", "bytes=1000-2000"));
    all.push(Request::new("HEAD", large));
    all.push(Request::new("HEAD", "/projects"));
    all.push(Request::get(large).http10());
    all
}

/// The response without the parts that differ from response to response on any server: tokens, and
/// values derived from tokens.
fn normal(response: Response) -> Response {
    let mut response = without_cookies(response);
    let dropped = ["x-request-id", "x-runtime", "etag"];
    response.head.headers.retain(|(name, _)| !dropped.contains(&&*name.to_ascii_lowercase()));
    if response.header("Content-Type").is_some_and(|kind| kind.starts_with("text/html")) {
        let mut page = response.text();
        for start in ["csrf-token\" content=\"", "authenticity_token\" value=\"", "form-"] {
            page = without_values(&page, start);
        }
        response.body = page.into_bytes();
    }
    response
}

fn without_values(page: &str, start: &str) -> String {
    let mut parts = page.split(start);
    let mut left = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        left.push_str(start);
        left.push_str(part.split_once('"').map_or("", |(_, rest)| rest));
    }
    left
}

fn token(page: &Response) -> String {
    let text = page.text();
    let (_, rest) = text.split_once("authenticity_token\" value=\"").unwrap();
    rest.split('"').next().unwrap().replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

const FORM: &str = "application/x-www-form-urlencoded";

fn log_in(browser: &mut Browser, client: &mut Client, password: &str) -> Response {
    let form = browser.ask(client, &named(Request::get("/login")));
    let token = token(&form);
    let fields = format!("authenticity_token={token}&username=admin&password={password}");
    browser.ask(client, &named(Request::post("/login", FORM, fields)))
}

fn named(request: Request) -> Request {
    request.header("Host", "redmine.test")
}

/// An issue with an attachment: uploaded, stored, downloaded.
fn report(browser: &mut Browser, connect: impl Fn() -> Client) -> Vec<Response> {
    let form = browser.ask(&mut connect(), &named(Request::get("/projects/trials/issues/new")));
    let content: Vec<u8> = (0..=255).cycle().take(1_500_000).collect();
    let upload = Request::post(
        "/uploads.js?attachment_id=1&filename=up.bin",
        "application/octet-stream",
        content,
    );
    let text = form.text();
    let (_, rest) = text.split_once("csrf-token\" content=\"").unwrap();
    let upload = upload.header("X-CSRF-Token", rest.split('"').next().unwrap());
    let uploaded = browser.ask(&mut connect(), &named(upload));
    let text = uploaded.text();
    let (_, rest) = text.split_once(".val('").unwrap();
    let stored = rest.split('\'').next().unwrap();
    let fields = format!(
        "authenticity_token={}&issue[tracker_id]=1&issue[subject]=New&issue[status_id]=1&issue[priority_id]=1\
         &attachments[1][filename]=up.bin&attachments[1][token]={stored}",
        token(&form)
    );
    let created =
        browser.ask(&mut connect(), &named(Request::post("/projects/trials/issues", FORM, fields)));
    let place = created.header("Location").unwrap_or_default().to_owned();
    let path = place.trim_start_matches("http://redmine.test").to_owned();
    let issue = browser.ask(&mut connect(), &named(Request::get(&path)));
    let text = issue.text();
    let (_, rest) = text.split_once("/attachments/download/").unwrap();
    let download = format!("/attachments/download/{}", rest.split('"').next().unwrap());
    let download = browser.ask(&mut connect(), &named(Request::get(&download)));
    vec![form, created, download]
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn redmine_answers_as_on_puma() {
    let site = Site::new();
    let instance = Instance::new(&site);
    let settle = |command: &mut Command| instance.settle(command);
    let config = PathBuf::from(REDMINE).join("config.ru");
    let application = Application::start_with(&site, &config, &["workers=2"], settle);
    let puma = Puma::start(&site, &config, settle);
    let server: Server = front(&site, &application, &[]);
    let connect_there = || Client::connect(puma.addr());
    let (mut here, mut there) = (Browser::default(), Browser::default());
    let mut compared = 0;
    for password in ["", "wrong", "a+password+of+24+letters"] {
        if !password.is_empty() {
            let theirs = log_in(&mut there, &mut connect_there(), password);
            let ours = log_in(&mut here, &mut server.connect(), password);
            assert_same(password, &normal(theirs), &normal(ours));
        }
        for request in pages() {
            let request = named(request);
            // The first visit may change the state, such as the list of recently used projects.
            let _first = there.ask(&mut connect_there(), &request);
            let theirs = there.ask(&mut connect_there(), &request);
            let ours = here.ask(&mut server.connect(), &request);
            assert_same(&line(&request), &normal(theirs), &normal(ours));
            compared += 1;
        }
    }
    let theirs = report(&mut there, connect_there);
    let ours = report(&mut here, || server.connect());
    assert_eq!((theirs[1].status(), ours[1].status()), (302, 302));
    assert_eq!(ours[2].expect(200).len(), 1_500_000);
    assert_same("the upload", &normal(theirs[2].clone()), &normal(ours[2].clone()));
    eprintln!("{compared} pages of Redmine compared");
}
