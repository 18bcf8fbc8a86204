//! Runs the commands of docs/first-site.md in order, in separate namespaces that leave the machine
//! unchanged. Also checks the configurations and keys in docs/from-nginx.md, docs/from-apache.md and
//! docs/from-caddy.md and docs/from-unit.md.

use std::fs;
use std::process::Command;

use sendoff_tests::{Site, binary, repository, sendoff};

/// The machine with which the page begins: it has a network, and a MariaDB that its package has
/// started. `apt-get` only simulates an installation on a machine with Sendoff's package;
/// `systemctl` runs the commands of the unit.
const MACHINE: &str = r#"set -eu
ip link set lo up
mount -t tmpfs none /run
mkdir /run/mysqld /run/etc /run/work
mount -t overlay -o "lowerdir=/etc,upperdir=/run/etc,workdir=/run/work" none /etc
mkdir /run/lib /run/lib-work
mount -t overlay -o "lowerdir=/var/lib/wordpress,upperdir=/run/lib,workdir=/run/lib-work" none /var/lib/wordpress
PATH="$HERE/bin:$PATH"
mariadb-install-db --no-defaults --user=root --datadir="$HERE/data" --auth-root-authentication-method=socket >"$HERE/log" 2>&1
mariadbd --no-defaults --user=root --datadir="$HERE/data" --skip-networking --socket=/run/mysqld/mysqld.sock >>"$HERE/log" 2>&1 &
mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock --wait=30 ping
"#;

/// The requests of the user's browser.
const VISITOR: &str = r##"<?php
$cookies = [];
function ask($target, $form = null, $type = 'application/x-www-form-urlencoded') {
    global $cookies;
    $fields = ['Cookie: ' . implode('; ', array_map(fn ($name, $value) => "$name=$value", array_keys($cookies), $cookies))];
    $options = ['ignore_errors' => true, 'follow_location' => 0, 'method' => $form ? 'POST' : 'GET'];
    if ($form) {
        $fields[] = "Content-Type: $type";
        $options['content'] = is_array($form) ? http_build_query($form) : $form;
    }
    $options['header'] = $fields;
    $page = file_get_contents('http://localhost' . $target, false, stream_context_create(['http' => $options]));
    foreach (preg_grep('/^Set-Cookie:/i', $http_response_header) as $line) {
        [$name, $value] = explode('=', explode(';', trim(substr($line, 11)))[0], 2);
        $cookies[$name] = $value;
    }
    return [(int) substr($http_response_header[0], 9, 3), $page, $http_response_header];
}
[$status, , $fields] = ask('/');
echo "first $status ", implode(' ', preg_grep('/^Location/i', $fields)), "\n";
[$status, $page] = ask('/wp-admin/install.php?step=2', ['weblog_title' => 'A title', 'user_name' => 'ann',
    'admin_password' => 'correct horse', 'admin_password2' => 'correct horse', 'pw_weak' => '1',
    'admin_email' => 'ann@example.test', 'Submit' => 'Install', 'language' => '']);
echo "installed $status ", strpos($page, 'Success!') !== false ? 'Success!' : $page, "\n";
[$status, $page] = ask('/');
preg_match('#href="http://localhost(/\d{4}/\d\d/\d\d/hello-world/)"#', $page, $link);
echo "home $status ", $link ? 'pretty' : $page, "\n";
[$status, $page] = ask($link[1]);
echo "post $status ", strpos($page, 'Welcome to WordPress') !== false ? 'welcome' : $page, "\n";
preg_match('#http://localhost(/wp-[^"\']*\.css[^"\']*)#', $page, $style);
echo "style ", ask($style[1])[0], "\n";
echo "secret ", ask('/wp-config.php')[1], "\n";

// A plugin: an archive with one file.
[$name, $text] = ['hi/hi.php', '<?php /* Plugin Name: Hi */'];
$about = pack('vvvvvVVVvv', 20, 0, 0, 0, 33, crc32($text), strlen($text), strlen($text), strlen($name), 0);
$file = "PK\x03\x04$about$name$text";
$list = "PK\x01\x02" . pack('v', 20) . $about . pack('vvvVV', 0, 0, 0, 0, 0) . $name;
$archive = $file . $list . "PK\x05\x06" . pack('vvvvVVv', 0, 0, 1, 1, strlen($list), strlen($file), 0);
ask('/wp-login.php');
ask('/wp-login.php', ['log' => 'ann', 'pwd' => 'correct horse', 'wp-submit' => 'Log In', 'testcookie' => '1']);
[, $page] = ask('/wp-admin/plugin-install.php?tab=upload');
preg_match('#name="_wpnonce" value="(\w+)"#', $page, $nonce);
$form = "--x\r\nContent-Disposition: form-data; name=\"_wpnonce\"\r\n\r\n{$nonce[1]}\r\n--x\r\nContent-Disposition: form-data; name=\"pluginzip\"; filename=\"hi.zip\"\r\nContent-Type: application/zip\r\n\r\n$archive\r\n--x--\r\n";
[$status, $page] = ask('/wp-admin/update.php?action=upload-plugin', $form, 'multipart/form-data; boundary=x');
echo "plugin $status ", strpos($page, 'Plugin installed successfully') !== false ? 'installed' : $page, "\n";
"##;

