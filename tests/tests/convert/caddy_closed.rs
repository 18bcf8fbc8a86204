//! Caddyfiles in which a directive closes or changes something in an unusual way.

use sendoff_tests::Request;

use crate::original::Original;

fn get(target: &str) -> Request {
    Request::get(target).header("Host", "example.test")
}

#[test]
fn files_of_the_configuration_are_hidden() {
    // The contents of this file are its name.
    let lines = "root * ROOT
        import ROOT/templates
        handle /a/* {
            file_server
        }
        file_server browse";
    let pair = Original::caddy(lines, &["templates", "a.txt", "a/templates"]);
    pair.same("/templates /a.txt");
    pair.closed("/templates /templates/ //templates /%74emplates");
}

#[test]
fn parameters_that_applications_read_in_different_ways() {
    let lines = "root * ROOT
        @view query action=view
        handle @view {
            file_server
        }
        respond 403";
    let pair = Original::caddy(lines, &["a.txt"]);
    pair.same("/a.txt /a.txt?action=view /a.txt?x=1&action=view /a.txt?action=delete");
    pair.closed(
        "/a.txt?action=delete&action[]=view /a.txt?action=delete&x;action=view /a.txt?action=delete&+action=view",
    );
}

#[test]
fn more_directives_than_a_run_of_the_sort() {
    let mut lines = "root * ROOT\n".to_owned();
    // From a search for orders in which both ways of sorting differ.
    let blocks = [
        "/p0zzzzzzzz/*",
        "/p1zzzzzz/*",
        "@n2",
        "/p3zzzzz/*",
        "/p4zzzzzzz/*",
        "/p5zzzzzzz/*",
        "/p6zzz/*",
        "/p7zzz/*",
        "/p8z/*",
        "/p9zzzzzz/*",
        "/p10zzzz/*",
        "@n11",
        "@n12",
        "/p13zzz/*",
        "@n14",
        "/p15zzzzzzz/*",
        "@n16",
        "@key",
        "/p17/*",
        "@n18",
        "@n19",
        "/p20zzzzzzzz/*",
        "/p21zz/*",
        "/p22zzzz/*",
        "/private/*",
    ];
    for block in blocks {
        match block {
            "@key" => lines.push_str("@key header X-Key k\nhandle @key {\nfile_server\n}\n"),
            "/private/*" => lines.push_str("handle /private/* {\nrespond \"denied\" 403\n}\n"),
            _ => {
                if let Some(name) = block.strip_prefix('@') {
                    lines.push_str(&format!("@{name} path /{name}/a /{name}/b\n"));
                }
                let name = block.trim_matches(['@', '/', '*']);
                lines.push_str(&format!("handle {block} {{\nrespond {name}\n}}\n"));
            }
        }
    }
    let pair = Original::caddy(&lines, &["private/a.txt", "a.txt"]);
    for path in ["/private/a.txt", "/n2/a", "/p17/x", "/p20zzzzzzzz/x"] {
        pair.same_answer(path, &get(path));
        pair.same_answer(&format!("{path} with a key"), &get(path).header("X-Key", "k"));
    }
    pair.same_answer("a file", &get("/a.txt").header("X-Key", "k"));
}

#[test]
fn scripts_of_a_part_of_the_site() {
    let lines = "root * ROOT
        php_fastcgi /blog/* PHP
        file_server";
    let files = ["index.php", "blog/a.txt", "blog/index.php", "blog/x.php", "a.txt"];
    let pair = Original::caddy(lines, &files);
    pair.same("/blog/post /blog/post?a=b /blog/ /blog/x.php /blog/x.php/info /blog/a.txt /a.txt");
}

#[test]
fn index_files_of_one_file_server() {
    let lines = "root * ROOT
        handle /a/* {
            file_server {
                index x.txt
            }
        }
        file_server /b/* browse
        file_server";
    let files = ["a/x.txt", "a/index.html", "b/index.html", "b/x.txt", "c/index.html"];
    let pair = Original::caddy(lines, &files);
    pair.same("/b/ /c/ /a/x.txt /a/index.html");
    pair.refuses("/a/");
}

#[test]
fn changes_of_one_field() {
    let lines = "header /a/* {
            +X-Test a
            +X-Test b
        }
        header /b/* {
            X-Test one
            +X-Test two
        }
        header /b/* +X-Test three
        header /c/* {
            -X-Test
            +X-Test two
        }
        respond text";
    let pair = Original::caddy(lines, &[]);
    pair.same("/a/x /b/x /c/x /d");
}

#[test]
fn fields_that_tell_about_the_client() {
    let lines = "handle /up/* {
            reverse_proxy 127.0.0.1:APP {
                header_up X-Forwarded-Proto https
            }
        }
        request_header /rule/* X-Forwarded-Proto https
        reverse_proxy 127.0.0.1:APP";
    let pair = Original::caddy(lines, &[]);
    for path in ["/up/x", "/rule/x", "/x"] {
        let request = get(path).header("X-Forwarded-For", "9.9.9.9");
        pair.same_answer(path, &request.header("X-Forwarded-Proto", "gopher"));
    }
}

#[test]
fn several_rewrites_with_groups() {
    let lines = "@old path_regexp old ^/old/([a-z]+)$
        rewrite @old /new/{re.old.1}
        rewrite /foo /bar
        respond {path}";
    let pair = Original::caddy(lines, &[]);
    for path in ["/old/abc", "/old/a1", "/foo", "/x"] {
        pair.closed(path);
        let [theirs, ours] = pair.ask(&get(path));
        assert_eq!(ours.text(), theirs.text(), "{path}");
    }
}
