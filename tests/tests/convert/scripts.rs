//! Scripts that nginx sends as texts, because no location passes them to php-fpm: they do not run.

use sendoff_tests::Request;

use crate::original::Original;

const PHP: &str = "include /etc/nginx/fastcgi.conf; fastcgi_pass PHP;";

/// Expects that a script runs only where it runs behind nginx.
fn runs_alike(lines: &str) {
    let files = [
        "index.php",
        "x.php",
        "a.txt",
        "uploads/index.php",
        "uploads/x.php",
        "uploads/a.txt",
        "uploads/e/index.php",
        "uploads/e/s.php",
        "a/uploads/index.php",
        "a/uploads/x.php",
        "a/index.php",
        "a/s.php",
        "admin/index.php",
    ];
    let pair = Original::start(&format!("index index.php index.html;\n{lines}"), &files);
    let names = files.iter().flat_map(|file| {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        [format!("/{file}"), format!("/{file}/more"), format!("/{folder}/").replace("//", "/")]
    });
    for target in names {
        let request = Request::get(&target).header("Host", "example.test");
        let [theirs, ours] = pair
            .ask(&request)
            .map(|answer| (answer.status(), answer.header("x-script").map(str::to_owned)));
        assert!(theirs.1.is_some() || ours.1.is_none(), "{target}: {ours:?}\n{lines}");
        assert!(theirs.1.is_none() || ours == theirs, "{target}: {ours:?}, {theirs:?}\n{lines}");
    }
}

#[test]
fn outside_of_an_expression_with_an_exception() {
    for expression in [
        "^/(?!uploads/).+\\.php$",
        "^(?!.*/uploads/).*\\.php$",
        "^/(?!uploads).*\\.php$",
        "^/(.+/)?[a-r]\\w*\\.php$",
        "^/[^/]+\\.php$",
        "^/(?:a|admin)/.*\\.php$",
        "^/index\\.php(/|$)",
        "^(.+\\.php)(/.+)$",
    ] {
        for tries in
            ["", "try_files $uri $uri/ =404;", "try_files $uri =404;", "try_files /none $uri;"]
        {
            runs_alike(&format!("location / {{ {tries} }} location ~ {expression} {{ {PHP} }}"));
        }
    }
}

#[test]
fn outside_of_a_nested_expression_or_of_a_single_script() {
    runs_alike(&format!(
        "location / {{ try_files $uri $uri/ =404; location ~ ^/(?!uploads/).+\\.php$ {{ {PHP} }} }}"
    ));
    runs_alike(&format!(
        "location / {{ location ~ \\.php$ {{ {PHP} }} }} location /uploads/ {{ expires 1h; }}"
    ));
    runs_alike(&format!(
        "location = /uploads/e/ {{ }} location = / {{ }} location = /x.php {{ {PHP} }}"
    ));
    runs_alike(&format!(
        "location ~ ^/uploads/.*\\.(html|p[h]p)$ {{ try_files $uri =404; }}
        location ~ ^/a/ {{ try_files $uri $uri/ =404; }}
        location ~ \\.php$ {{ {PHP} }}"
    ));
}

#[test]
fn outside_of_expressions_for_all_scripts() {
    for expression in ["\\.php$", "[^/]\\.php(/|$)", "^(.+\\.php)(/.*)?$", "\\.(php|phar)$"] {
        runs_alike(&format!(
            "location / {{ try_files $uri $uri/ =404; }} location ^~ /uploads/ {{ }}
            location ~ {expression} {{ {PHP} }}"
        ));
    }
}
