//! Examples of the documents, as configurations of the servers that a walk visits.

use sendoff_tests::{Fpm, Request, Server, Site, Stock, repository};

/// The keys and routes of `[[site]]`, without its root, in the example of `document` for Debian's
/// configuration at `path`. In both texts `folders` are replaced by folders of the test.
pub(crate) fn example(document: &str, path: &str, folders: &[(&str, String)]) -> String {
    let text = std::fs::read_to_string(repository::root().join("docs").join(document)).unwrap();
    let named = text.find(&format!("`{path}`")).unwrap_or_else(|| panic!("{document}: no {path}"));
    let (_, rest) = text[named..].split_once("```toml\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let (_, site) = block.split_once("root = ").expect(block);
    let (_, keys) = site.split_once('\n').unwrap();
    replaced(keys, folders)
}

/// A configuration that a Debian package brings, with `folders` replaced.
pub(crate) fn shipped(path: &str, folders: &[(&str, String)]) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    replaced(&text, folders)
}

fn replaced(text: &str, folders: &[(&str, String)]) -> String {
    folders.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The `server` of a configuration of nginx, without the lines that a test sets itself: addresses,
/// names, the root, the socket of PHP. Lines for PHP that are commented out are in use.
fn server(text: &str, php: &str) -> String {
    let (_, rest) = text.split_once("\nserver {").unwrap();
    let (block, _) = rest.split_once("\n}").unwrap();
    let mut lines = String::new();
    let mut in_use = false;
    for line in block.lines() {
        let line = match line.trim().strip_prefix('#') {
            Some(code) if code.starts_with("location") => {
                in_use = true;
                code
            }
            Some(code) if in_use => {
                in_use = code != "}";
                code
            }
            Some(_) => continue,
            None => line,
        };
        let name = line.split_whitespace().next().unwrap_or_default();
        match name {
            // Comments, the other way to PHP, and lines that the test sets itself.
            "#" | "listen" | "server_name" | "root" | "access_log" => {}
            // "Add index.php to the list if you are using PHP", says Debian's file.
            "index" if !line.contains("index.php") => lines += &line.replace(';', " index.php;\n"),
            "fastcgi_pass" if line.contains("127.0.0.1") => {}
            "fastcgi_pass" => lines += &format!("fastcgi_pass {php};\n"),
            "include" => lines += &line.replace("snippets/", "/etc/nginx/snippets/"),
            _ => lines += &format!("{line}\n"),
        }
    }
    lines
}

/// Asks Sendoff with the document's example, and nginx with the configuration that it is for.
fn compare(path: &str, files: &[(&str, &str)], requests: &[(&str, u16)]) {
    let site = Site::new();
    for (name, text) in files {
        site.write_at(site.outside(name), text);
    }
    let root = site.root().display().to_string();
    let folders =
        [("/var/lib/wordpress/wp-content", site.outside("wp-content").display().to_string())];
    let fpm = Fpm::start_with(site.root(), "", &[]);
    let nginx = Stock::nginx(site.root(), "", &server(&shipped(path, &folders), &fpm.address()));
    let config = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\nuser = 'www-data'\n[[pool]]\nworkers = 1\n[[site]]\nroot = '{root}'\nhtaccess = false\n{}",
        example("from-nginx.md", path, &folders)
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let ours = Server::try_run(&config, site.root(), 1).unwrap_or_else(|e| panic!("{}", e.stderr));
    let mut wrong = Vec::new();
    for (target, expected) in requests {
        let request = Request::get(target);
        let (our, their) = (ours.ask(&request), nginx.ask(&request));
        let caches = |response: &sendoff_tests::Response| {
            response.header("cache-control").map(str::to_owned)
        };
        let same = *expected >= 300 || (our.body == their.body && caches(&our) == caches(&their));
        if our.status() != *expected || their.status() != *expected || !same {
            wrong.push(format!("{target}: {our:?}\n{their:?}\nexpected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{path}:\n{}\n{}", wrong.join("\n"), nginx.log());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: servers that run scripts as www-data")]
fn default_site_of_nginx_as_root() {
    compare(
        "/etc/nginx/sites-available/default",
        &[
            ("root/index.html", "home\n"),
            ("root/a.php", "<?php echo 'a ran ', $_SERVER['QUERY_STRING'];"),
            ("root/folder/index.php", "<?php echo 'the index ran';"),
            ("root/empty/a.txt", "text\n"),
            ("root/.htaccess", "Require all denied\n"),
        ],
        &[
            ("/", 200),
            ("/index.html", 200),
            ("/a.php?b=c", 200),
            ("/folder/", 200),
            ("/folder", 301),
            ("/empty/a.txt", 200),
            ("/empty/", 403),
            ("/none", 404),
            ("/none.php", 404),
            ("/.htaccess", 403),
        ],
    );
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: servers that run scripts as www-data")]
fn wordpress_as_debian_shows_it_for_nginx_as_root() {
    compare(
        "/usr/share/doc/wordpress/examples/nginx-wordpress.conf",
        &[
            ("root/index.php", "<?php echo 'index ran for ', $_SERVER['REQUEST_URI'];"),
            ("root/wp-login.php", "<?php echo 'login ran';"),
            ("root/wp-includes/js/a.js", "js\n"),
            ("root/wp-includes/a.txt", "text\n"),
            ("wp-content/themes/a/style.css", "css\n"),
            ("wp-content/uploads/a.png", "png\n"),
        ],
        &[
            ("/", 200),
            ("/2026/hello-world/", 200),
            ("/?s=hello", 200),
            ("/no-such-page?x=1", 200),
            ("/wp-login.php", 200),
            ("/none.php", 404),
            ("/wp-includes/js/a.js", 200),
            ("/wp-includes/js/none.js", 404),
            ("/wp-includes/a.txt", 200),
            ("/wp-content/themes/a/style.css", 200),
            ("/wp-content/uploads/a.png", 200),
            ("/wp-content/uploads/none.png", 404),
            ("/wp-includes/", 403),
        ],
    );
}
