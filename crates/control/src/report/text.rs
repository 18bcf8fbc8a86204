//! The report as text for people.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use sendoff_acme::CertificateReport;
use sendoff_report::status::{
    Encryption, HostStatus, Phase, ProgramStatus, RequestStatus, SiteStatus, UpstreamStatus,
};

use super::{
    GroupReport, PoolReport, ProgramReport, Reloaded, ServerReport, SiteReport, WorkerReport,
};
use crate::fleet::FleetText;
use crate::php::{self, common_extensions};
use crate::warming::WarmingText;

/// Sites, pools, and workers of a pool in the text for people: those with the most requests. JSON
/// contains all.
const MOST_SHOWN: usize = 32;

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, pid, connections, idle_connections, .. } = self;
        let uptime = Ago(self.uptime);
        writeln!(f, "sendoff {version}, process {pid}, running for {uptime}")?;
        writeln!(f, "listens on   {}", self.listeners.join(", "))?;
        match (connections, idle_connections) {
            (Some(all), Some(idle)) => writeln!(f, "connections  {all}, {idle} of them idle")?,
            _ => writeln!(f, "connections  unknown: the front does not answer")?,
        }
        match self.tls {
            Encryption::None => {}
            Encryption::ByServer => writeln!(f, "TLS          by the server; the kernel has none")?,
            Encryption::ByKernel(count) => {
                writeln!(f, "TLS          by the kernel for {count} of them")?;
            }
        }
        if !self.limits.is_empty() {
            let limits = self.limits.iter().map(|(name, times)| format!("{name} {times}"));
            writeln!(f, "limits met   {}", limits.collect::<Vec<_>>().join(", "))?;
        }
        if let Some(confinement) = &self.confinement {
            writeln!(f, "front        {confinement}")?;
        }
        let mut all = SiteStatus { requests: self.refused, ..SiteStatus::default() };
        self.sites.iter().for_each(|site| all.add(site.sent));
        writeln!(f, "sent         {}", SentVolume(all))?;
        let (sites, others) = busiest(&self.sites, MOST_SHOWN, |site| site.sent.requests);
        for SiteReport { name, root, sent } in sites {
            writeln!(f, "site         {name}: {root}: {}", SentVolume(*sent))?;
        }
        Self::write_others(f, others, "sites")?;
        for warming in self.warming.iter().take(MOST_SHOWN) {
            writeln!(f, "warmed       {}", WarmingText(warming, self.time))?;
        }
        if let Some(fleet) = &self.fleet {
            writeln!(f, "fleet        {}", FleetText(fleet))?;
        }
        let (pools, others) = busiest(&self.pools, MOST_SHOWN, |pool| pool.requests);
        let common = common_extensions(self.pools.iter().filter_map(|pool| pool.php.as_ref()));
        for pool in pools {
            pool.write(f, common.as_ref())?;
        }
        Self::write_others(f, others, "pools")?;
        let (upstreams, others) = busiest(&self.upstreams, MOST_SHOWN, requests_of);
        for upstream in upstreams {
            write_upstream(f, upstream)?;
        }
        Self::write_others(f, others, "upstreams")?;
        self.write_requests(f)?;
        for certificate in &self.certificates {
            writeln!(f, "certificate  {}", CertificateText(certificate, self.time))?;
        }
        if let Some(since) = self.reloading {
            writeln!(f, "reload       running for {}", Ago(since))?;
        }
        match &self.last_reload {
            None => writeln!(f, "last reload  never"),
            Some(Reloaded { ago, error: None }) => writeln!(f, "last reload  {} ago", Ago(*ago)),
            Some(Reloaded { ago, error: Some(why) }) => {
                writeln!(f, "last reload  {} ago, it failed: {why}", Ago(*ago))
            }
        }
    }
}

impl ServerReport {
    /// Writes the requests that do not appear with a worker: their bodies are still arriving, they
    /// wait, an application has them, or their responses are still being sent although the worker
    /// is free again.
    fn write_requests(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_work = self.pools.iter().flat_map(|pool| &pool.workers);
        let shown: BTreeSet<u64> =
            at_work.filter_map(|worker| Some(worker.at_work.as_ref()?.number)).collect();
        let rest = || self.requests.iter().filter(|request| !shown.contains(&request.number));
        for request in rest().take(MOST_SHOWN) {
            writeln!(f, "request      {}", AtWork(request))?;
        }
        match rest().count().saturating_sub(MOST_SHOWN) {
            0 => Ok(()),
            others => writeln!(f, "             and {others} newer requests: see --json"),
        }
    }

