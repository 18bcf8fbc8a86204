//! `root` and `alias` of locations: no file of another folder is sent.

use crate::original::Original;

#[test]
fn a_path_goes_on_without_a_slash() {
    let lines = "location / { deny all; }
        location /priv { alias OUTSIDE/pub; }
        location /lib { root OUTSIDE; location ~ \\.txt$ { expires 1h; } }
        location /try { root OUTSIDE; try_files $uri /priv/a.txt; }";
    let files = [
        "private/x.txt",
        "priv.txt",
        "library/x.txt",
        "library/x.css",
        "tryst.txt",
        "try/none.txt",
        "../data/pub/a.txt",
        "../data/lib/a.txt",
        "../data/lib/a.css",
        "../data/try/a.txt",
    ];
    let pair = Original::start(lines, &files);
    pair.same("/private/x.txt /priv.txt /priv/a.txt /priv/none /library/x.txt /library/x.css");
    pair.same("/lib/a.txt /lib/a.css /try/a.txt /trying.txt /try/none.txt /private/ /library/");
    pair.refuses("/tryst.txt");
}

#[test]
fn locations_beside_the_one_with_the_alias() {
    let lines = "location /img/ { alias OUTSIDE/img/; }
        location /img/own/ { }
        location = /img/exact.txt { }
        location /app/ { alias OUTSIDE/app/; }
        location ^~ /kept/ { alias OUTSIDE/img/; }
        location ~ \\.png$ { expires 1h; }
        location ~ \\.php$ { include /etc/nginx/fastcgi.conf; fastcgi_pass PHP; }";
    let files = [
        "a.png",
        "x.php",
        "img/own/a.txt",
        "img/a.txt",
        "../data/img/a.txt",
        "../data/img/a.png",
        "../data/img/exact.txt",
        "../data/img/own/b.txt",
        "../data/app/x.php",
        "../data/app/a.txt",
    ];
    let pair = Original::start(lines, &files);
    pair.same("/a.png /x.php /img/a.txt /img/a.png /img/exact.txt");
    pair.refuses("/img/own/a.txt");
    pair.refuses("/img/own/b.txt");
    pair.same("/app/a.txt /kept/a.png /kept/a.txt");
    pair.closed("/app/x.php /app/x.php/more");
}
