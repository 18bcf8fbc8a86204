//! Locations within locations: nginx descends into the longest prefix of each block.

use crate::original::Original;

/// The answers of scripts.
const PHP: &str = "include /etc/nginx/fastcgi.conf; fastcgi_pass PHP;";

#[test]
fn a_location_for_scripts_keeps_the_rules_of_its_own_folder() {
    let lines = format!(
        "index index.php;
        location / {{ try_files $uri $uri/ =404; location ~ \\.php$ {{ {PHP} }} }}
        location /admin/ {{ auth_basic x; auth_basic_user_file USERS; location ~ \\.php$ {{ {PHP} }} }}
        location /lan/ {{ deny all; location ~ \\.php$ {{ allow 192.0.2.1; deny all; {PHP} }} }}
        location /app/ {{ location ~ \\.php$ {{ {PHP} }}
            location /app/lan/ {{ deny all; location ~ \\.php$ {{ allow 192.0.2.1; deny all; {PHP} }} }} }}"
    );
    let folders = ["", "admin/", "lan/", "app/", "app/lan/"];
    let files: Vec<_> = folders
        .iter()
        .flat_map(|folder| ["index.php", "x.php", "a.txt"].map(|file| format!("{folder}{file}")))
        .collect();
    let pair = Original::start(&lines, &files.iter().map(String::as_str).collect::<Vec<_>>());
    for folder in folders {
        pair.same(&format!("/{folder}x.php /{folder}a.txt /{folder} /{folder}none.php"));
    }
}

#[test]
fn an_expression_is_asked_for_what_a_nested_one_does_not_get() {
    let lines = "location / { location ~ \\.(inc|txt|css)$ { add_header X-Test nested; } }
        location /private/ { location = /private/open.txt { } }
        location ^~ /kept/ { location ^~ /kept/more/ { } location ~ \\.css$ { add_header X-Test kept; } }
        location /kept/given/ { }
        location ~ ^/private/sub/ { deny all; }
        location ~ \\.(inc|txt)$ { deny all; }
        location ~ \\.css$ { add_header X-Test top; }";
    let files = [
        "a.txt",
        "a.css",
        "private/a.txt",
        "private/a.css",
        "private/open.txt",
        "private/sub/a.css",
        "private/sub/a.html",
        "kept/a.css",
        "kept/a.txt",
        "kept/more/a.css",
        "kept/more/a.txt",
        "kept/given/a.css",
        "kept/given/a.txt",
    ];
    let pair = Original::start(lines, &files);
    for file in files {
        pair.same(&format!("/{file}"));
    }
}

#[test]
fn a_nested_location_is_not_reached_where_a_neighbour_is_longer() {
    let lines = "location / {
            location = /admin/a.txt { }
            location /admin/open/ { }
            location ^~ /admin/kept/ { }
            location ~ ^/admin/.*\\.html$ { }
        }
        location /admin/ { deny all; location = /admin/own.txt { allow all; } }
        location /a/ { location /a/b/c/ { } location /a/b/d/e/ { deny all; } }
        location /a/b/ { deny all; location /a/b/d/ { allow all; } }
        location ^~ /fixed/ { location /fixed/x/ { } }
        location ~ \\.png$ { deny all; }";
    let files = [
        "admin/a.txt",
        "admin/own.txt",
        "admin/open/a.txt",
        "admin/kept/a.txt",
        "admin/kept/a.png",
        "admin/a.html",
        "a/a.txt",
        "a/b/a.txt",
        "a/b/c/a.txt",
        "a/b/d/a.txt",
        "a/b/d/e/a.txt",
        "fixed/x/a.png",
        "fixed/a.png",
        "a/a.png",
    ];
    let pair = Original::start(lines, &files);
    for file in files {
        pair.same(&format!("/{file}"));
    }
}

#[test]
fn the_rules_of_a_folder_hold_beside_those_of_a_folder_in_it() {
    let lines = "location /private/ { location ~ \\.txt$ { expires 1h; }
            location /private/sub/ { deny all; location ~ \\.txt$ { expires 2h; } } }";
    let files = ["private/a.txt", "private/a.css", "private/sub/a.txt", "private/sub/a.css"];
    let pair = Original::start(lines, &files);
    pair.same("/private/a.txt /private/a.css /private/sub/a.txt /private/sub/a.css");
}