    /// Writes the number of items that are left out.
    fn write_others(f: &mut fmt::Formatter<'_>, others: usize, what: &str) -> fmt::Result {
        match others {
            0 => Ok(()),
            _ => writeln!(f, "             and {others} {what} with fewer requests: see --json"),
        }
    }
}

impl PoolReport {
    /// Writes the pool as text for people. `common`: the extensions that all pools have.
    fn write(&self, f: &mut fmt::Formatter<'_>, common: Option<&BTreeSet<&str>>) -> fmt::Result {
        let Self { name, waiting, requests, workers, program, host, php, group } = self;
        if let Some(program) = program {
            return self.write_program(f, program);
        }
        let busy = workers.iter().filter(|worker| worker.request.is_some()).count();
        let count = workers.len();
        let requests = RequestCount(*requests);
        writeln!(
            f,
            "pool         {name}: {count} workers, {busy} busy, {waiting} waiting, {requests}"
        )?;
        php::write(f, host.as_ref(), php.as_ref(), common)?;
        write_group(f, group.as_ref())?;
        let others = workers.len().saturating_sub(MOST_SHOWN);
        for WorkerReport { pid, request, at_work, memory } in workers.iter().take(MOST_SHOWN) {
            let memory = memory.map_or_else(String::new, |m| format!("{:.1} MB", mega(m)));
            write!(f, "  {pid:>8}  {memory:>9}  ")?;
            match (at_work, request) {
                (Some(request), _) => writeln!(f, "{}", AtWork(request))?,
                (None, Some(request)) => writeln!(f, "{request}")?,
                (None, None) => writeln!(f, "idle")?,
            }
        }
        match others {
            0 => Ok(()),
            _ => writeln!(f, "            and {others} other workers: see --json"),
        }
    }
}

/// A request being processed, as text for people: its stage, its age, its client, its site and
/// host, and its URI.
struct AtWork<'r>(&'r RequestStatus);

impl fmt::Display for AtWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequestStatus { request, site, host, client, age, phase, .. } = self.0;
        let phase = match phase {
            Phase::ReadingBody => "reading body",
            Phase::Waiting => "waiting for worker",
            Phase::Running => "running",
            Phase::Sending => "sending",
            Phase::AfterResponse => "after response",
        };
        let age = match age {
            ..60_000 => format!("{:.1} s", Duration::from_millis(*age).as_secs_f64()),
            age => Ago(age / 1000).to_string(),
        };
        write!(f, "{phase} {age}  {client}  {site}")?;
        if let Some(host) = host.as_deref().filter(|host| host != site) {
            write!(f, " ({host})")?;
        }
        write!(f, "  {request}")
    }
}

/// Writes the limits that all processes of a pool share, as text for people.
fn write_group(f: &mut fmt::Formatter<'_>, group: Option<&GroupReport>) -> fmt::Result {
    let Some(GroupReport { memory_limit, cpu_limit, processes_limit, used }) = group else {
        return Ok(());
    };
    let part = |used: Option<String>, limit: String| match used {
        Some(used) => format!("{used} of {limit}"),
        None => format!("at most {limit}"),
    };
    let use_of = used.unwrap_or_default();
    let memory = memory_limit.map(|limit| {
        let used = use_of.memory.map(|bytes| format!("{:.1}", mega(bytes)));
        part(used, format!("{:.1} MB of memory", mega(limit)))
    });
    let processes = processes_limit.map(|limit| {
        part(
            use_of.processes.map(|count| count.to_string()),
            format!("{limit} processes and threads"),
        )
    });
    let cpu = cpu_limit.map(|limit| format!("at most {limit} processors"));
    let all: Vec<_> = [memory, processes, cpu].into_iter().flatten().collect();
    write!(f, "             together {}", all.join(", "))?;
    match (used, use_of.out_of_memory) {
        (None, _) => f.write_str(", which does not hold: the log says why")?,
        (Some(_), 0) => {}
        (Some(_), 1) => f.write_str(", 1 process ended for want of memory")?,
        (Some(_), count) => write!(f, ", {count} processes ended for want of memory")?,
    }
    writeln!(f)
}

