//! Pools that run another program than PHP.

use std::io;
use std::path::{Path, PathBuf};

use sendoff_config::{Program, Workers};
use sendoff_setting_values::{At, Command, Count, Place};

use super::context::{Context, unusable};
use crate::keys::Pool;

/// Sizes of the memory for fragments.
const FRAGMENTS: std::ops::RangeInclusive<u64> = 8 << 20..=4 << 30;

/// The program of a pool whose section has a command. Reports a command that cannot be run.
pub(super) fn program(section: &Pool, command: &At<Command>, context: &mut Context<'_>) -> Program {
    if section.name.place == Place::Default {
        context
            .problems
            .error(section.place, "a pool with a command needs a name")
            .help("sites refer to it: name = \"shop\" here, and fastcgi = \"pool:shop\" there");
    }
    keys_have_a_meaning(section, command.place, context);
    let root = section.chroot.as_ref().map(|root| root.value.0.as_path());
    let file = find(section, command, root, context).unwrap_or_default();
    let each = section.requests_per_process.as_ref();
    let requests_per_process = each.map(|at| u32::try_from(at.value.0).unwrap_or(u32::MAX));
    let fragments = section.fragments.as_ref().map(|size| {
        if !FRAGMENTS.contains(&size.value.0) {
            context
                .problems
                .error(size.place, "the memory for fragments has from 8M to 4G")
                .help("it is used only as fragments are kept: fragments = \"32M\"");
        }
        size.value.0
    });
    Program { file, command: command.value.0.clone(), requests_per_process, fragments }
}

/// The number of processes. Only PHP has numbers that follow the load.
pub(super) fn processes(section: &Pool, context: &mut Context<'_>) -> Workers {
    let At { value, place } = section.workers;
    match value {
        Count::Fixed(count) => Workers::Fixed(count),
        Count::Auto if place == Place::Default => Workers::Fixed(1),
        Count::Auto | Count::OnDemand => {
            context
                .problems
                .error(place, "a pool with a command has a fixed number of processes")
                .help("write workers = 4; 1 suits a program with threads or workers of its own");
            Workers::Fixed(1)
        }
    }
}

/// Reports keys that are about PHP.
fn keys_have_a_meaning(section: &Pool, command: Place, context: &mut Context<'_>) {
    fn given<T>(at: &At<T>) -> Option<Place> {
        Some(at.place).filter(|place| *place != Place::Default)
    }
    fn there<T>(at: Option<&At<T>>) -> Option<Place> {
        at.map(|at| at.place)
    }
    let of_php = [
        ("php", there(section.php.as_ref())),
        ("php_worker", there(section.php_worker.as_ref())),
        ("php_ini", given(&section.php_ini)),
        ("php_value", given(&section.php_value)),
        ("php_admin_value", given(&section.php_admin_value)),
        ("slow_log", there(section.slow_log.as_ref())),
        ("slow_after", given(&section.slow_after)),
        ("status_path", there(section.status_path.as_ref())),
        ("ping_path", there(section.ping_path.as_ref())),
        ("ping_response", given(&section.ping_response)),
        ("snapshot", given(&section.snapshot)),
        ("start_timeout", given(&section.start_timeout)),
        ("min_workers", there(section.min_workers.as_ref())),
        ("max_workers", there(section.max_workers.as_ref())),
        ("worker_idle_timeout", given(&section.worker_idle_timeout)),
    ];
    for (name, place) in of_php {
        let Some(place) = place else { continue };
        context
            .problems
            .error(place, format!("{name} is for pools of PHP workers"))
            .other(command, "this pool runs another program")
            .help(format!("remove {name}"));
    }
    if let Some(place) = given(&section.max_requests) {
        context
            .problems
            .error(place, "the server cannot count the requests of each process of a program")
            .other(command, "this program")
            .help("have the program end by itself, by an option of its own: it is started again");
    }
}

/// The file of the program, as its process sees it.
fn find(
    section: &Pool,
    command: &At<Command>,
    root: Option<&Path>,
    context: &mut Context<'_>,
) -> Option<PathBuf> {
    let program = command.value.program();
    let outside = |path: &Path| match root {
        Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    };
    if program.contains('/') {
        let path = PathBuf::from(program);
        let found = context.machine.may_run(&outside(&path));
        return found
            .map_err(|error| refuse(command, &outside(&path), &error, context))
            .ok()
            .map(|()| path);
    }
    let env = section.env.iter().flat_map(|map| &map.value.0);
    let own = env
        .filter(|(name, _)| name.value.0 == "PATH")
        .map(|(_, value)| &*value.value.0)
        .next_back();
    let folders = own.unwrap_or(Program::PATH);
    let candidates = folders.split(':').filter(|folder| folder.starts_with('/'));
    let candidates: Vec<_> = candidates.map(|folder| Path::new(folder).join(program)).collect();
    let found = candidates.iter().find(|path| context.machine.may_run(&outside(path)).is_ok());
    if found.is_none() {
        let folders = folders.replace(':', ", ");
        context.problems.error(command.place, format!("there is no program \"{program}\"")).help(
            format!("it is looked for in {folders}; write the whole path, or set PATH in env"),
        );
    }
    found.cloned()
}

fn refuse(command: &At<Command>, path: &Path, error: &io::Error, context: &mut Context<'_>) {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => context
            .problems
            .error(command.place, format!("{shown} may not be executed"))
            .help(format!(
                "`chmod +x {shown}`, or name the program that reads it: command = [\"python3\", \"{shown}\"]"
            )),
        io::ErrorKind::IsADirectory => {
            context.problems.error(command.place, format!("{shown} is a folder"))
        }
        _ => context.problems.error(command.place, unusable(path, error)),
    };
}
