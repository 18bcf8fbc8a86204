//! The stock PHP program that hosts the workers of a pool.

use std::io;
use std::path::{Path, PathBuf};

use sendoff_config::{HostProgram, PhpApi, PhpBuild, Program};
use sendoff_setting_values::{At, FilePath, PhpProgram};

use super::context::{Context, unusable};

/// The program that the key `php` names. Reports a program that cannot host workers.
pub(super) fn host_program(php: &At<PhpProgram>, context: &mut Context<'_>) -> Option<HostProgram> {
    match &php.value {
        PhpProgram::Version(version) => by_version(php, version, context),
        PhpProgram::File(FilePath(path)) => by_path(php, path, context),
    }
}

/// The programs with the version in their names come first; php-fpm has the settings and the
/// functions of a web server.
fn by_version(
    php: &At<PhpProgram>,
    version: &str,
    context: &mut Context<'_>,
) -> Option<HostProgram> {
    let programs = ["php-fpm", "php-cgi", "php"];
    let named = programs.map(|program| format!("{program}{version}"));
    let names = named.iter().map(String::as_str).chain(programs);
    let fits = |file: &PathBuf| {
        context.machine.may_run(file).ok()?;
        let build = context.machine.php_build(file).ok()??;
        let fits = build.api.version() == Some(version) && obstacle(build).is_none();
        fits.then(|| HostProgram { file: file.clone(), api: build.api })
    };
    let folders = || Program::PATH.split(':').map(Path::new);
    let found = names.flat_map(|name| folders().map(move |folder| folder.join(name)));
    let found = found.filter_map(|file| fits(&file)).next();
    if found.is_none() {
        let names = named.join(", ");
        context
            .problems
            .error(php.place, format!("there is no PHP {version} that can host workers"))
            .help(format!(
                "{names} and the same names without version are looked for in {}: install php{version}-fpm, \
                 or write the path of a PHP program",
                Program::PATH.replace(':', ", ")
            ));
    }
    found
}

fn by_path(php: &At<PhpProgram>, path: &Path, context: &mut Context<'_>) -> Option<HostProgram> {
    let build = context.machine.may_run(path).and_then(|()| context.machine.php_build(path));
    let (says, help) = match build {
        Ok(Some(build)) => match obstacle(build) {
            None => return Some(HostProgram { file: path.to_owned(), api: build.api }),
            Some(says) => (format!("{} {says}", path.display()), fitting()),
        },
        Ok(None) => (
            format!("{} is no PHP program", path.display()),
            "name php-fpm, php-cgi or php itself, not a script that starts it".to_owned(),
        ),
        Err(error) => (refusal(path, &error), fitting()),
    };
    context.problems.error(php.place, says).help(help);
    None
}

/// The reason why a build cannot host workers.
fn obstacle(build: PhpBuild) -> Option<String> {
    let PhpBuild { api, is_thread_safe, is_debug } = build;
    match (api.version(), is_thread_safe, is_debug) {
        (Some(_), false, false) => None,
        (None, ..) => Some(format!("has the API {api}, of a PHP that is not known")),
        (_, true, _) => Some("is thread-safe (ZTS), which hosts no workers".to_owned()),
        (_, _, true) => Some("is a debug build, which hosts no workers".to_owned()),
    }
}

fn fitting() -> String {
    let versions = PhpApi::versions().collect::<Vec<_>>().join(", ");
    format!(
        "php-fpm, php-cgi and php of the versions {versions} fit, not thread-safe (NTS), as distributions build them"
    )
}

fn refusal(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{} may not be executed", path.display()),
        io::ErrorKind::IsADirectory => format!("{} is a folder", path.display()),
        _ => unusable(path, error),
    }
}
