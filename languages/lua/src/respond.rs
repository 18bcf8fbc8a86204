//! Answers one request: runs its scripts, and sends the result.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use sendoff_delivery::segment::Segment;
use sendoff_lua::Phase;
use sendoff_lua_host::{
    Call, ScriptAnswer, ScriptShare, ScriptsResult, SharedByScripts, SiteScripts, Traces,
};
use sendoff_message::request::BodyStore;
use sendoff_message::response::Field;
use sendoff_static_files::{
    CacheLimits, CacheShare, FileRequestError, StaticResponse, respond_with,
};
use sendoff_worker::{BodyPart, Gone, Sender, Worker};

use crate::messages;
use crate::request::{self, ServerRequest};

/// Maximum number of runs of a request, including restarts, as in the server.
const MAX_RUNS: usize = 10;

/// Required ending of script names from web servers.
const ENDING: &[u8] = b".lua";

/// Longest wait for another script that makes a fragment.
const PATIENCE: Duration = Duration::from_secs(5);

/// Size of one read of a request body, in bytes.
const BODY_PIECE: usize = 64 * 1024;

/// State of one thread for its requests.
#[derive(Debug)]
pub(crate) struct Responder {
    /// Scripts that every request runs; if empty, the web server names the script.
    scripts: Vec<PathBuf>,
    share: Rc<ScriptShare>,
    sender: Arc<Sender>,
}

/// A response.
struct Response {
    status: StatusCode,
    fields: Vec<(Bytes, Bytes)>,
    body: Vec<Segment>,
    /// The value of `Content-Length`; `None` if there is no such field.
    length: Option<u64>,
    /// The place in the script that made the response, if it is explained.
    place: Option<String>,
}

impl Responder {
    /// A responder; all threads share `data` and `sender`.
    pub(crate) fn new(
        scripts: Vec<PathBuf>,
        data: Arc<SharedByScripts>,
        sender: Arc<Sender>,
    ) -> Self {
        let cache = CacheShare::new(CacheLimits::default());
        Self { scripts, share: ScriptShare::new(data, &cache), sender }
    }

    /// Answers the request that a worker has accepted.
    pub(crate) fn answer(&self, worker: &mut Worker) {
        let parameters = worker.params_with_nul();
        let asked = request::read(parameters.map(|(name, value)| (bare(name), bare(value))));
        let (response, method) = match asked {
            Ok(mut asked) => {
                let response = self.run(&mut asked, worker);
                (response, asked.request.method)
            }
            Err(bad) => {
                tracing::info!("answered with 400: {}", bad.0);
                (Response::page(StatusCode::BAD_REQUEST, Vec::new()), Method::GET)
            }
        };
        messages::pass_on(worker);
        // The send fails if the client has gone, which needs no handling.
        let _gone = self.send(worker, &method, &response);
    }

    /// Runs the scripts until one of them decides.
    fn run(&self, asked: &mut ServerRequest, worker: &mut Worker) -> Response {
        let scripts = SiteScripts::of_process(&self.share, &asked.root, PATIENCE);
        let mut traces = Traces {
            environment: std::mem::take(&mut asked.environment),
            is_explained: worker.explains(),
            ..Traces::default()
        };
        let mut is_again = false;
        for _ in 0..MAX_RUNS {
            let (list, physical) = match self.chosen(asked, is_again) {
                Ok(chosen) => chosen,
                Err(status) => return Response::page(status, traces.fields),
            };
            let call = Call {
                phase: Phase::Route,
                physical: Some(physical),
                request: &mut asked.request,
                traces: &mut traces,
            };
            let next = match scripts.run_now(&list, call) {
                ScriptsResult::GoOn { physical: Some(file) } => scripts.file(&file, None),
                other => other,
            };
            if let ScriptsResult::Answer(ScriptAnswer::Body { .. } | ScriptAnswer::File { .. }) =
                &next
                && let Some(note) = traces.fragments.note().filter(|_| traces.is_explained)
            {
                worker.explain(format!("note\t\t{note}\t").as_bytes());
            }
            match next {
                ScriptsResult::Answer(ScriptAnswer::Body { status, segments, place }) => {
                    let length = Some(segments.iter().map(Segment::len).sum());
                    let (fields, body) = (traces.fields, segments);
                    return Response { status, fields, body, length, place };
                }
                ScriptsResult::Answer(ScriptAnswer::File { entry, place }) => {
                    let asked = &asked.request;
                    let found = respond_with(&entry, &asked.method, &asked.headers);
                    return Response { place, ..Response::file(found, traces.fields) };
                }
                ScriptsResult::Answer(ScriptAnswer::AfterBody) => match read_body(worker) {
                    Ok(body) => {
                        asked.request.has_body = !body.is_empty();
                        asked.request.body = body;
                        traces.fields.clear();
                    }
                    Err(error) => {
                        tracing::info!("the body cannot be read: {error}");
                        return Response::page(StatusCode::BAD_REQUEST, traces.fields);
                    }
                },
                ScriptsResult::Restart => is_again = true,
                ScriptsResult::GoOn { .. } => {
                    tracing::info!("answered with 404: no script has answered");
                    return Response::page(StatusCode::NOT_FOUND, traces.fields);
                }
                ScriptsResult::Refused(status, why) => {
                    let status = self.status(status, &list);
                    if let Some(why) = why {
                        tracing::info!("answered with {}: {why}", status.as_u16());
                    }
                    return Response::page(status, traces.fields);
                }
            }
        }
        let why = format!("scripts have begun the request again {MAX_RUNS} times");
        tracing::info!("answered with 500: {why}");
        Response::page(StatusCode::INTERNAL_SERVER_ERROR, traces.fields)
    }