/// Requests that the hosts of an upstream received.
fn requests_of(upstream: &UpstreamStatus) -> u64 {
    upstream.hosts.iter().map(|host| host.requests).sum()
}

fn write_upstream(f: &mut fmt::Formatter<'_>, upstream: &UpstreamStatus) -> fmt::Result {
    let UpstreamStatus { name, hosts } = upstream;
    let up = hosts.iter().filter(|host| host.down_for.is_none()).count();
    let requests = RequestCount(requests_of(upstream));
    let hosts_word = if hosts.len() == 1 { "host" } else { "hosts" };
    writeln!(f, "upstream     {name}: {} {hosts_word}, {up} up, {requests}", hosts.len())?;
    for host in hosts {
        let HostStatus { address, busy, requests, failures, down_for, awaits_check, why, .. } =
            host;
        let health = match down_for {
            None => "up".to_owned(),
            Some(_) if *awaits_check => "down until a check succeeds".to_owned(),
            Some(0) => format!("down: {failures} failures, to be tried now"),
            Some(millis) => format!(
                "down: {failures} failures, to be tried in {:.1} s",
                Duration::from_millis(*millis).as_secs_f64()
            ),
        };
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let requests = RequestCount(*requests);
        writeln!(f, "             {address}: {busy} busy, {requests}, {health}{why}")?;
    }
    Ok(())
}

impl PoolReport {
    fn write_program(&self, f: &mut fmt::Formatter<'_>, of: &ProgramReport) -> fmt::Result {
        let Self { name, waiting, requests, workers, group, .. } = self;
        let ProgramReport { command, status: ProgramStatus { busy, down } } = of;
        let processes = match workers.len() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        };
        let (requests, command) = (RequestCount(*requests), command.join(" "));
        writeln!(
            f,
            "pool         {name}: {processes}, {busy} busy, {waiting} waiting, {requests}: {command}"
        )?;
        write_group(f, group.as_ref())?;
        let (shown, others) = busiest(workers, MOST_SHOWN, |_| ());
        for WorkerReport { pid, memory, .. } in shown {
            let memory = memory.map_or_else(String::new, |m| format!("{:.1} MB", mega(m)));
            writeln!(f, "  {pid:>8}  {memory:>9}")?;
        }
        match (others, down) {
            (0, None) => Ok(()),
            (_, None) => writeln!(f, "            and {others} other processes: see --json"),
            (_, Some(why)) => writeln!(f, "            it does not run: the last process {why}"),
        }
    }
}

/// The items with the `most` largest keys, in the order of the list, and the number of the other
/// items.
fn busiest<T, K: Ord>(list: &[T], most: usize, key: impl Fn(&T) -> K) -> (Vec<&T>, usize) {
    let mut numbered: Vec<_> = list.iter().enumerate().collect();
    if list.len() > most {
        numbered.sort_by_key(|(_, one)| Reverse(key(one)));
        numbered.truncate(most);
        numbered.sort_by_key(|(number, _)| *number);
    }
    let others = list.len() - numbered.len();
    (numbered.into_iter().map(|(_, one)| one).collect(), others)
}

/// A number of requests.
struct RequestCount(u64);

impl fmt::Display for RequestCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 request"),
            number => write!(f, "{number} requests"),
        }
    }
}

/// Volume of the responses sent, as text for people.
struct SentVolume(SiteStatus);

impl fmt::Display for SentVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SiteStatus { requests, handed_over, copied } = self.0;
        let (handed_over, copied) = (mega(handed_over), mega(copied));
        write!(
            f,
            "{}, {handed_over:.1} MB handed over, {copied:.1} MB copied",
            RequestCount(requests)
        )
    }
}

/// A certificate and the current time, as text for people.
struct CertificateText<'r>(&'r CertificateReport, u64);

