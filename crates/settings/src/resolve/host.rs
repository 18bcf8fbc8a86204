//! The stock PHP program that hosts the workers of a pool.

use std::io;
use std::path::{Path, PathBuf};

use sendoff_config::{HostProgram, PHP_VERSION, PhpApi, PhpBuild, Program};
use sendoff_setting_values::{At, FilePath, PhpProgram, Place};

use super::context::{Context, unusable};
use crate::keys::Pool;

/// The names of PHP's programs for web servers; Debian puts the version behind them. (The command
/// line's `php` puts settings of its own over php.ini.)
const PROGRAMS: [&str; 2] = ["php-fpm", "php-cgi"];

/// The program that the key `php` names; `None`: `sendoff-php`. Reports a program that cannot host
/// workers. Without the key it is the newest PHP that is installed with its module, and `sendoff-php`
/// if there is none.
pub(super) fn host_program(section: &Pool, context: &mut Context<'_>) -> Option<HostProgram> {
    match &section.php {
        Some(At { value: PhpProgram::Version(version), place }) => {
            let found = by_version(version, context);
            if found.is_none() {
                refuse_version(*place, version, context);
            }
            found
        }
        Some(At { value: PhpProgram::File(FilePath(path)), place }) => {
            by_path(path, *place, context)
        }
        Some(At { value: PhpProgram::Libphp, .. }) => None,
        None => context.found_host.get_or_init(|| newest(context)).clone(),
    }
}

/// The program of the newest version that is installed with its module. Without `sendoff-php` also
/// the PHP that the build is for, whose module is then missed by a message.
fn newest(context: &Context<'_>) -> Option<HostProgram> {
    let of_version = |version| {
        by_version(version, context).filter(|host| context.machine.has_php_module(host.api))
    };
    let without_module = || {
        let has_own = context.machine.has_own_php();
        if has_own { None } else { by_version(PHP_VERSION, context) }
    };
    PhpApi::versions().rev().find_map(of_version).or_else(without_module)
}

/// The first program of a version that can host workers. php-fpm precedes php-cgi: it has the
/// settings and the functions of a web server.
fn by_version(version: &str, context: &Context<'_>) -> Option<HostProgram> {
    let named = PROGRAMS.map(|program| format!("{program}{version}"));
    let names = named.iter().map(String::as_str).chain(PROGRAMS);
    let fits = |file: PathBuf| {
        context.machine.may_run(&file).ok()?;
        let build = context.machine.php_build(&file).ok()??;
        let fits = build.api.version() == Some(version) && obstacle(build).is_none();
        let version = context.machine.file_version(&file).ok()?;
        fits.then_some(HostProgram { file, api: build.api, version })
    };
    let folders = || Program::PATH.split(':').map(Path::new);
    names.flat_map(|name| folders().map(move |folder| folder.join(name))).find_map(fits)
}

fn refuse_version(place: Place, version: &str, context: &mut Context<'_>) {
    let names = PROGRAMS.map(|program| format!("{program}{version}")).join(", ");
    let folders = Program::PATH.replace(':', ", ");
    context.problems.error(place, format!("there is no PHP {version} that can host workers")).help(
        format!(
            "{names} and the same names without version are looked for in {folders}: install \
             php{version}-fpm, or write the path of a PHP program"
        ),
    );
}

fn by_path(path: &Path, place: Place, context: &mut Context<'_>) -> Option<HostProgram> {
    let machine = context.machine;
    let build = machine.may_run(path).and_then(|()| machine.php_build(path));
    let build = build.and_then(|build| Ok((build, machine.file_version(path)?)));
    let (says, help) = match build {
        Ok((Some(build), version)) => match obstacle(build) {
            None => return Some(HostProgram { file: path.to_owned(), api: build.api, version }),
            Some(says) => (format!("{} {says}", path.display()), fitting()),
        },
        Ok((None, _)) => (
            format!("{} is no PHP program", path.display()),
            "name php-fpm or php-cgi itself, not a script that starts it".to_owned(),
        ),
        Err(error) => (refusal(path, &error), fitting()),
    };
    context.problems.error(place, says).help(help);
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
        "php-fpm and php-cgi of the versions {versions} fit, not thread-safe (NTS), as distributions build them"
    )
}

fn refusal(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{} may not be executed", path.display()),
        io::ErrorKind::IsADirectory => format!("{} is a folder", path.display()),
        _ => unusable(path, error),
    }
}
