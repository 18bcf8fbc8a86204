//! `.htaccess` files of a site: found in the folders of a path, kept while they do not change, and applied to requests.
//!
//! The crate `sendoff_htaccess` knows Apache's rules and no server; this file gives it requests and files, and turns what it
//! says into answers.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File as OpenFile;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use lru::LruCache;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use sendoff_htaccess as apache;
use sendoff_htaccess::{Failed, Files, Found, Identity, Look, Outcome, Target};

use super::effects::{Answer, Effects, Failure, FieldChange, Response, User};
use super::router::{Route, Router};
use crate::request::{Endpoint, Request, Scheme, protocol};
use crate::response::ResponseHead;
use crate::static_files::MediaTypes;

const NAME: &[u8] = b".htaccess";

/// Folders whose files, or the lack of them, are kept.
const MAX_FOLDERS: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// The `.htaccess` files of a site.
#[derive(Debug)]
pub(super) struct Htaccess {
    root: Vec<u8>,
    index: Vec<Vec<u8>>,
    software: Vec<u8>,
    types: MediaTypes,
    /// Prefixes and their folders, the longest prefix first.
    aliases: Vec<(Vec<u8>, Vec<u8>)>,
    files: RefCell<LruCache<Vec<u8>, Known>>,
}

#[derive(Debug)]
struct Known {
    version: Version,
    rules: Arc<apache::File>,
}

/// Differs when a file was changed or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    changed: (i64, u32),
}

impl Version {
    fn of(stat: &Statx) -> Self {
        let changed = (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec);
        Self { inode: stat.stx_ino, size: stat.stx_size, changed }
    }
}

impl Htaccess {
    /// For a site that obeys the files.
    pub(super) fn new(config: &sendoff_config::Site, software: &[u8]) -> Self {
        let types = config.media_types.iter();
        let alias = |alias: &sendoff_config::Alias| {
            let folder = alias.folder.as_os_str().as_bytes().to_vec();
            (alias.prefix.clone().into_bytes(), folder)
        };
        let mut aliases: Vec<_> = config.aliases.iter().map(alias).collect();
        aliases.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self {
            root: config.root.as_os_str().as_bytes().to_vec(),
            index: config.index.iter().map(|name| name.clone().into_bytes()).collect(),
            software: software.to_vec(),
            types: types
                .map(|(ending, value)| (ending.to_ascii_lowercase(), value.clone().into()))
                .collect(),
            aliases,
            files: RefCell::new(LruCache::new(MAX_FOLDERS)),
        }
    }

    /// Applies the files on the way to the request's path.
    pub(super) fn apply(
        &self,
        router: &Router,
        request: &mut Request,
        effects: &mut Effects,
        user: Option<User>,
        failure: Option<Failure<'_>>,
    ) -> Answer {
        let failed = failure.map(|failure| Failed {
            status: failure.status.as_u16(),
            method: failure.request.method.as_str().as_bytes(),
            path: &failure.request.path,
            query: failure.request.query.as_deref(),
            environment: failure.response.map_or(&[], |response| &response.environment),
        });
        let mut outcome = self.view(router, request, user.as_ref(), failed, |site, view| {
            apache::evaluate(site, view, self)
        });
        let mut answer = self.answer(router, request, effects, &outcome);
        if let (apache::Answer::Missing(_), Answer::Route(Route::Script(script))) =
            (&outcome.answer, &answer)
        {
            // The rules of its own folder hold for the front controller, and not those of the folder with nothing at the path.
            outcome = self.evaluate_at(router, request, user.as_ref(), &script.name);
            if !matches!(outcome.answer, apache::Answer::Serve(_) | apache::Answer::Redirect { .. })
            {
                let why = "the front controller is refused".to_owned();
                answer = Answer::refused(StatusCode::FORBIDDEN, why);
            }
        }
        let Outcome { response, request_fields, environment, php, error_documents, .. } = outcome;
        effects.environment.clone_from(&environment);
        // With a name and a password the files are applied again.
        let is_last = !matches!(answer, Answer::Authenticate { .. });
        for (name, value) in request_fields.iter().filter(|_| is_last) {
            change_field(&mut request.headers, name, value.as_deref());
        }
        if is_last && !php.is_empty() {
            let lines: Vec<u8> = php.iter().flat_map(php_ini_line).collect();
            effects.params.push((Bytes::from_static(b"PHP_VALUE"), lines));
        }
        if !response.is_empty() || !error_documents.is_empty() {
            let rules = response;
            effects.htaccess =
                Some(Box::new(Response { rules, error_documents, environment, user }));
        }
        answer
    }

