//! `sendoff.so`, built from the sources as they are.

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

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let module = folder.join("sendoff.so");
    let library = newest(entries(&folder).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libsendoff_capi") && name.ends_with(".a")
    }));
    let library = library.expect("cargo has built the library that the tests depend on").1;
    let sources = [root.join("php/src"), root.join("include")];
    let made_of = sources.iter().flat_map(|folder| entries(folder)).chain([library.clone()]);
    if changed(&module) < newest(made_of).map(|(time, _)| time) {
        // Other test programs may be at it too.
        let ours = folder.join(format!("sendoff.so.{}", std::process::id()));
        let built =
            Command::new(root.join("tools/extension")).arg("build").args([&ours, &library]).status();
        assert!(built.unwrap().success(), "sendoff.so cannot be built");
        fs::rename(ours, &module).unwrap();
    }
    module
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