impl fmt::Display for CertificateText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(CertificateReport { names, ends, asks, error, by }, now) = self;
        let left = |time: u64| Ago(time.saturating_sub(*now));
        write!(f, "{}: ", names.join(", "))?;
        match (ends, error) {
            (Some(ends), why) if ends <= now => {
                write!(f, "expired {} ago, next attempt in {}", Ago(now - ends), left(*asks))?;
                why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
            }
            (Some(ends), None) => {
                write!(f, "holds for {}, renewed in {}", left(*ends), left(*asks))?;
                by.as_ref().map_or(Ok(()), |by| write!(f, ", obtained by {by}"))
            }
            (Some(ends), Some(why)) => write!(
                f,
                "holds for {}, next attempt to renew it in {}: {why}",
                left(*ends),
                left(*asks)
            ),
            (None, None) => f.write_str("none yet"),
            (None, Some(why)) => write!(f, "none yet, next attempt in {}: {why}", left(*asks)),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure with one decimal")]
pub(crate) fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// A duration in seconds, as text for people.
pub(crate) struct Ago(pub(crate) u64);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, hours) = (self.0 / 86400, self.0 / 3600 % 24);
        let (minutes, seconds) = (self.0 / 60 % 60, self.0 % 60);
        match self.0 {
            86400.. => write!(f, "{days} d {hours} h"),
            3600.. => write!(f, "{hours} h {minutes} min"),
            60.. => write!(f, "{minutes} min {seconds} s"),
            _ => write!(f, "{seconds} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use sendoff_report::workers::{OpcacheReport, PhpReport};

    use super::*;
    use crate::php::HostReport;
    use crate::report::GroupUse;

    #[test]
    fn the_busiest_are_shown_in_their_order() {
        let list = [3, 0, 5, 5, 1];
        assert_eq!(busiest(&list, 3, |n| *n), (vec![&3, &5, &5], 2));
        assert_eq!(busiest(&list, 5, |n| *n).1, 0);
    }

    #[test]
    fn a_report_reads_as_text() {
        let at_work = |number, phase, age, host: Option<&str>, worker| RequestStatus {
            number,
            request: format!("GET /{number}"),
            site: "shop".to_owned(),
            host: host.map(str::to_owned),
            client: "192.0.2.1".to_owned(),
            age,
            phase,
            worker,
        };
        let running = at_work(1, Phase::Running, 3210, Some("www.shop.test"), Some(11));
        let worker = |pid, at_work: Option<&RequestStatus>| WorkerReport {
            pid,
            request: at_work.map(|request| request.request.clone()),
            at_work: at_work.cloned(),
            memory: Some(12_345_678),
        };
        let program = |busy, down: Option<&str>| {
            let status = ProgramStatus { busy, down: down.map(str::to_owned) };
            Some(ProgramReport { command: vec!["rackup".to_owned(), "-q".to_owned()], status })
        };
        let host = |address: &str, failures, down_for| HostStatus {
            address: address.to_owned(),
            weight: 1,
            rank: 0,
            busy: 2,
            requests: 10,
            failures,
            down_for,
            awaits_check: false,
            why: String::new(),
        };
        let report = ServerReport {
            version: "1.2".to_owned(),
            config: None,
            pid: 7,
            front_pid: Some(8),
            confinement: None,
            uptime: 90_061,
            listeners: vec!["127.0.0.1:80".to_owned(), "unix:/a".to_owned()],
            refused: 1,
            sites: vec![SiteReport {
                name: "shop".to_owned(),
                root: "/srv/shop".to_owned(),
                sent: SiteStatus { requests: 7, handed_over: 12_345_678, copied: 0 },
            }],
            connections: Some(3),
            idle_connections: Some(1),
            limits: [("rate".to_owned(), 6), ("send_timeout".to_owned(), 1)].into(),
            tls: Encryption::ByKernel(2),
            pools: vec![
                PoolReport {
                    name: "main".to_owned(),
                    waiting: 0,
                    requests: 1,
                    workers: vec![worker(11, Some(&running)), worker(10, None)],
                    program: None,
                    host: Some(HostReport {
                        file: "/usr/sbin/php-fpm8.2".to_owned(),
                        version: "8.2".to_owned(),
                    }),
                    php: Some(PhpReport {
                        version: "8.2.36".to_owned(),
                        opcache: Some(OpcacheReport {
                            enabled: true,
                            memory: 134_217_728,
                            jit: None,
                            preload: Some("/srv/preload.php".to_owned()),
                            file_cache: None,
                        }),
                        apcu: Some(33_554_432),
                        extensions: vec!["gd".to_owned(), "intl".to_owned()],
                    }),
                    group: Some(GroupReport {
                        memory_limit: Some(1_500_000_000),
                        cpu_limit: Some(1.5),
                        processes_limit: Some(64),
                        used: Some(GroupUse {
                            memory: Some(123_456_789),
                            processes: Some(3),
                            out_of_memory: 2,
                        }),
                    }),
                },
                PoolReport {
                    name: "shop".to_owned(),
                    waiting: 2,
                    requests: 3,
                    workers: vec![worker(12, None)],
                    program: program(1, None),
                    host: None,
                    php: None,
                    group: Some(GroupReport {
                        memory_limit: None,
                        cpu_limit: Some(0.5),
                        processes_limit: None,
                        used: None,
                    }),
                },
                PoolReport {
                    name: "wiki".to_owned(),
                    waiting: 0,
                    requests: 0,
                    workers: Vec::new(),
                    program: program(0, Some("ended (exit status: 1)")),
                    host: None,
                    php: None,
                    group: None,
                },
            ],
            upstreams: vec![UpstreamStatus {
                name: "app".to_owned(),
                hosts: vec![host("tcp:10.0.0.1:9000", 0, None), host("unix:/a", 3, Some(1500))],
            }],
            warming: Vec::new(),
            fleet: None,
            requests: vec![
                running.clone(),
                at_work(2, Phase::ReadingBody, 90_000, Some("shop"), None),
                at_work(3, Phase::Waiting, 40, None, None),
            ],
            time: 1000,
            certificates: vec![
                CertificateReport {
                    names: vec!["a.test".to_owned(), "b.test".to_owned()],
                    ends: Some(1000 + 90_061),
                    asks: 1061,
                    error: None,
                    by: Some("web1".to_owned()),
                },
                CertificateReport {
                    names: vec!["c.test".to_owned()],
                    ends: None,
                    asks: 0,
                    error: Some("no way".to_owned()),
                    by: None,
                },
            ],
            reloading: Some(3),
            last_reload: Some(Reloaded { ago: 61, error: None }),
        };
        let expected = "sendoff 1.2, process 7, running for 1 d 1 h\n\
            listens on   127.0.0.1:80, unix:/a\n\
            connections  3, 1 of them idle\n\
            TLS          by the kernel for 2 of them\n\
            limits met   rate 6, send_timeout 1\n\
            sent         8 requests, 12.3 MB handed over, 0.0 MB copied\n\
            site         shop: /srv/shop: 7 requests, 12.3 MB handed over, 0.0 MB copied\n\
            pool         main: 2 workers, 1 busy, 0 waiting, 1 request\n\
            \u{20}            PHP 8.2.36 in /usr/sbin/php-fpm8.2, opcache 134.2 MB, no JIT, preloaded by /srv/preload.php, APCu 33.6 MB\n\
            \u{20}            together 123.5 of 1500.0 MB of memory, 3 of 64 processes and threads, at most 1.5 processors, 2 processes ended for want of memory\n\
            \u{20}       11    12.3 MB  running 3.2 s  192.0.2.1  shop (www.shop.test)  GET /1\n\
            \u{20}       10    12.3 MB  idle\n\
            pool         shop: 1 process, 1 busy, 2 waiting, 3 requests: rackup -q\n\
            \u{20}            together at most 0.5 processors, which does not hold: the log says why\n\
            \u{20}       12    12.3 MB\n\
            pool         wiki: 0 processes, 0 busy, 0 waiting, 0 requests: rackup -q\n\
            \u{20}           it does not run: the last process ended (exit status: 1)\n\
            upstream     app: 2 hosts, 1 up, 20 requests\n\
            \u{20}            tcp:10.0.0.1:9000: 2 busy, 10 requests, up\n\
            \u{20}            unix:/a: 2 busy, 10 requests, down: 3 failures, to be tried in 1.5 s\n\
            request      reading body 1 min 30 s  192.0.2.1  shop  GET /2\n\
            request      waiting for worker 0.0 s  192.0.2.1  shop  GET /3\n\
            certificate  a.test, b.test: holds for 1 d 1 h, renewed in 1 min 1 s, obtained by web1\n\
            certificate  c.test: none yet, next attempt in 0 s: no way\n\
            reload       running for 3 s\n\
            last reload  1 min 1 s ago\n";
        assert_eq!(report.to_string(), expected);
    }
}