/// The blocks of a page in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let page = fs::read_to_string(repository::root().join("docs").join(page)).unwrap();
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap().to_owned()).collect()
}

/// `sendoff check` of a configuration whose sites are in this folder.
fn check(site: &Site, text: &str) -> Result<String, String> {
    let text = text.replace("/var/www/html", "root").replace("/var/log/sendoff/", "");
    let pem = "{ certificate = \"/etc/letsencrypt/live/example.org/fullchain.pem\", key = \"/etc/letsencrypt/live/example.org/privkey.pem\" }";
    let text = text.replace(pem, "\"self-signed\"");
    let config = site.write_at(site.outside("checked.toml"), text);
    sendoff(site.root(), &["check", "--config", config.to_str().unwrap()])
}

#[test]
fn configurations_of_the_pages_about_other_servers_are_understood() {
    let site = Site::new();
    let pages = ["from-nginx.md", "from-apache.md", "from-caddy.md", "from-unit.md"];
    let all: Vec<_> = pages.iter().flat_map(|page| blocks(page, "toml")).collect();
    assert_eq!(all.len(), 13);
    for text in all {
        let said = check(&site, &text);
        assert!(said.is_ok(), "{text}\n{said:?}");
    }
}

/// Each key in the right column of the tables is one of the configuration file.
#[test]
fn keys_in_the_tables_about_other_servers_exist() {
    let config = fs::read_to_string(repository::root().join("docs/config.md")).unwrap();
    for page in ["from-nginx.md", "from-apache.md", "from-caddy.md", "from-unit.md"] {
        let text = fs::read_to_string(repository::root().join("docs").join(page)).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let right = rows.filter_map(|row| Some(row.strip_suffix(" |")?.rsplit_once(" | ")?.1));
        let keys: Vec<_> = right
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .filter_map(|code| code.split_once(" = "))
            .map(|(key, _)| key)
            .collect();
        assert!(keys.len() > 25, "{keys:?}");
        for key in keys {
            assert!(config.contains(&format!("| `{key}` |")), "{page}: {key}");
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: namespaces")]
fn the_commands_of_the_page_make_a_blog_as_root() {
    let commands = blocks("first-site.md", "sh");
    let (last, others) = commands.split_last().unwrap();
    assert!(commands.len() <= 5 && last == "systemctl restart sendoff", "{commands:?}");
    let site = Site::new();
    let here = site.outside("machine");
    fs::create_dir_all(here.join("bin")).unwrap();
    std::os::unix::fs::symlink(binary(), here.join("bin/sendoff")).unwrap();
    let file = |name: &str| fs::read_to_string(repository::root().join(name)).unwrap();
    let unit = file("packaging/sendoff.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/")).unwrap();
    for (name, text) in [
        ("apt-get", "exec /usr/bin/apt-get --simulate -o Dir::State::status=\"$HERE/status\" \"$@\" >\"$HERE/installed\"".to_owned()),
        ("systemctl", format!("[ \"$*\" = 'restart sendoff' ] && exec {start} 2>\"$HERE/events\"")),
    ] {
        let program = site.write_at(here.join("bin").join(name), format!("#!/bin/sh\n{text}\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(program, mode).unwrap();
    }
    assert!(file("crates/sendoff/Cargo.toml").contains("\nprovides = \"httpd\"\n"));
    let package = "Package: sendoff\nStatus: install ok installed\nMaintainer: x\nArchitecture: amd64\nVersion: 1\nProvides: httpd\nDescription: x\n\n";
    site.write_at(here.join("status"), package);
    site.write_at(here.join("visitor.php"), VISITOR);
    let script = format!(
        "{MACHINE}mkfifo \"$HERE/ready\"\n{}\n{last} >\"$HERE/ready\" &\nread -r line <\"$HERE/ready\"\nphp \"$HERE/visitor.php\"\n",
        others.join("\n")
    );
    let script = site.write_at(here.join("script"), script);
    let done = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh"])
        .arg(script)
        .env("HERE", &here)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let said = text.split_once("first ").map_or("", |(_, rest)| rest);
    let expected = "302 Location: http://localhost/wp-admin/install.php\ninstalled 200 Success!\nhome 200 pretty\npost 200 welcome\nstyle 200\nsecret \nplugin 200 installed\n";
    assert_eq!(said, expected, "{text}\n{}", String::from_utf8_lossy(&done.stderr));
    let events = fs::read_to_string(here.join("events")).unwrap();
    // WordPress itself warns that it finds no network.
    let own = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let warned: Vec<_> = events.lines().filter(own).filter(|l| !l.contains(" PHP ")).collect();
    assert!(warned.is_empty(), "{warned:?}");
    // Apache's service would take the port.
    let installed = fs::read_to_string(here.join("installed")).unwrap();
    let apache = installed.lines().find(|line| line.starts_with("Inst apache2 "));
    assert!(apache.is_none() && installed.contains("Inst wordpress "), "{apache:?}");
}
