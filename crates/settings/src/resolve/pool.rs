//! The configuration of one pool.

use std::path::{Path, PathBuf};

use sendoff_config::{Bounds, GroupLimits, PoolConfig, SlowLog, WorkerScript, Workers};
use sendoff_setting_values::{At, Count, FilePath, IniSettings};

use super::account::account;
use super::context::{Context, unusable};
use super::{host, program};
use crate::keys::Pool;
use crate::machine::FileKind;
use crate::php_settings;

/// With `workers = "auto"`, the workers per core that stay while no request comes.
const FEWEST_PER_CORE: usize = 2;
/// With `workers = "auto"`, bytes of the machine's memory for each worker that may exist. A forked
/// worker shares most of its memory; what frameworks allocate in a request is 10 to 40 MB, and PHP
/// should not take more than a quarter.
const MEMORY_PER_WORKER: u64 = 4 * 32 * 1024 * 1024;
const MOST_WORKERS: usize = 256;

/// Reports bounds of workers that have no meaning.
fn bounds_have_a_meaning(section: &Pool, context: &mut Context<'_>) {
    let fewest = section.min_workers.map(|at| ("min_workers", at.place));
    let most = section.max_workers.map(|at| ("max_workers", at.place));
    let (without_meaning, workers) = match section.workers.value {
        Count::Auto => return,
        Count::OnDemand => (vec![fewest], "\"auto\""),
        Count::Fixed(_) => (vec![fewest, most], "\"auto\" or \"ondemand\""),
    };
    for (name, place) in without_meaning.into_iter().flatten() {
        context
            .problems
            .error(place, format!("{name} has a meaning only with workers = {workers}"))
            .other(section.workers.place, "the number of workers");
    }
}

/// Resolves a section.
pub(super) fn pool(section: &Pool, context: &mut Context<'_>) -> PoolConfig {
    let command = section.command.as_ref();
    let program = command.map(|command| program::program(section, command, context));
    if command.is_none() {
        bounds_have_a_meaning(section, context);
        if let Some(fragments) = &section.fragments {
            context
                .problems
                .error(fragments.place, "fragments is for pools with a command")
                .help("PHP has its own setting: php_ini = { \"sendoff.fragments\" = \"64M\" }");
        }
        if let Some(each) = &section.requests_per_process {
            context
                .problems
                .error(each.place, "requests_per_process is for pools with a command")
                .help("a PHP worker serves one request at a time; workers says how many there are");
        }
    }
    settings_exist(section, context);
    if let Some(log) = &section.slow_log {
        context.check_log_writable(log);
    }
    let workers = match section.workers.value {
        _ if command.is_some() => program::processes(section, context),
        Count::Fixed(count) => Workers::Fixed(count),
        Count::Auto => Workers::Auto(bounds(section, context)),
        Count::OnDemand => Workers::Auto(Bounds { min: 0, ..bounds(section, context) }),
    };
    let lines = pairs(&section.php_ini.value).map(|(name, value)| format!("{name}={value}"));
    let slow_log = section
        .slow_log
        .as_ref()
        .map(|path| SlowLog { after: section.slow_after.value.0, path: path.value.0.clone() });
    let environment = section.env.iter().flat_map(|map| &map.value.0);
    PoolConfig {
        program,
        host: if command.is_none() { host::host_program(section, context) } else { None },
        worker: worker_script(section, context),
        account: section.user.as_ref().and_then(|user| account(user, context)),
        umask: section.umask.map(|mask| mask.value.0),
        chroot: section.chroot.as_ref().and_then(|path| context.folder(path)),
        chdir: working_folder(section, context),
        environment: environment
            .map(|(name, value)| (name.value.0.clone(), value.value.0.clone()))
            .collect(),
        php_ini: lines.collect(),
        php_values: pairs(&section.php_value.value).collect(),
        php_admin_values: pairs(&section.php_admin_value.value).collect(),
        max_requests: section.max_requests.value.0,
        request_timeout: Some(section.request_timeout.value.0).filter(|time| !time.is_zero()),
        start_timeout: section.start_timeout.value.0,
        max_waiting: section.max_waiting.value.0,
        slow_log,
        memory_limit: section.memory_limit.map(|size| size.value.0),
        max_open_files: section.max_open_files.map(|number| number.value.0),
        max_processes: section.max_processes.map(|number| number.value.0),
        max_core: section.max_core.map(|size| size.value.0),
        group: GroupLimits {
            memory: section.total_memory.map(|size| size.value.0),
            cpu: section.total_cpu.map(|cpu| cpu.value.resolved(context.machine.cores())),
            processes: section.total_processes.map(|number| number.value.0),
        },
        no_new_privileges: section.no_new_privileges.value,
        status_path: section.status_path.as_ref().map(|path| path.value.0.clone()),
        ping_path: section.ping_path.as_ref().map(|path| path.value.0.clone()),
        ping_response: section.ping_response.value.0.clone(),
        snapshot: section.snapshot.value.into(),
        ..PoolConfig::new(&section.name.value.0, workers)
    }
}

