//! Folders whose entries are listed (`docs/listing.md`): what the site would not serve is not named.

use std::ffi::OsStr;
use std::fs::set_permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use sendoff_tests::{Request, Server, Site};

fn serve(site: &Site, routes: &str) -> Server {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = 'root'\n{routes}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

const LISTING: &str = "[[site.route]]\nlisting = true\n";

/// The names in the listing of a folder, in their order.
fn names(server: &Server, target: &str) -> Vec<String> {
    let response = server.ask(&Request::get(target).header("Accept", "application/json"));
    let entries: serde_json::Value = serde_json::from_slice(response.expect(200)).unwrap();
    let name = |entry: &serde_json::Value| entry["name"].as_str().unwrap().to_owned();
    entries.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn a_page_has_links_sizes_and_times() {
    let site = Site::with("files/b.txt", "12345");
    site.write("files/A <i>&\"'.txt", "x");
    site.write("files/sub/c.txt", "x");
    site.write("files/big.iso", vec![0; 3 << 20]);
    std::fs::write(site.path("files").join(OsStr::from_bytes(b"caf\xe9:%?#.txt")), "latin")
        .unwrap();
    let server = serve(&site, LISTING);
    assert_eq!(server.get("/files").header("Location"), Some("/files/"));
    let response = server.get("/files/");
    let page = response.text();
    assert_eq!(response.status(), 200);
    assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(response.header("Content-Security-Policy").unwrap().contains("default-src 'none'"));
    assert!(page.contains("<title>Index of /files/</title>") && page.contains("href=\"../\""));
    let escaped = "<bdi>A &lt;i&gt;&amp;&quot;&#39;.txt</bdi>";
    assert!(page.contains(escaped) && !page.contains("<i>"), "{page}");
    assert!(page.contains("</bdi></a></td><td>3.0M</td><td>"), "{page}");
    // Each link leads to its file.
    let links: Vec<_> =
        page.split("href=\"./").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(links.len(), 5, "{links:?}");
    for link in links {
        let status =
            server.get(&format!("/files/{}", link.replace("&amp;", "&").replace("&#39;", "'")));
        assert_eq!(status.status(), 200, "{link}");
    }
    assert_eq!(server.get("/files/b.txt").text(), "12345");
    assert!(!server.get("/").text().contains("href=\"../\""));
    assert_eq!(server.ask(&Request::post("/files/", "text/plain", "x")).status(), 405);
    let head = server.ask(&Request::new("HEAD", "/files/"));
    assert_eq!(head.header("Content-Length"), Some(&*page.len().to_string()));
}

#[test]
fn entries_are_sorted_and_json_is_for_programs() {
    let site = Site::with("b.txt", "12345");
    site.write("A.txt", "1");
    site.write("c.txt", "123");
    site.write("z/f", "");
    let server = serve(&site, LISTING);
    assert_eq!(names(&server, "/"), ["z", "A.txt", "b.txt", "c.txt"]);
    assert_eq!(names(&server, "/?sort=name&order=desc"), ["z", "c.txt", "b.txt", "A.txt"]);
    assert_eq!(names(&server, "/?sort=size&order=desc"), ["z", "b.txt", "c.txt", "A.txt"]);
    assert_eq!(names(&server, "/?sort=size"), ["z", "A.txt", "c.txt", "b.txt"]);
    let response = server.ask(&Request::get("/").header("Accept", "application/json"));
    let entries: serde_json::Value = serde_json::from_slice(response.expect(200)).unwrap();
    assert_eq!((&entries[0]["type"], &entries[0]["url"]), (&"directory".into(), &"./z/".into()));
    assert_eq!((&entries[2]["size"], &entries[2]["type"]), (&5.into(), &"file".into()));
    assert!(entries[2]["mtime"].as_str().unwrap().ends_with(" GMT"));
    let browser = Request::get("/").header("Accept", "text/html,application/json;q=0.9");
    assert!(server.ask(&browser).text().starts_with("<!DOCTYPE html>"));
}

#[test]
fn what_is_not_served_is_not_named() {
    let site = Site::with("a.txt", "a");
    for name in [
        ".env",
        ".git/config",
        "dump.sql",
        "a.txt~",
        "run.php",
        "secret/x",
        "team/x",
        "office/x",
        "private.key",
        "closed/.htaccess",
        "closed/x",
    ] {
        site.write(name, "x");
    }
    site.write_at(site.outside("users"), "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n");
    site.write_at(site.outside("other.txt"), "other");
    symlink(site.outside("other.txt"), site.path("leads-out.txt")).unwrap();
    symlink("missing", site.path("broken.txt")).unwrap();
    symlink("a.txt", site.path("link.txt")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        site.path("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let routes = format!(
        "symlinks = 'inside'\n[[site.route]]\nprefix = '/secret'\ndeny = true\n\
         [[site.route]]\nextension = 'key'\ndeny = true\nstatus = 404\n\
         [[site.route]]\nprefix = '/team'\nauth = {{ users = 'users' }}\n\
         [[site.route]]\nprefix = '/office'\nallow_from = '192.0.2.0/24'\n{LISTING}"
    );
    let server = serve(&site, &routes);
    assert_eq!(names(&server, "/"), ["a.txt", "link.txt"]);
    assert_eq!(server.get("/secret/").status(), 403);
    assert_eq!(server.get("/team/").status(), 401);
    assert_eq!(server.get("/office/").status(), 403);
    // Its .htaccess file may hide parts of it.
    assert_eq!(server.get("/closed/").status(), 403);
    assert_eq!(server.get("/.git/").status(), 403);
    // `ada`, whose password is `secret`, has passed the same question for the entries.
    let ada = Request::get("/team/").header("Authorization", "Basic YWRhOnNlY3JldA==");
    let response = server.ask(&ada.header("Accept", "application/json"));
    assert!(response.text().contains("\"name\":\"x\""), "{}", response.text());
}

#[test]
fn an_index_file_answers_and_other_routes_list_nothing() {
    let site = Site::with("with/index.html", "index");
    site.write("without/a.txt", "a");
    let server = serve(&site, "[[site.route]]\nprefix = '/with'\nlisting = true\n");
    assert_eq!(server.get("/with/").text(), "index");
    assert_eq!(server.get("/without/").status(), 403);
}

/// The front runs as the owner of the site, whom the modes alone shut out.
#[test]
fn what_the_server_cannot_read_is_not_named() {
    for htaccess in ["'auto'", "false"] {
        let site = Site::with("a.txt", "a");
        let modes =
            [("unreadable.txt", 0o000), ("shut", 0o000), ("no-names", 0o311), ("no-way", 0o444)];
        for folder in ["shut", "no-names", "no-way"] {
            site.write(&format!("{folder}/x.txt"), "x");
        }
        site.write("unreadable.txt", "x");
        symlink("unreadable.txt", site.path("link.txt")).unwrap();
        let server = serve(&site, &format!("htaccess = {htaccess}\n{LISTING}"));
        for (name, mode) in modes {
            set_permissions(site.path(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        assert_eq!(server.get("/unreadable.txt").status(), 403);
        assert_eq!(server.get("/no-names/x.txt").status(), 200);
        assert_ne!(server.get("/no-way/x.txt").status(), 200);
        assert_eq!(names(&server, "/"), ["no-names", "a.txt"], "{htaccess}");
        for (name, _) in modes {
            set_permissions(site.path(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
}

#[test]
fn names_in_json_are_exact() {
    let site = Site::new();
    for name in ["a\nb\u{7f}.txt", "c\td \"\\.txt", "é.txt"] {
        site.write(name, "x");
    }
    let server = serve(&site, LISTING);
    assert_eq!(names(&server, "/"), ["a\nb\u{7f}.txt", "c\td \"\\.txt", "é.txt"]);
    // A line of the page stays a line.
    assert!(server.get("/").text().contains("<bdi>a\u{fffd}b\u{fffd}.txt</bdi>"));
}
