//! The pools.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sendoff_config::{
    Account, Address, Bounds, Delivery, GroupLimits, Handler, PoolConfig, Site, SlowLog,
    WorkerScript, Workers,
};
use sendoff_setting_values::{At, Count, FilePath, Free, IniSettings, Place, similar};

use super::context::{Context, unusable};
use super::upstream::{UpstreamProtocol, Upstreams};
use super::{host, program};
use crate::keys::{Pool, Top};
use crate::machine::FileKind;
use crate::php_settings;

/// With `workers = "auto"`, the workers per core that stay while no request comes.
const FEWEST_PER_CORE: usize = 2;
/// With `workers = "auto"`, bytes of the machine's memory for each worker that may exist. A forked
/// worker shares most of its memory; what frameworks allocate in a request is 10 to 40 MB, and PHP
/// should not take more than a quarter.
const MEMORY_PER_WORKER: u64 = 4 * 32 * 1024 * 1024;
const MOST_WORKERS: usize = 256;

/// The pools that the configuration describes.
#[derive(Debug)]
pub(crate) struct Pools {
    all: Vec<ResolvedPool>,
    /// The number of the first pool of PHP workers.
    first_php: usize,
    /// The other named targets of application addresses.
    upstreams: Upstreams,
}

/// A pool, and what is known of it until its configuration is complete.
#[derive(Debug)]
struct ResolvedPool {
    config: PoolConfig,
    place: Place,
    /// The group that it names, with the place of the name.
    group: Option<(u32, Place)>,
    /// True if its section has an unreadable value.
    is_broken: bool,
    /// True if a site or a route refers to it.
    is_named: bool,
    /// Idle timeout of its workers, if their number varies.
    idle: Duration,
    /// The number of the pool of the site's other scripts, beside a pool with a worker script.
    twin: Option<usize>,
}

impl Pools {
    /// Resolves the sections. If no section is for PHP workers, a pool with the defaults is added.
    pub(crate) fn resolve(top: &Top, context: &mut Context<'_>) -> Self {
        let mut all: Vec<ResolvedPool> = Vec::new();
        for section in &top.pool.value.0 {
            let known = all.iter().map(|pool| (pool.config.name.as_str(), pool.place));
            let place = context.own_name("pool", &section.name, section.place, known);
            all.push(ResolvedPool::of(section, place, context));
        }
        let first_php = all.iter().position(ResolvedPool::runs_php).unwrap_or_else(|| {
            let usual = Pool::empty(Place::Default);
            all.push(ResolvedPool::of(&usual, Place::Default, context));
            all.len() - 1
        });
        let upstreams = Upstreams::resolve(top, context);
        Self { all, first_php, upstreams }
    }

    /// The pool of a site's scripts and, if the named pool (without a name, the first) has a worker
    /// script, that pool.
    pub(crate) fn of_site(
        &mut self,
        name: Option<&At<Free>>,
        context: &mut Context<'_>,
    ) -> (Option<usize>, Option<(usize, PathBuf)>) {
        let Some(number) = self.number(name, context) else { return (None, None) };
        let worker = self.all[number].config.worker.as_ref().map(|worker| worker.file.clone());
        match worker {
            Some(file) => (Some(self.twin(number)), Some((number, file))),
            None => (Some(number), None),
        }
    }

    /// The pool that runs the other scripts of sites whose pool has a worker script. It has the
    /// same settings, and no workers while no request comes.
    fn twin(&mut self, number: usize) -> usize {
        let of = &self.all[number];
        if let Some(twin) = of.twin {
            return twin;
        }
        let mut name = format!("{}-scripts", of.config.name);
        while self.all.iter().any(|known| known.config.name == name) {
            name.push('\'');
        }
        let (max, idle) = (of.config.most_workers().max(1), of.idle);
        let config = PoolConfig {
            name,
            worker: None,
            workers: Workers::Auto(Bounds { min: 0, max, idle }),
            status_path: None,
            ping_path: None,
            ..of.config.clone()
        };
        let (group, is_broken) = (of.group, of.is_broken);
        let place = Place::Default;
        let twin = self.all.len();
        self.all[number].twin = Some(twin);
        self.all.push(ResolvedPool {
            config,
            place,
            group,
            is_broken,
            is_named: true,
            idle,
            twin: None,
        });
        twin
    }

    /// The number of the pool of PHP workers with a name; without a name, the first.
    pub(crate) fn number(
        &mut self,
        name: Option<&At<Free>>,
        context: &mut Context<'_>,
    ) -> Option<usize> {
        let Some(At { value: Free(name), place }) = name else {
            self.all[self.first_php].is_named = true;
            return Some(self.first_php);
        };
        let number = self.find(name, *place, context)?;
        let found = &self.all[number];
        if !found.runs_php() {
            let says = format!("the pool \"{name}\" runs no PHP");
            context.problems.error(*place, says).other(found.place, "it has a command").help(
                format!(
                    "fastcgi = {{ \"/\" = \"pool:{name}\" }} gives its program the site's requests"
                ),
            );
            return None;
        }
        Some(number)
    }

    /// Checks that the address of an application names an existing pool with a program, or an
    /// existing upstream.
    pub(crate) fn program(&mut self, address: &Address, place: Place, context: &mut Context<'_>) {
        let name = match address {
            Address::Pool(name) => name,
            Address::Upstream(name) => {
                return self.upstreams.exists(name, UpstreamProtocol::Other, place, context);
            }
            Address::Unix(_) | Address::Tcp(_) => return,
        };
        let Some(number) = self.find(name, place, context) else { return };
        let found = &self.all[number];
        // The unreadable value may be the command.
        if found.runs_php() && !found.is_broken {
            context
                .problems
                .error(place, format!("the pool \"{name}\" has no command"))
                .other(found.place, "its workers run PHP")
                .help(format!(
                    "write php = true and pool = \"{name}\", or give the pool a command"
                ));
        }
    }