/// The worker script of a pool. The file must exist.
fn worker_script(section: &Pool, context: &mut Context<'_>) -> Option<WorkerScript> {
    let Some(At { value: FilePath(file), place }) = &section.php_worker else {
        let without_meaning = [
            ("watch", section.watch.as_ref().map(|at| at.place)),
            ("max_memory", section.max_memory.as_ref().map(|at| at.place)),
            ("max_age", section.max_age.as_ref().map(|at| at.place)),
        ];
        for (name, place) in without_meaning {
            let Some(place) = place else { continue };
            context
                .problems
                .error(place, format!("{name} has a meaning only with php_worker"))
                .help(format!("name the worker script of the pool, or remove {name}"));
        }
        return None;
    };
    let real = context.machine.canonical(file);
    let is_file =
        |path: &PathBuf| context.machine.kind(path).is_ok_and(|kind| kind == FileKind::File);
    let says = match &real {
        Ok(real) if is_file(real) => None,
        Ok(_) => Some(format!("{} is no file", file.display())),
        Err(error) => Some(unusable(file, error)),
    };
    if let Some(says) = says {
        context.problems.error(*place, says).help(
            "php_worker is the script that calls sendoff_handle_request(), as public/index.php",
        );
    }
    let folders = section.watch.iter().flat_map(|list| &list.value.0);
    Some(WorkerScript {
        max_memory: section.max_memory.map(|size| size.value.0),
        max_age: section.max_age.map(|time| time.value.0),
        watch: folders.filter_map(|folder| context.folder(folder)).collect(),
        ..WorkerScript::new(real.unwrap_or_else(|_| file.clone()))
    })
}

/// Warns of settings that PHP does not know.
fn settings_exist(section: &Pool, context: &mut Context<'_>) {
    let lists = [&section.php_ini, &section.php_value, &section.php_admin_value];
    for (name, _) in lists.into_iter().flat_map(|list| &list.value.0) {
        let Err(unknown) = php_settings::check(&name.value) else { continue };
        let says = format!("PHP has no setting \"{}\"", name.value);
        let problem = context.problems.warning(name.place, says);
        problem.label("without effect");
        if let Some(similar) = unknown.similar {
            problem.help(format!("did you mean \"{similar}\"?"));
        }
    }
}

/// The settings as pairs, one per value.
fn pairs(settings: &IniSettings) -> impl Iterator<Item = (String, String)> {
    settings
        .0
        .iter()
        .flat_map(|(name, values)| values.iter().map(|value| (name.value.clone(), value.clone())))
}

/// The working folder of workers. It must exist inside the root directory of scripts.
fn working_folder(section: &Pool, context: &mut Context<'_>) -> PathBuf {
    let folder = &section.chdir.value.0;
    if folder != Path::new("/") {
        let root = section.chroot.as_ref().map_or(Path::new("/"), |root| &root.value.0);
        let path = root.join(folder.strip_prefix("/").unwrap_or(folder));
        context.folder(&At { value: FilePath(path), place: section.chdir.place });
    }
    folder.clone()
}

/// The bounds between which `auto` chooses the number of workers on this machine.
fn bounds(section: &Pool, context: &mut Context<'_>) -> Bounds {
    let given = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
    let min = given(section.min_workers.map(|at| at.value.0));
    let max = given(section.max_workers.map(|at| at.value.0));
    if let (Some(fewest), Some(most)) = (&section.min_workers, &section.max_workers)
        && fewest.value.0 > most.value.0
    {
        context
            .problems
            .error(most.place, "max_workers is less than min_workers")
            .other(fewest.place, "min_workers");
    }
    let machine = context.machine;
    let usual_min = FEWEST_PER_CORE * machine.cores();
    let min = min.unwrap_or(max.map_or(usual_min, |max| usual_min.min(max)));
    let by_memory = usize::try_from(machine.memory() / MEMORY_PER_WORKER).unwrap_or(usize::MAX);
    let max = max.unwrap_or(by_memory.min(MOST_WORKERS)).max(min).max(1);
    Bounds { min, max, idle: section.worker_idle_timeout.value.0 }
}
