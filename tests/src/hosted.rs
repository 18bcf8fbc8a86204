//! Scenarios in which a stock PHP program hosts the PHP workers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use crate::extension::{is_outdated, newest_library, root};

/// Names the stock PHP program, such as `php-fpm8.2`, or a path.
const PROGRAM: &str = "SENDOFF_TEST_PHP_HOST";

/// The path of the program that hosts the workers in this run; `None`: `sendoff-php` does.
pub(crate) fn program() -> Option<String> {
    let name = env::var(PROGRAM).ok()?;
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let mut paths = folders.into_iter().map(|folder| Path::new(folder).join(&name));
    // A path replaces the folder.
    Some(paths.find(|path| path.is_file()).expect("the program exists").display().to_string())
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