    /// The number of the pool with a name, which counts as used from then on.
    fn find(&mut self, name: &str, place: Place, context: &mut Context<'_>) -> Option<usize> {
        let found = self.all.iter().position(|known| known.config.name == *name);
        if let Some(number) = found {
            self.all[number].is_named = true;
            return found;
        }
        let problem = context.problems.error(place, format!("there is no pool \"{name}\""));
        let listed = || self.all.iter().filter(|pool| pool.place != Place::Default);
        let names = || listed().map(|pool| pool.config.name.as_str());
        match similar(name, names()) {
            Some(similar) => problem.help(format!("did you mean \"{similar}\"?")),
            None if listed().next().is_none() => problem
                .help(format!("a pool begins with [[pool]] and has a name: name = \"{name}\"")),
            None => problem.help(format!(
                "the pools of this configuration are {}",
                names().collect::<Vec<_>>().join(", ")
            )),
        };
        None
    }

    /// True if FastCGI applications of a site with this pool may open links and hand over files on
    /// them.
    pub(crate) fn allows_channel(&self, number: usize, delivery: Delivery) -> bool {
        let snapshot = self.all.get(number).map(|pool| pool.config.snapshot);
        delivery.accepts_files() && snapshot == Some(sendoff_config::Snapshot::Lease)
    }

    /// Checks that an upstream with this name exists.
    pub(crate) fn upstream(
        &mut self,
        name: &str,
        protocol: UpstreamProtocol,
        place: Place,
        context: &mut Context<'_>,
    ) {
        self.upstreams.exists(name, protocol, place, context);
    }

    /// The upstreams.
    pub(crate) fn upstreams(&mut self) -> Upstreams {
        std::mem::take(&mut self.upstreams)
    }

    /// The pools that sites use; the sites' numbers are changed accordingly. Workers run as
    /// `account` unless their pool has a user of its own.
    pub(crate) fn used(
        self,
        account: Option<Account>,
        sites: &mut [Site],
        context: &mut Context<'_>,
    ) -> Vec<PoolConfig> {
        let mut numbers: Vec<Option<usize>> = vec![None; self.all.len()];
        for number in references(sites) {
            numbers[*number] = Some(0);
        }
        for attached in sites.iter().flat_map(|site| &site.fastcgi) {
            let Address::Pool(name) = &attached.address else { continue };
            let number = self.all.iter().position(|pool| pool.config.name == *name);
            number.into_iter().for_each(|number| numbers[number] = Some(0));
        }
        for (next, number) in numbers.iter_mut().flatten().enumerate() {
            *number = next;
        }
        for number in references(sites) {
            *number = numbers[*number].unwrap_or_default();
        }
        for ResolvedPool { config: pool, place, is_named, .. } in &self.all {
            if !is_named && *place != Place::Default && context.problems.errors() == 0 {
                let says = format!("no site uses the pool \"{}\"", pool.name);
                context.problems.warning(*place, says).help(match &pool.program {
                    None => {
                        format!("sites use the first pool unless they say pool = \"{}\"", pool.name)
                    }
                    Some(_) => format!(
                        "fastcgi = \"pool:{}\" in a route gives its program requests",
                        pool.name
                    ),
                });
            }
        }
        let used = self.all.into_iter().zip(numbers).filter(|(_, number)| number.is_some());
        used.map(|(ResolvedPool { config, group, .. }, _)| {
            let account = config.account.or(account);
            PoolConfig { account: account.map(|user| with_group(user, group, context)), ..config }
        })
        .collect()
    }
}

impl ResolvedPool {
    fn of(section: &Pool, place: Place, context: &mut Context<'_>) -> Self {
        Self {
            config: pool(section, context),
            place,
            group: section.group.as_ref().and_then(|name| group(name, context)),
            is_broken: section.broken,
            is_named: false,
            idle: section.worker_idle_timeout.value.0,
            twin: None,
        }
    }

    fn runs_php(&self) -> bool {
        self.config.program.is_none()
    }
}

/// The numbers of pools in sites and their routes.
fn references(sites: &mut [Site]) -> impl Iterator<Item = &mut usize> {
    sites.iter_mut().flat_map(|site| {
        let of_routes = site.routes.iter_mut().filter_map(|route| match &mut route.handler {
            Some(Handler::Php { pool, .. }) => Some(pool),
            _ => None,
        });
        let worker = site.worker.iter_mut().map(|worker| &mut worker.pool);
        site.pool.iter_mut().chain(worker).chain(of_routes)
    })
}

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

fn pool(section: &Pool, context: &mut Context<'_>) -> PoolConfig {
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

fn account(user: &At<Free>, context: &mut Context<'_>) -> Option<Account> {
    match context.machine.account(Some(&user.value.0), Path::new("/")) {
        Ok(chosen) => chosen.account,
        Err(says) => {
            context.problems.error(user.place, says);
            None
        }
    }
}

fn group(name: &At<Free>, context: &mut Context<'_>) -> Option<(u32, Place)> {
    match context.machine.worker_group(&name.value.0) {
        Ok(gid) => Some((gid, name.place)),
        Err(says) => {
            context.problems.error(name.place, says);
            None
        }
    }
}

/// The account with another group.
fn with_group(user: Account, group: Option<(u32, Place)>, context: &mut Context<'_>) -> Account {
    let Some((gid, place)) = group else { return user };
    if user.uid == 0 && gid != user.gid {
        context
            .problems
            .error(place, "scripts that run as root have root's group")
            .help("name a user");
    }
    Account { gid, ..user }
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
