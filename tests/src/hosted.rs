//! Scenarios in which a stock PHP program hosts the PHP workers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use crate::extension::{is_outdated, newest_library, root};

/// Names the stock PHP program, such as `php-cgi8.2`, or a path; [`LIBPHP`]: none.
const PROGRAM: &str = "SENDOFF_TEST_PHP_HOST";

/// `sendoff-php` has the workers.
const LIBPHP: &str = "libphp";

/// The program where the variable names none: the newest, as for users.
const USUAL: [&str; 4] = ["php-fpm8.5", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2"];

/// The path of the program that hosts the workers in this run; `None`: `sendoff-php` does.
pub(crate) fn program() -> Option<String> {
    let path = match env::var(PROGRAM) {
        Ok(name) if name == LIBPHP => return None,
        Ok(name) => path(&name).expect("the program exists"),
        Err(_) => USUAL.iter().find_map(|name| path(name))?,
    };
    Some(path.display().to_string())
}

fn path(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    // A path replaces the folder.
    folders.into_iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// `sendoff` in a folder with the module and `sendoff-lua`, and without `sendoff-php`.
pub(crate) fn binary(built: &Path) -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| make(built)).clone()
}

fn make(built: &Path) -> PathBuf {
    let folder = built.with_file_name("hosted");
    // Other test programs may do the same at the same time.
    let ours = built.with_file_name(format!("hosted.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(&ours).unwrap();
    fs::hard_link(built, ours.join("sendoff")).unwrap();
    let lua = built.with_file_name("sendoff-lua");
    if lua.is_file() {
        fs::hard_link(lua, ours.join("sendoff-lua")).unwrap();
    }
    let library = newest_library("libsendoff_php");
    let mut made = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let module = made.find(|path| path.extension().is_some_and(|end| end == "so"));
    if module.is_none_or(|module| is_outdated(&module, &library)) {
        let mut build = Command::new(root().join("tools/extension"));
        let build = build.env("CFLAGS", "-Wextra -Werror -Wno-unused-parameter");
        let built = build.arg("host").args([&ours, &library]).status();
        assert!(built.unwrap().success(), "the module cannot be built");
    }
    for made in fs::read_dir(&ours).unwrap() {
        let made = made.unwrap();
        fs::rename(made.path(), folder.join(made.file_name())).unwrap();
    }
    // A rename onto the same file does nothing.
    fs::remove_dir_all(&ours).unwrap();
    folder.join("sendoff")
}
