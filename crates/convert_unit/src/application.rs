//! Applications, as pools.

use super::json::Node;
use sendoff_convert_document::Section;

/// Options of every application.
const COMMON: [&str; 10] = [
    "type",
    "limits",
    "processes",
    "user",
    "group",
    "working_directory",
    "environment",
    // The rest is of a language.
    "targets",
    "root",
    "script",
];

/// The language of a `type` such as `php 8.2`.
pub(super) fn language(kind: &str) -> &str {
    kind.split(' ').next().unwrap_or_default()
}

/// A name that a pool or an upstream may have.
pub(super) fn name(text: &str) -> String {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    let plain: String = text.chars().map(|sign| if is_plain(sign) { sign } else { '-' }).collect();
    match plain.parse::<u64>() {
        // It would be a port.
        Ok(_) => format!("app-{plain}"),
        Err(_) if plain.is_empty() => "app".to_owned(),
        Err(_) => plain,
    }
}

/// A part of a destination, without its escapes.
pub(super) fn decoded(part: &str) -> String {
    part.replace("%2F", "/").replace("%2f", "/").replace("%25", "%")
}

/// A program that a pool runs.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) pool: Section,
}

impl Program {
    /// The program for an application in Python or Ruby.
    ///
    /// # Errors
    /// It cannot be expressed; the reason.
    pub(super) fn of(app_name: &str, app: &Node<'_>, target: Option<&str>) -> Result<Self, String> {
        let full = match target {
            Some(target) => format!("{app_name}-{target}"),
            None => app_name.to_owned(),
        };
        let mut program = Self { name: name(&full), pool: Section::new("pool") };
        program.pool.set("name", program.name.clone());
        let place = match target {
            None => app.clone(),
            Some(target) => app
                .get("targets")
                .and_then(|targets| targets.get(target))
                .ok_or("no target has this name")?,
        };
        match app.text_of("type").map(language) {
            Some("python") => program.python(app, &place)?,
            _ => program.ruby(app)?,
        }
        common(app, &mut program.pool);
        Ok(program)
    }

    fn python(&mut self, app: &Node<'_>, place: &Node<'_>) -> Result<(), String> {
        let known =
            ["path", "home", "protocol", "threads", "module", "callable", "factory", "prefix"];
        app.name_others(&[&COMMON[..], &known[..]].concat(), &mut self.pool);
        let module = place.text_of("module").ok_or("it has no module")?;
        let callable = place.text_of("callable").unwrap_or("application");
        let is_made = place.get("factory").and_then(|factory| factory.flag()) == Some(true);
        let program = match app.text_of("home") {
            Some(home) => {
                self.pool.comment(format!(
                    "The package of sendoff-python must be installed there: {home}/bin/pip install."
                ));
                format!("{}/bin/sendoff-python", home.trim_end_matches('/'))
            }
            None => "sendoff-python".to_owned(),
        };
        let suffix = if is_made { "()" } else { "" };
        let mut command = vec![program, format!("{module}:{callable}{suffix}")];
        if let Some(protocol) = place.text_of("protocol").or(app.text_of("protocol")) {
            command.extend(["--interface".to_owned(), protocol.to_owned()]);
        }
        if let Some(threads) = app.get("threads").and_then(|threads| threads.whole()) {
            command.extend(["--threads".to_owned(), threads.to_string()]);
        }
        if let Some(requests) = app.get("limits").and_then(|limits| limits.get("requests")) {
            command.extend(["--max-requests".to_owned(), requests.shown()]);
        }
        command.extend(["--workers".to_owned(), processes(app).to_string()]);
        if let Some(path) = app.get("path") {
            let paths = path.texts().ok_or("its path is no text")?;
            self.pool.set_in("env", "PYTHONPATH", paths.join(":"));
        }
        if let Some(prefix) = place.get("prefix") {
            prefix.left_out(&mut self.pool, "the application gets the whole path");
        }
        self.pool.set("command", command);
        Ok(())
    }

    fn ruby(&mut self, app: &Node<'_>) -> Result<(), String> {
        app.name_others(&[&COMMON[..], &["threads"]].concat(), &mut self.pool);
        let script = app.text_of("script").ok_or("it has no script")?;
        let mut command =
            ["rackup", "-s", "sendoff", "-E", "production"].map(str::to_owned).to_vec();
        let threads = app.get("threads").and_then(|threads| threads.whole()).unwrap_or(1);
        for option in [format!("workers={}", processes(app)), format!("threads={threads}")] {
            command.extend(["-O".to_owned(), option]);
        }
        command.push(script.to_owned());
        if let Some(requests) = app.get("limits").and_then(|limits| limits.get("requests")) {
            requests.left_out(&mut self.pool, "processes live on");
        }
        self.pool.set("command", command);
        Ok(())
    }
}