    /// Changes the head of a response as the rules say.
    pub(super) fn change(
        &self,
        router: &Router,
        request: &Request,
        response: &Response,
        head: &mut ResponseHead,
    ) {
        if response.rules.is_empty() {
            return;
        }
        let bytes = |(name, value): &(Bytes, Bytes)| (name.to_vec(), value.to_vec());
        let modified = head
            .value("Last-Modified")
            .and_then(|value| httpdate::parse_http_date(str::from_utf8(value).ok()?).ok());
        let fields = head.fields.iter().map(bytes).collect();
        let mut seen = apache::Head {
            status: head.status.as_u16(),
            by_server: head.by_server,
            fields,
            modified,
        };
        self.view(router, request, response.user.as_ref(), None, |site, view| {
            response.rules.apply(site, view, self, &mut seen);
        });
        let fields = seen.fields.into_iter();
        head.fields = fields.map(|(name, value)| (name.into(), value.into())).collect();
    }

    /// Calls `look` with what the crate sees of the site and of a request.
    fn view<T>(
        &self,
        router: &Router,
        request: &Request,
        user: Option<&User>,
        error: Option<Failed<'_>>,
        look: impl FnOnce(&apache::Site<'_>, &apache::Request<'_>) -> T,
    ) -> T {
        let is_script = |name: &[u8]| router.is_script(name);
        let media_type = |ending: &[u8]| {
            let ending = str::from_utf8(ending).ok()?;
            let built_in =
                || mime_guess::from_ext(ending).first_raw().map(|t| t.as_bytes().to_vec());
            self.types.get(ending).map(|known| known.to_vec()).or_else(built_in)
        };
        let site = apache::Site {
            root: &self.root,
            index: &self.index,
            is_script: &is_script,
            media_type: &media_type,
            listing: false,
            software: &self.software,
            admin: b"",
        };
        let host = request.host_name();
        let view = apache::Request {
            method: request.method.as_str().as_bytes(),
            target: &request.uri,
            path: &request.path,
            query: request.query.as_deref(),
            protocol: protocol(request.version).as_bytes(),
            https: request.scheme == Scheme::Https,
            host: host.as_bytes(),
            port: request.host.as_deref().and_then(port),
            server: socket_address(&request.local),
            client: socket_address(&request.peer),
            fields: &Fields(&request.headers),
            now: SystemTime::now(),
            user: user
                .map(|user| Identity { users: user.file.as_os_str().as_bytes(), name: &user.name }),
            error,
        };
        look(&site, &view)
    }