    /// The scripts of a request, and the file that its path is mapped to. `is_again`: a script has
    /// restarted the request, perhaps with another path.
    fn chosen(
        &self,
        asked: &ServerRequest,
        is_again: bool,
    ) -> Result<(Cow<'_, [PathBuf]>, Vec<u8>), StatusCode> {
        let beneath_root = || {
            let root = asked.root.strip_suffix(b"/").unwrap_or(&asked.root);
            [root, &asked.request.path].concat()
        };
        if !self.scripts.is_empty() {
            return Ok((Cow::Borrowed(&self.scripts), beneath_root()));
        }
        let named = asked.script.clone().filter(|_| !is_again).unwrap_or_else(beneath_root);
        if !named.ends_with(ENDING) {
            let shown = named.escape_ascii();
            tracing::info!(
                "answered with 403: {shown} is no script: its name does not end in .lua"
            );
            return Err(StatusCode::FORBIDDEN);
        }
        Ok((Cow::Owned(vec![PathBuf::from(OsStr::from_bytes(&named))]), named))
    }

    /// The status for a refused request. A missing script is not a script's failure.
    fn status(&self, status: StatusCode, scripts: &[PathBuf]) -> StatusCode {
        let is_named = self.scripts.is_empty();
        if is_named && scripts.iter().any(|script| !script.is_file()) {
            StatusCode::NOT_FOUND
        } else {
            status
        }
    }

    fn send(&self, worker: &mut Worker, method: &Method, response: &Response) -> Result<(), Gone> {
        if let Some(place) = &response.place {
            worker.explain(format!("bytes\t{place}\t\t").as_bytes());
        }
        let head = response.head();
        if method == Method::HEAD || response.body.is_empty() {
            return worker.write_head(&head);
        }
        let mut descriptors = Vec::new();
        for segment in &response.body {
            if let Segment::File(range) = segment {
                // The file was opened for this response and not cached, so it has a descriptor.
                descriptors.push(range.file.descriptor().ok_or(Gone)?);
            }
        }
        let mut open = descriptors.iter();
        let parts = response.body.iter().filter_map(|segment| match segment {
            Segment::Bytes(bytes) => Some(BodyPart::Bytes(bytes)),
            Segment::File(range) => {
                let file = open.next()?.as_fd();
                Some(BodyPart::File { file, offset: range.offset, len: range.len })
            }
        });
        let parts: Vec<BodyPart<'_>> = parts.collect();
        self.sender.send_parts(worker, &head, &parts).map(drop)
    }
}

impl Response {
    /// A short page with the status.
    fn page(status: StatusCode, fields: Vec<(Bytes, Bytes)>) -> Self {
        let reason = status.canonical_reason().unwrap_or_default();
        let code = status.as_u16();
        let page =
            format!("<!DOCTYPE html>\n<title>{code} {reason}</title>\n<h1>{code} {reason}</h1>\n");
        let kind = (Bytes::from_static(b"Content-Type"), Bytes::from_static(b"text/html"));
        let is_kind = |name: &Bytes| name.eq_ignore_ascii_case(b"content-type");
        let others = fields.into_iter().filter(|(name, _)| !is_kind(name));
        let fields = others.chain([kind]).collect();
        let length = Some(page.len() as u64);
        Self { status, fields, body: vec![Segment::Bytes(page.into())], length, place: None }
    }

    /// A file, or ranges of it. Fields set by scripts take precedence.
    fn file(found: Result<StaticResponse, FileRequestError>, fields: Vec<(Bytes, Bytes)>) -> Self {
        let is_set = |name: &[u8]| fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        match found {
            Ok(StaticResponse { status, fields: own, body, content_length: length }) => {
                let own = own.into_iter().filter(|field| !is_set(field.name()));
                let own: Vec<_> = own.map(Field::into_parts).collect();
                let fields = own.into_iter().chain(fields).collect();
                Self { status, fields, body, length, place: None }
            }
            Err(FileRequestError { status, field }) => {
                let field = field.filter(|(name, _)| !is_set(name.as_bytes()));
                let mut page = Self::page(status, fields);
                let own =
                    |(name, value): (&'static str, _)| (Bytes::from_static(name.as_bytes()), value);
                page.fields.extend(field.map(own));
                page
            }
        }
    }

    /// The CGI header block (RFC 3875 §6.2).
    fn head(&self) -> Vec<u8> {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let mut head = format!("Status: {} {reason}\r\n", self.status.as_u16()).into_bytes();
        for (name, value) in &self.fields {
            for part in [name, &b": "[..], value, b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        let has_no_body = matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if let Some(length) = self.length.filter(|_| !has_no_body) {
            let mut field = String::new();
            let _ = write!(field, "Content-Length: {length}\r\n");
            head.extend_from_slice(field.as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// The whole body of the request.
fn read_body(worker: &mut Worker) -> io::Result<sendoff_message::request::Body> {
    let mut store = BodyStore::keep();
    let mut buffer = vec![0; BODY_PIECE];
    loop {
        match worker.read(&mut buffer)? {
            0 => return store.finish(),
            n => store.push(&buffer[..n])?,
        }
    }
}

/// A parameter without the NUL at its end.
fn bare(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\0").unwrap_or(text)
}
