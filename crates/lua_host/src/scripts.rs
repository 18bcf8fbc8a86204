//! Running scripts: the state of an event loop, parsed scripts, and the effects of their decisions.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::StatusCode;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use sendoff_lua::{
    Exchange, FragmentCount, FragmentStore, Limits, Machine, Phase, Runtime, Script,
    ScriptDecision, Step,
};
use sendoff_message::request::Request;
use sendoff_message::response::{Field, ResponseHead};
use sendoff_static_files::{CacheShare, Identity, SETTLED, read_regular};
use tokio::time::Instant;

use super::answer::ScriptAnswer;
use super::ask::{self, Asks, TOTAL_TIME};
use super::content::Files;
use super::machine::{FrontMachine, cpu_time};
use super::shared::{SharedByScripts, SharedBySite};
use super::view::{self, Before};

/// Maximum size of a script in bytes.
const MAX_SCRIPT: usize = 1 << 20;

/// Maximum number of parsed scripts that are kept. Beyond it all of them are dropped and parsed
/// anew, so that memory stays bounded even if every file of a folder is a script.
const MAX_PARSED: usize = 1024;

/// State that the sites of one event loop share: a Lua state, and its parsed scripts.
#[derive(Debug)]
pub struct ScriptShare {
    shared: Arc<SharedByScripts>,
    cache: Rc<CacheShare>,
    started: OnceCell<Result<Started, String>>,
    parsed: RefCell<HashMap<PathBuf, Parsed>>,
}

#[derive(Debug)]
struct Started {
    runtime: Runtime,
    files: Rc<Files>,
}

/// A script, and the version of the file that was parsed.
#[derive(Debug)]
struct Parsed {
    identity: Identity,
    script: Script,
}

impl ScriptShare {
    /// The Lua state is created when the first script runs.
    pub fn new(shared: Arc<SharedByScripts>, cache: &Rc<CacheShare>) -> Rc<Self> {
        let (started, parsed) = (OnceCell::new(), RefCell::default());
        Rc::new(Self { shared, cache: Rc::clone(cache), started, parsed })
    }

    /// Purges the fragments of a site that have one of these tags; `None`: all of them.
    pub fn purge_fragments(&self, site: &str, tags: Option<&[&str]>) {
        self.shared.purge_fragments(Some(site), tags);
    }

    fn started(&self) -> Result<&Started, String> {
        let started = self.started.get_or_init(|| {
            let files = Files::open_root(&self.cache).map_err(|error| error.to_string())?;
            let machine: Rc<dyn Machine> = Rc::new(FrontMachine(Rc::clone(&files)));
            Ok(Started { runtime: Runtime::new(Limits::default(), &machine, cpu_time)?, files })
        });
        started.as_ref().map_err(Clone::clone)
    }

    /// The script in its file's current version.
    fn script(&self, runtime: &Runtime, path: &Path) -> Result<Script, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let now = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
        let now = now.map(|stat| Identity::of(&stat)).map_err(|error| failed(&error))?;
        if let Some(parsed) = self.parsed.borrow().get(path)
            && parsed.identity == now
        {
            return Ok(parsed.script.clone());
        }
        let source = read_regular(CWD, path, MAX_SCRIPT).map_err(|error| failed(&error))?;
        let script = runtime.compile(&path.display().to_string(), &source)?;
        let parsed = Parsed { identity: now, script: script.clone() };
        // A file that has just been changed may change again within the same time stamp.
        if now.is_older_than(SETTLED, SystemTime::now()) {
            let mut all = self.parsed.borrow_mut();
            if all.len() >= MAX_PARSED {
                all.clear();
            }
            all.insert(path.to_owned(), parsed);
        } else {
            self.parsed.borrow_mut().remove(path);
        }
        Ok(script)
    }
}

/// The result of running scripts on a request.
#[derive(Debug)]
pub enum ScriptsResult {
    /// The request continues.
    GoOn {
        /// A file system path that a script has chosen instead.
        physical: Option<Vec<u8>>,
    },
    /// The request restarts.
    Restart,
    /// A script answers.
    Answer(ScriptAnswer),
    /// The request is refused with this status; the reason, for the log, if the server is at fault.
    Refused(StatusCode, Option<String>),
}

