use super::*;
use sendoff_static_files::CacheLimits;

fn router(site: &sendoff_config::Site) -> Router {
    Router::new(site, None, &CacheShare::new(CacheLimits::default())).unwrap()
}

fn site(files: &[&str]) -> (tempfile::TempDir, Router) {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    let site = sendoff_config::Site::new(dir.path().to_owned());
    let router = router(&sendoff_config::Site { pool: Some(0), ..site });
    (dir, router)
}

fn route(router: &Router, path: &str) -> String {
    match router.route(path.as_bytes()) {
        PathTarget::Script(script) => {
            assert_eq!(script.filename, [router.root_bytes(), &script.name].concat());
            let text = |bytes| String::from_utf8(bytes).unwrap();
            format!("{} {}", text(script.name), text(script.path_info))
        }
        PathTarget::File(entry) => format!("file of {}", entry.size),
        PathTarget::Folder => "folder".to_owned(),
        PathTarget::Listing => "listing".to_owned(),
        PathTarget::Refused { status, .. } => status.as_str().to_owned(),
    }
}

#[test]
fn a_site_without_front_controller() {
    let (_dir, router) = site(&[
        "a.txt",
        "x.php",
        "up.jpg",
        "sub/index.html",
        "p.php/real.txt",
        "empty/d/f",
        "s.PHP",
        ".git/x",
        "q.phtml",
    ]);
    for (path, expected) in [
        ("/a.txt", "file of 1"),
        ("/a.txt/", "404"),
        ("/x.php", "/x.php "),
        ("/x.php/a/b", "/x.php /a/b"),
        ("/x.php/", "/x.php /"),
        ("/x.php/y.php/z", "/x.php /y.php/z"),
        ("/up.jpg/x.php", "404"),
        ("/up.jpg/x.php/y", "404"),
        ("/p.php/real.txt", "file of 1"),
        ("/p.php/none", "404"),
        ("/sub", "folder"),
        ("/sub/", "file of 1"),
        ("/empty/", "403"),
        ("/x.php.", "404"),
        ("/s.PHP", "403"),
        ("/q.phtml", "403"),
        ("/.git/x", "403"),
        ("/none", "404"),
    ] {
        assert_eq!(route(&router, path), expected, "{path}");
    }
}

#[test]
fn a_front_controller_gets_what_is_not_there() {
    let (_dir, router) = site(&["index.php", "a.txt", "sub/f"]);
    for (path, expected) in [
        ("/", "/index.php "),
        ("/blog/2026", "/index.php "),
        ("/none.php", "/index.php "),
        ("/index.php/x", "/index.php /x"),
        ("/sub/", "403"),
        ("/a.txt", "file of 1"),
        ("/.env", "403"),
    ] {
        assert_eq!(route(&router, path), expected, "{path}");
    }
}