/// The number of processes.
fn processes(app: &Node<'_>) -> i64 {
    let node = app.get("processes");
    let most = node.and_then(|node| match node.whole() {
        Some(number) => Some(number),
        None => node.get("max")?.whole(),
    });
    most.unwrap_or(1).clamp(1, 1024)
}

/// The pool of an application in PHP.
pub(super) fn php(app_name: &str, app: &Node<'_>) -> Section {
    let mut pool = Section::new("pool");
    pool.set("name", name(app_name));
    app.name_others(&[&COMMON[..], &["index", "options"]].concat(), &mut pool);
    if let Some(version) = app.text_of("type").and_then(|kind| kind.split(' ').nth(1)) {
        let mut parts = version.split('.');
        if let (Some(major), Some(minor)) = (parts.next(), parts.next()) {
            pool.set("php", format!("{major}.{minor}"));
        }
    }
    match app.get("processes") {
        Some(node) if node.whole().is_none() => {
            let of = |name: &str| node.get(name).and_then(|number| number.whole());
            let spare = of("spare").unwrap_or(0).clamp(0, 1024);
            pool.set("workers", if spare == 0 { "ondemand" } else { "auto" });
            if spare > 0 {
                pool.set("min_workers", spare);
            }
            pool.set("max_workers", of("max").unwrap_or(1).clamp(spare.max(1), 1024));
            if let Some(time @ 1..) = of("idle_timeout") {
                pool.set("worker_idle_timeout", format!("{time}s"));
            }
            node.name_others(&["max", "spare", "idle_timeout"], &mut pool);
        }
        _ => pool.set("workers", processes(app)),
    }
    if let Some(limits) = app.get("limits") {
        let of = |name: &str| limits.get(name).and_then(|number| number.whole());
        if let Some(time @ 1..) = of("timeout") {
            pool.set("request_timeout", format!("{time}s"));
        }
        if let Some(requests @ 1..) = of("requests") {
            pool.set("max_requests", requests);
        }
    }
    options(app, &mut pool);
    common(app, &mut pool);
    pool
}

fn options(app: &Node<'_>, pool: &mut Section) {
    let Some(options) = app.get("options") else { return };
    options.name_others(&["admin", "user"], pool);
    for (theirs, ours) in [("admin", "php_admin_value"), ("user", "php_value")] {
        for (key, value) in options.get(theirs).iter().flat_map(Node::members) {
            match value.text() {
                Some(text) => pool.set_in(ours, key, text),
                None => value.left_out(pool, "it is no text"),
            }
        }
    }
}

fn common(app: &Node<'_>, pool: &mut Section) {
    for (theirs, ours) in [("user", "user"), ("group", "group"), ("working_directory", "chdir")] {
        if let Some(text) = app.text_of(theirs) {
            pool.set(ours, text);
        }
    }
    if app.get("user").is_none() {
        pool.comment("No user is named: Unit runs the application as its own account.");
    }
    for (name, value) in app.get("environment").iter().flat_map(Node::members) {
        match value.text() {
            Some(text) => pool.set_in("env", name, text),
            None => value.left_out(pool, "it is no text"),
        }
    }
    if let Some(limits) = app.get("limits") {
        limits.name_others(&["timeout", "requests"], pool);
        if let Some(timeout) = limits.get("timeout").filter(|_| !is_php(app)) {
            timeout.left_out(pool, "request_timeout is for PHP; fastcgi_timeout of the site is how long a program may send nothing");
        }
    }
}

fn is_php(app: &Node<'_>) -> bool {
    app.text_of("type").map(language) == Some("php")
}

/// The section of an upstream.
pub(super) fn upstream(upstream_name: &str, upstream: &Node<'_>) -> Section {
    let mut section = Section::new("upstream");
    section.set("name", name(upstream_name));
    upstream.name_others(&["servers"], &mut section);
    let servers = upstream.get("servers");
    let servers: Vec<_> = servers.iter().flat_map(Node::members).collect();
    let weight = |server: &Node<'_>| server.get("weight").and_then(|it| it.number()).unwrap_or(1.0);
    let is_whole = servers.iter().all(|(_, server)| weight(server).fract() == 0.0);
    let mut hosts = Vec::new();
    for (address, server) in &servers {
        server.name_others(&["weight"], &mut section);
        let share = if is_whole { weight(server) } else { weight(server) * 100.0 };
        let share = share.round().clamp(0.0, 10_000.0);
        match share {
            0.0 => {}
            1.0 => hosts.push((*address).to_owned()),
            share => hosts.push(format!("{address} weight={share}")),
        }
    }
    section.set_list("hosts", hosts);
    section
}