/// Effects of scripts on the response and on applications.
#[derive(Debug, Default)]
pub struct Traces {
    /// Response fields.
    pub fields: Vec<(Bytes, Bytes)>,
    /// Variables for applications.
    pub environment: Vec<(Bytes, Bytes)>,
    /// The number of fragments that scripts have asked for.
    pub fragments: FragmentCount,
    /// True if the response is explained.
    pub is_explained: bool,
}

/// The scripts of a site.
#[derive(Debug)]
pub struct SiteScripts {
    share: Rc<ScriptShare>,
    root: Rc<[u8]>,
    shared: SharedBySite,
    fragments: Rc<dyn FragmentStore>,
}

/// The arguments of a run of scripts.
#[derive(Debug)]
pub struct Call<'r> {
    /// The moment at which they run.
    pub phase: Phase,
    /// The file that the path is mapped to.
    pub physical: Option<Vec<u8>>,
    /// The request; scripts may change it.
    pub request: &'r mut Request,
    /// Effects of earlier scripts, to which these scripts add.
    pub traces: &'r mut Traces,
}

impl SiteScripts {
    /// The scripts of a site with this name and this folder. They never wait for a fragment that
    /// another script makes: an event loop runs them.
    pub fn new(share: &Rc<ScriptShare>, name: &str, root: &[u8]) -> Self {
        let shared = share.shared.of(name);
        let fragments = shared.fragments(b"", Duration::ZERO);
        Self { share: Rc::clone(share), root: root.into(), shared, fragments }
    }

    /// The scripts of a folder in a process of their own, which may wait for fragments for this time.
    /// Folders share data, but no fragments.
    pub fn of_process(share: &Rc<ScriptShare>, root: &[u8], patience: Duration) -> Self {
        let shared = share.shared.of("");
        let fragments = shared.fragments(&[root, b"\0"].concat(), patience);
        Self { share: Rc::clone(share), root: root.into(), shared, fragments }
    }

    /// A script's view of a request.
    fn lend(&self, request: &mut Request, phase: Phase, physical: Option<Vec<u8>>) -> Exchange {
        let dictionary = &self.shared.dictionary;
        let mut exchange = view::lend(request, phase, physical, &self.root, dictionary);
        exchange.fragments = Some(Rc::clone(&self.fragments));
        exchange
    }

    /// Runs scripts in order until one of them decides. Without `asks` subrequests fail, and the
    /// scripts never wait.
    pub async fn run(
        &self,
        scripts: &[PathBuf],
        mut call: Call<'_>,
        asks: Option<&dyn Asks>,
    ) -> ScriptsResult {
        let mut chosen = None;
        for path in scripts {
            match self.run_one(path, &mut call, asks).await {
                ScriptsResult::GoOn { physical: None } => {}
                ScriptsResult::GoOn { physical } => {
                    call.physical.clone_from(&physical);
                    chosen = physical;
                }
                next => return next,
            }
        }
        ScriptsResult::GoOn { physical: chosen }
    }