    /// Who answers.
    fn answer(
        &self,
        router: &Router,
        request: &mut Request,
        effects: &mut Effects,
        outcome: &Outcome,
    ) -> Answer {
        let why = || {
            let reasons = outcome.reasons.iter().map(ToString::to_string);
            reasons.collect::<Vec<_>>().join("; ")
        };
        match &outcome.answer {
            apache::Answer::Serve(target) => {
                self.rewrite(request, target);
                target_effects(target, effects);
                let script = target.path.strip_suffix(&target.path_info[..]);
                let name = script.unwrap_or(&target.path);
                Answer::Route(match target.handler {
                    apache::Handler::Static => router.at(&target.file, &target.path),
                    apache::Handler::Php => router.php(&target.file, name, &target.path_info),
                    apache::Handler::Source => Route::forbidden(format!(
                        "{}: it is a script that the rules do not let run",
                        why()
                    )),
                })
            }
            apache::Answer::List(target) if !target.path.ends_with(b"/") => {
                self.rewrite(request, target);
                Answer::Route(Route::Folder)
            }
            apache::Answer::List(_) => Answer::Route(Route::forbidden(
                "the folder has no index file, and the server lists no folders",
            )),
            apache::Answer::Missing(target) => {
                self.rewrite(request, target);
                Answer::Route(router.missing_at(&target.path))
            }
            apache::Answer::Redirect { status, location } => match StatusCode::from_u16(*status) {
                Ok(status) => Answer::Redirect { status, location: location.clone().into() },
                Err(_) => Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why()),
            },
            apache::Answer::Refuse { status } => {
                let status = StatusCode::from_u16(*status);
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                // Rules give no reason for a path that none of them is about.
                let why = match why() {
                    why if why.is_empty() => "it is a folder without an index file".to_owned(),
                    why => why,
                };
                Answer::refused(status, why)
            }
            apache::Answer::Authenticate { realm, users } => Answer::Authenticate {
                realm: String::from_utf8_lossy(realm).into_owned(),
                users: OsStr::from_bytes(users).into(),
            },
        }
    }

    /// What the files make of a request for the script at this path.
    fn evaluate_at(
        &self,
        router: &Router,
        request: &mut Request,
        user: Option<&User>,
        script: &[u8],
    ) -> Outcome {
        let path = std::mem::replace(&mut request.path, script.to_vec());
        let outcome =
            self.view(router, request, user, None, |site, view| apache::evaluate(site, view, self));
        request.path = path;
        outcome
    }

    fn rewrite(&self, request: &mut Request, target: &Target) {
        request.path.clone_from(&target.path);
        if request.query.as_deref() != target.query.as_deref() {
            request.query = target.query.clone().map(Bytes::from);
        }
    }
}

/// What the rules say about a file or the response of a script.
fn target_effects(target: &Target, effects: &mut Effects) {
    let changes = &mut effects.response_headers;
    let set = |name: &'static str, value: &[u8]| {
        FieldChange::Set(Bytes::from_static(name.as_bytes()), Bytes::copy_from_slice(value))
    };
    let is_static = target.handler == apache::Handler::Static;
    if !target.encoding.is_empty() {
        changes.push(set("Content-Encoding", &target.encoding));
    }
    if !target.language.is_empty() {
        changes.push(set("Content-Language", &target.language));
    }
    let remove = |name: &'static str| FieldChange::Remove(Bytes::from_static(name.as_bytes()));
    if is_static {
        match (&target.content_type, &target.charset) {
            (Some(Some(own)), charset) => {
                let charset = charset.iter().flat_map(|c| [b"; charset=", &c[..]].concat());
                let own: Vec<u8> = own.iter().copied().chain(charset).collect();
                changes.push(set("Content-Type", &own));
            }
            (Some(None), _) => changes.push(remove("Content-Type")),
            (None, Some(charset)) => effects.charset = Some(Bytes::copy_from_slice(charset)),
            (None, None) => {}
        }
        if !target.etag {
            changes.push(remove("ETag"));
        }
    }
}

/// A setting as a line of php.ini, which php-fpm, too, reads in `PHP_VALUE`. Within single quotes no character has a meaning; a
/// single quote itself stands in double ones, and PHP joins what stands side by side.
fn php_ini_line(setting: &apache::PhpSetting) -> Vec<u8> {
    let mut line = [&setting.name[..], b"='"].concat();
    for &byte in &setting.value {
        match byte {
            b'\'' => line.extend_from_slice(b"'\"'\"'"),
            // It would begin another line.
            b'\n' | b'\r' | 0 => {}
            _ => line.push(byte),
        }
    }
    line.extend_from_slice(b"'\n");
    line
}

/// Changes a field that scripts see. What would be no valid field is left out.
fn change_field(headers: &mut HeaderMap, name: &[u8], value: Option<&[u8]>) {
    let Ok(name) = HeaderName::from_bytes(name) else { return };
    match value.map(HeaderValue::from_bytes) {
        None => drop(headers.remove(name)),
        Some(Ok(value)) => drop(headers.insert(name, value)),
        Some(Err(_)) => {}
    }
}

