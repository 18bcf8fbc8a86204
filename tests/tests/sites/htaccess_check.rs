//! `sendoff check` reads the `.htaccess` files of sites and names the directives that are not
//! obeyed.

use std::process::Command;
use std::time::{Duration, Instant};

use sendoff_tests::Site;

/// The output of `sendoff check` for a site with these further keys.
fn check(site: &Site, keys: &str) -> String {
    let text = format!("[[site]]\nroot = 'root'\n{keys}\n");
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let mut command = Command::new(sendoff_tests::binary());
    let output = command.arg("check").arg("--config").arg(&config).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    said
}

#[test]
fn what_is_not_obeyed_is_named_with_its_consequence() {
    let site = Site::with("index.php", "");
    site.write(".htaccess", "RewriteEngine On\nRewriteRule ^a - [F]\n");
    site.write("a/.htaccess", "Options -Indexes\nRequire ldap-user ann\nAddIcon x y\n");
    site.write("a/b/.htaccess", "NoSuchDirective on\n");
    site.write_at(site.outside("alias/.htaccess"), "AuthType Digest\n");
    site.folder("pipe");
    let _pipe = site.fifo("pipe/.htaccess");
    std::os::unix::fs::symlink(site.root(), site.path("a/circle")).unwrap();
    let said = check(&site, "htaccess = true\nalias = { '/x' = 'alias' }");
    for part in [
        "/a/.htaccess:2: Require: Require ldap-user is not supported (what it covers is answered with 403)\n",
        "/a/.htaccess:3: AddIcon: the directive has no effect in this server (ignored)\n",
        "/a/b/.htaccess:1: NoSuchDirective is unknown",
        "(requests to this folder are answered with 500)\n",
        "alias/.htaccess:1: AuthType: Digest",
        "/pipe/.htaccess: it cannot be read: it is no regular file (what it covers is answered with 403)\n",
        ", 5 .htaccess files: fine\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.lines().filter(|line| line.contains("a/.htaccess:2")).count(), 1, "{said}");
    let ignored = check(&site, "htaccess = false");
    assert!(!ignored.contains("ldap-user"), "{ignored}");
}

#[test]
fn files_below_the_root_are_read_and_those_that_are_ignored_are_named() {
    let site = Site::with("index.php", "");
    site.write("data/.htaccess", "Require all denied\n");
    site.write("more/.htaccess", "<Files x>\nDeny from all\n</Files>\n");
    site.write("types/.htaccess", "AddType text/x .x\n");
    let said = check(&site, "");
    assert!(said.contains(", 3 .htaccess files: fine\n"), "{said}");
    let above = site.write_at(site.outside(".htaccess"), "Require all denied\n");
    let named =
        format!("{}: not read, because it is above the folder of the site", above.display());
    assert!(check(&site, "").contains(&named));
    let ignored = check(&site, "htaccess = false");
    assert!(!ignored.contains(&named), "{ignored}");
    let part =
        "data/.htaccess, and 1 more files: about access, and ignored because of htaccess = false";
    assert!(ignored.contains(part), "{ignored}");
}

#[test]
fn a_root_with_many_folders_is_walked_soon() {
    let site = Site::with("index.php", "");
    for number in 0..500 {
        site.write(&format!("f{number}/.htaccess"), "AddIcon x y\n");
    }
    let start = Instant::now();
    let said = check(&site, "htaccess = true");
    assert!(start.elapsed() < Duration::from_secs(11), "{:?}", start.elapsed());
    assert!(said.contains("and 300 more remarks about .htaccess files\n"), "{said}");
    assert!(said.contains(", 500 .htaccess files: fine\n"), "{said}");
}
