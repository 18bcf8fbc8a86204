//! `sendoff.so`, built from the current sources, in a php-fpm behind our front.

use crate::{Fpm, Response, Server, Site};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;
use std::{env, fs};

/// The php.ini line that loads the extension.
///
/// # Panics
/// If it cannot be built.
pub fn extension() -> String {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    format!("extension={}", BUILT.get_or_init(build).display())
}

/// A site, php-fpm with the extension, and a front to which the extension has announced itself.
pub struct Extended {
    /// The front. It ends before php-fpm, and its end is checked.
    pub server: Server,
    /// The application.
    pub fpm: Fpm,
    /// The site, with `quick.php`.
    pub site: Site,
}

impl Extended {
    /// Starts both with lines for the pool's section and options for the front.
    ///
    /// # Panics
    /// If one of them does not start.
    pub fn start(site: Site, pool: &str, options: &[&str]) -> Self {
        site.write("quick.php", "<?php echo 'quick';");
        site.write("counts", "");
        let fpm = Fpm::start_with(site.root(), pool, &[&extension()]);
        let mut server =
            Server::start(site.root(), &[&["--fastcgi", &fpm.php()], options].concat());
        server.expect_linked_processes(fpm.processes());
        assert_eq!(server.page("/quick.php"), "quick");
        Self { server, fpm, site }
    }

    /// A script's response, and the numbers of bytes that were handed over and copied.
    ///
    /// # Panics
    /// If the script does not end.
    pub fn counted(&self, code: &str) -> (Response, (u64, u64)) {
        self.site.write("counted.php", counted(code));
        self.site.write("counts", "");
        let response = self.server.get("/counted.php");
        let counts = fs::read_to_string(self.site.path("counts")).unwrap();
        let mut counts = counts.split(' ').map(|count| count.parse().unwrap());
        (response, (counts.next().unwrap(), counts.next().unwrap()))
    }
}

/// A script that, when all its output has been written, stores the number of bytes that were handed
/// over.
fn counted(code: &str) -> String {
    format!(
        "<?php opcache_invalidate(__FILE__, true); chdir(__DIR__);
        class Count {{ function __destruct() {{
            while (ob_get_level()) ob_end_flush();
            $s = sendoff_stats();
            file_put_contents(__DIR__ . '/counts', $s['handed_over_bytes'] . ' ' . $s['copied_bytes']);
        }} }}
        $count = new Count; {code}"
    )
}

fn build() -> PathBuf {
    let root = root();
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let module = folder.join("sendoff.so");
    let library = static_library();
    if is_outdated(&module, &library) {
        // Other test programs may build it at the same time.
        let ours = folder.join(format!("sendoff.so.{}", std::process::id()));
        let mut build = Command::new(root.join("tools/extension"));
        let built = build.env("CFLAGS", "-Wextra -Werror -Wno-unused-parameter").arg("build");
        let built = built.args([&ours, &library]).status();
        assert!(built.unwrap().success(), "sendoff.so cannot be built");
        fs::rename(ours, &module).unwrap();
    }
    module
}

/// Compiles an extension for PHP from tests/helpers, with these flags of the compiler, into a file
/// outside of the site's root.
///
/// # Panics
/// If it cannot be built.
pub fn compile_extension(site: &Site, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("helpers/{name}.c"));
    let program = env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".to_owned());
    let includes = Command::new(program).arg("--includes").output().unwrap();
    let includes = String::from_utf8(includes.stdout).unwrap();
    let module = site.outside(&format!("{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-w"]).args(includes.split_whitespace()).args(flags);
    assert!(compiler.arg("-o").arg(&module).arg(source).status().unwrap().success());
    module
}

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// True if a module for PHP is older than its C or than this library.
pub(crate) fn is_outdated(module: &Path, library: &Path) -> bool {
    let sources = [root().join("php/src"), root().join("include")];
    let made_of = sources.iter().flat_map(|folder| entries(folder)).chain([library.to_owned()]);
    changed(module) < newest(made_of).map(|(time, _)| time)
}

/// The static library for modules.
///
/// # Panics
/// If there is none.
pub fn static_library() -> PathBuf {
    newest_library("libsendoff_capi")
}

/// The newest static library that cargo has put next to the test programs; older builds may be
/// there, too.
pub(crate) fn newest_library(name: &str) -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = newest(entries(&folder).filter(|path| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        file.starts_with(&format!("{name}-")) && file.ends_with(".a")
    }));
    library.expect("cargo has built the library that the tests depend on").1
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|data| data.modified()).ok()
}

fn newest(paths: impl Iterator<Item = PathBuf>) -> Option<(SystemTime, PathBuf)> {
    paths.filter_map(|path| Some((changed(&path)?, path))).max()
}