fn port(host: &[u8]) -> Option<u16> {
    let (_, port) = str::from_utf8(host).ok()?.rsplit_once(':')?;
    port.parse().ok()
}

/// An address for rules that compare addresses. A UNIX socket has none that any network contains.
fn socket_address(endpoint: &Endpoint) -> SocketAddr {
    match endpoint {
        Endpoint::Ip(address) => *address,
        Endpoint::Unix(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}

#[derive(Debug)]
struct Fields<'a>(&'a HeaderMap);

impl apache::Fields for Fields<'_> {
    fn get(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut values = self.0.get_all(HeaderName::from_bytes(name).ok()?).iter();
        let first = values.next()?.as_bytes();
        let rest: Vec<_> = values.map(HeaderValue::as_bytes).collect();
        if rest.is_empty() {
            return Some(Cow::Borrowed(first));
        }
        let all = std::iter::once(first).chain(rest).collect::<Vec<_>>();
        Some(Cow::Owned(all.join(&b", "[..])))
    }

    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in self.0 {
            each(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

impl Look for Htaccess {
    fn look(&self, path: &[u8]) -> Option<Found> {
        let path = OsStr::from_bytes(path);
        let stat = stat(path, AtFlags::empty()).ok()?;
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => apache::Kind::File,
            FileType::Directory => apache::Kind::Folder,
            _ => apache::Kind::Other,
        };
        let executable = stat.stx_mode & 0o111 != 0
            && rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        Some(Found { kind, size: stat.stx_size, executable })
    }

    fn is_link(&self, path: &[u8]) -> bool {
        let stat = stat(OsStr::from_bytes(path), AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|s| FileType::from_raw_mode(s.stx_mode.into()) == FileType::Symlink)
    }
}

impl Files for Htaccess {
    fn rules(&self, folder: &[u8]) -> Option<Arc<apache::File>> {
        let path = PathBuf::from(OsStr::from_bytes(&[folder, b"/", NAME].concat()));
        let mut files = self.files.borrow_mut();
        let stat = match stat(path.as_os_str(), AtFlags::empty()) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                files.pop(folder);
                return None;
            }
            Err(errno) => {
                let why = format!("it cannot be read: {}", io::Error::from(errno));
                return Some(Arc::new(apache::File::unreadable(&path.display().to_string(), &why)));
            }
        };
        let version = Version::of(&stat);
        if let Some(known) = files.get(folder).filter(|known| known.version == version) {
            return Some(Arc::clone(&known.rules));
        }
        let rules = Arc::new(read(&path));
        log(&path, &rules);
        files.put(folder.to_vec(), Known { version, rules: Arc::clone(&rules) });
        Some(rules)
    }

    fn alias(&self, path: &[u8]) -> Option<(usize, Vec<u8>)> {
        let found = self.aliases.iter().find(|(prefix, _)| super::matching::contains(prefix, path));
        found.map(|(prefix, folder)| (prefix.len(), folder.clone()))
    }
}

fn stat(path: &OsStr, flags: AtFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS)
}

/// Reads and parses a file. What cannot be read or is too long refuses its folder.
fn read(path: &Path) -> apache::File {
    let name = path.display().to_string();
    let read = || -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = OpenFile::from(rustix::fs::open(path, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        // One more than is allowed, so that the parser sees that it is too long.
        file.take(apache::MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => apache::File::parse(&bytes, &name),
        Err(error) => apache::File::unreadable(&name, &format!("it cannot be read: {error}")),
    }
}

/// Tells the operator what is not obeyed, when a file is read.
fn log(path: &Path, rules: &apache::File) {
    for remark in rules.remarks() {
        let (line, text) = (remark.line, &remark.text);
        match remark.severity {
            apache::Severity::Ignored => tracing::info!("{}:{line}: {text}", path.display()),
            _ => tracing::warn!("{}:{line}: {text}", path.display()),
        }
    }
}