    async fn run_one(
        &self,
        path: &Path,
        call: &mut Call<'_>,
        asks: Option<&dyn Asks>,
    ) -> ScriptsResult {
        let Call { phase, physical, request, traces } = call;
        let failed = |why| ScriptsResult::Refused(StatusCode::INTERNAL_SERVER_ERROR, Some(why));
        let started = match self.share.started() {
            Ok(started) => started,
            Err(why) => return failed(why),
        };
        let script = match self.share.script(&started.runtime, path) {
            Ok(script) => script,
            Err(why) => return failed(why),
        };
        let physical = physical.clone();
        let mut exchange = self.lend(request, *phase, physical);
        exchange.fields = std::mem::take(&mut traces.fields);
        exchange.environment = std::mem::take(&mut traces.environment);
        exchange.fragment_count = traces.fragments;
        exchange.is_explained = traces.is_explained;
        let before = Before::of(&exchange);
        let mut step = started.runtime.start(&script, exchange);
        let mut deadline = None;
        let (mut exchange, outcome) = loop {
            match step {
                Step::Done(exchange, outcome) => break (exchange, outcome),
                Step::Waits(mut waiting) => {
                    let deadline = *deadline.get_or_insert_with(|| Instant::now() + TOTAL_TIME);
                    let answered = ask::answer(asks, &mut waiting, request, deadline).await;
                    step = started.runtime.go_on(*waiting, answered);
                }
            }
        };
        traces.fields = std::mem::take(&mut exchange.fields);
        traces.environment = std::mem::take(&mut exchange.environment);
        traces.fragments = exchange.fragment_count;
        let changed = view::give_back(&mut exchange, request, &before);
        log(&exchange.messages, path, request);
        if let sendoff_lua::Body::Pending { is_wanted: true, .. } = exchange.request.body {
            return ScriptsResult::Answer(ScriptAnswer::AfterBody);
        }
        match outcome {
            ScriptDecision::Failed(why) => failed(why),
            ScriptDecision::Restart => match request.restart() {
                Ok(()) => ScriptsResult::Restart,
                Err(bad) => {
                    let why = format!("{}: {}", path.display(), bad.0);
                    ScriptsResult::Refused(StatusCode::BAD_REQUEST, Some(why))
                }
            },
            ScriptDecision::GoOn => match changed {
                Ok(physical) => ScriptsResult::GoOn { physical },
                Err(bad) => {
                    let why = format!("{}: {}", path.display(), bad.0);
                    ScriptsResult::Refused(StatusCode::BAD_REQUEST, Some(why))
                }
            },
            ScriptDecision::File(file) => self.file(&file, exchange.place),
            ScriptDecision::Answer(status) => {
                let Ok(status) = StatusCode::from_u16(status) else {
                    return failed(format!("{}: {status} is no status", path.display()));
                };
                let (segments, why) = started.files.segments(exchange.content.unwrap_or_default());
                if let Some(why) = why {
                    log(&[why], path, request);
                }
                let is_error = status.is_client_error() || status.is_server_error();
                if segments.is_empty() && is_error {
                    return ScriptsResult::Refused(status, None);
                }
                let place = exchange
                    .place
                    .or_else(|| traces.is_explained.then(|| path.display().to_string()));
                ScriptsResult::Answer(ScriptAnswer::Body { status, segments, place })
            }
        }
    }

    /// Runs scripts that cannot wait: like [`Self::run`] without subrequests.
    pub fn run_now(&self, scripts: &[PathBuf], call: Call<'_>) -> ScriptsResult {
        let run = pin!(self.run(scripts, call, None));
        match run.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => next,
            Poll::Pending => unreachable!("nothing is waited for but subrequests"),
        }
    }

    /// A file that a script has chosen at this place.
    pub fn file(&self, path: &[u8], place: Option<String>) -> ScriptsResult {
        match self.share.started().and_then(|started| started.files.open(path)) {
            Ok(entry) => ScriptsResult::Answer(ScriptAnswer::File { entry, place }),
            Err(why) => ScriptsResult::Refused(StatusCode::NOT_FOUND, Some(why)),
        }
    }

    /// Runs scripts on the head of a response. Returns the names of the fields that they set or
    /// removed.
    pub fn change(
        &self,
        scripts: &[PathBuf],
        request: &Request,
        head: &mut ResponseHead,
    ) -> Vec<Bytes> {
        let mut names = Vec::new();
        for path in scripts {
            let run = || -> Result<_, String> {
                let started = self.share.started()?;
                let script = self.share.script(&started.runtime, path)?;
                let mut seen = request.clone();
                let mut exchange = self.lend(&mut seen, Phase::Response, None);
                exchange.status = head.status.as_u16();
                exchange.fields = head.fields.iter().cloned().map(Field::into_parts).collect();
                Ok(started.runtime.run(&script, exchange))
            };
            let (exchange, outcome) = match run() {
                Ok((_, ScriptDecision::Failed(why))) | Err(why) => {
                    let request = request.shown();
                    tracing::error!(request, "the head stays as it is: {why}");
                    continue;
                }
                Ok(ran) => ran,
            };
            log(&exchange.messages, path, request);
            names.extend(exchange.set_names);
            let own = exchange.fields.into_iter();
            head.fields = own.map(|(name, value)| Field::Own(name, value)).collect();
            if let ScriptDecision::Answer(status) = outcome
                && let Ok(status) = StatusCode::from_u16(status)
            {
                (head.status, head.reason) = (status, None);
            }
        }
        names
    }
}

fn log(messages: &[String], path: &Path, request: &Request) {
    for message in messages {
        let request = request.shown();
        tracing::info!(request, script = %path.display(), "{message}");
    }
}
