//! Turns an outcome of the rules into the response that a server would send, for files and for the
//! script of the corpus.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sendoff_htaccess::{
    Answer, CacheLines, ErrorDocument, Failed, Fields, File, FileInfo, Files, Handler, Head, Kind,
    Look, Outcome, Request, RequestedFile, Site, VerifiedUser, evaluate,
};

/// Endings and their types, for both servers.
pub(crate) const TYPES: &str = "text/html html htm\ntext/plain txt text\ntext/css css\nimage/png png\n\
                         image/gif gif\napplication/json json\napplication/javascript js\n\
                         image/svg+xml svg\napplication/xml xml\napplication/zip zip\nfont/woff woff\n";

/// A response, as far as the comparison goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub status: u16,
    /// Names in small letters, sorted.
    pub fields: Vec<(String, String)>,
    /// `None`: the server's own page.
    pub body: Option<String>,
}

/// The file system beneath the corpus's folder.
pub(crate) struct Disk {
    pub root: Vec<u8>,
    parsed: RefCell<HashMap<Vec<u8>, Option<Arc<File>>>>,
}

impl Disk {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.as_os_str().as_bytes().to_vec(), parsed: RefCell::default() }
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Look for Disk {
    fn look(&self, name: &[u8]) -> Option<FileInfo> {
        let data = fs::metadata(path(name)).ok()?;
        let kind = match (data.is_file(), data.is_dir()) {
            (true, _) => Kind::File,
            (_, true) => Kind::Folder,
            _ => Kind::Other,
        };
        Some(FileInfo { kind, size: data.len(), executable: false })
    }

    fn is_link(&self, name: &[u8]) -> bool {
        path(name).is_symlink()
    }

    fn is_foreign_link(&self, name: &[u8]) -> bool {
        let owner = |data: std::io::Result<fs::Metadata>| data.ok().map(|data| data.uid());
        let link = fs::symlink_metadata(path(name));
        self.is_link(name) && owner(link) != owner(fs::metadata(path(name)))
    }

    fn groups(&self, file: &[u8]) -> Option<Vec<u8>> {
        fs::read(path(file)).ok()
    }

    fn processor_time(&self) -> Duration {
        Duration::ZERO
    }
}

impl Files for Disk {
    fn rules(&self, folder: &[u8]) -> Option<Arc<File>> {
        let mut parsed = self.parsed.borrow_mut();
        let entry = parsed.entry(folder.to_vec()).or_insert_with(|| {
            let name = path(folder).join(".htaccess");
            let bytes = fs::read(&name).ok()?;
            Some(Arc::new(File::parse(&bytes, &name.display().to_string(), CacheLines::Skipped)))
        });
        entry.clone()
    }
}

struct Sent<'a>(&'a [(String, String)]);

impl Fields for Sent<'_> {
    fn get(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let is = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        let values: Vec<_> =
            self.0.iter().filter(|(n, _)| is(n)).map(|(_, v)| v.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", ").into_bytes().into())
    }

    fn each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in self.0 {
            each(name.as_bytes(), value.as_bytes());
        }
    }
}

/// A request on its way.
pub(crate) struct Driver<'a> {
    pub disk: &'a Disk,
    pub server: SocketAddr,
    pub client: SocketAddr,
    pub host: &'a str,
    pub method: &'a str,
    pub target: &'a str,
    pub fields: &'a [(String, String)],
}

impl Driver<'_> {
    /// The response of a server with these rules.
    pub(crate) fn answer(&self) -> Answered {
        let (raw, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.target, None),
        };
        let Some(path) = decode(raw) else { return own_page(400) };
        let host = self.fields.iter().find(|(name, _)| name == "Host").map(|(_, host)| host);
        let host = host.map_or(self.host, String::as_str);
        let (host, port) = match host.split_once(':') {
            Some((host, port)) => (host, port.parse().ok()),
            None => (host, None),
        };
        let request = Request {
            method: self.method.as_bytes(),
            target: self.target.as_bytes(),
            path: &path,
            query: query.map(str::as_bytes),
            protocol: b"HTTP/1.1",
            https: false,
            host: host.as_bytes(),
            port,
            server: self.server,
            client: self.client,
            fields: &Sent(self.fields),
            now: SystemTime::now(),
            user: None,
            error: None,
        };
        let index = [b"index.html".to_vec(), b"index.php".to_vec()];
        let is_script = |name: &[u8]| name.ends_with(b".php") && name.len() > 4;
        let site = Site {
            root: &self.disk.root,
            index: &index,
            is_script: &is_script,
            media_type: &media_type,
            cache_lines: CacheLines::Skipped,
            listing: true,
            software: b"Apache",
            admin: b"[no address given]",
        };
        let outcome = evaluate(&site, &request, self.disk);
        if let Answer::Authenticate { users, .. } = &outcome.answer
            && let Some(name) = self.authenticated(users)
        {
            let user = Some(VerifiedUser { users, name: name.as_bytes() });
            let request = Request { user, ..request };
            return self.send(&site, &request, evaluate(&site, &request, self.disk));
        }
        self.send(&site, &request, outcome)
    }

    /// The user, if the password is the name backwards.
    fn authenticated(&self, users: &[u8]) -> Option<String> {
        let (_, value) = self.fields.iter().find(|(name, _)| name == "Authorization")?;
        // The corpus uses these two.
        let (name, password) = match value.strip_prefix("Basic ")? {
            "YW5uYTpzZWNyZXQ=" => ("anna", "secret"),
            "Ym9iOnNlY3JldA==" => ("bob", "secret"),
            _ => return None,
        };
        let file = fs::read_to_string(path(users)).ok()?;
        let known = file.lines().any(|line| line.starts_with(&format!("{name}:")));
        (known && password == "secret").then(|| name.to_owned())
    }

    fn send(&self, site: &Site<'_>, request: &Request<'_>, outcome: Outcome) -> Answered {
        match &outcome.answer {
            Answer::Serve(target) => self.serve(site, request, &outcome, target),
            Answer::List(_) => {
                let fields = vec![field("Content-Type", "text/html;charset=UTF-8")];
                let mut head = Head { status: 200, fields, ..Head::default() };
                outcome.response.apply(site, request, self.disk, &mut head);
                Answered { status: 200, fields: fields_of(&head), body: None }
            }
            Answer::Missing(_) => self.error(site, request, &outcome, 404, Vec::new()),
            Answer::Refuse { status } => self.error(site, request, &outcome, *status, Vec::new()),
            Answer::Redirect { status, location } => {
                let fields = vec![field("Location", &String::from_utf8_lossy(location))];
                self.error(site, request, &outcome, *status, fields)
            }
            Answer::Authenticate { realm, .. } => {
                let realm = format!("Basic realm=\"{}\"", String::from_utf8_lossy(realm));
                self.error(site, request, &outcome, 401, vec![field("WWW-Authenticate", &realm)])
            }
        }
    }

    fn error(
        &self,
        site: &Site<'_>,
        request: &Request<'_>,
        outcome: &Outcome,
        status: u16,
        fields: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Answered {
        let mut head = Head { status, by_server: true, fields, modified: None };
        let document = if request.error.is_none() { outcome.error_document(status) } else { None };
        let mut body = None;
        match document {
            Some(ErrorDocument::Path(document)) => {
                let (path, query) = split(document);
                let path = decode(&path).unwrap();
                let failed = Failed {
                    status,
                    method: request.method,
                    path: request.path,
                    query: request.query,
                    environment: &outcome.environment,
                };
                let request = Request {
                    method: b"GET",
                    path: &path,
                    query: query.as_deref(),
                    error: Some(failed),
                    ..*request
                };
                let second = evaluate(site, &request, self.disk);
                if let Answer::Serve(target) = &second.answer {
                    let mut answered = self.serve(site, &request, &second, target);
                    answered.status = status;
                    let kept = head.fields.iter().map(|(n, v)| shown(n, v));
                    answered.fields.extend(kept.filter(|(name, _)| name != "location"));
                    answered.fields.sort();
                    return answered;
                }
            }
            Some(ErrorDocument::Text(text)) => {
                head.fields.push(field("Content-Type", "text/html; charset=iso-8859-1"));
                body = Some(String::from_utf8_lossy(text).into_owned());
            }
            Some(ErrorDocument::Redirect(uri)) => {
                head.status = 302;
                head.fields = vec![(b"Location".to_vec(), uri.clone())];
                outcome.response.apply(site, request, self.disk, &mut head);
                return Answered { status: 302, fields: fields_of(&head), body: None };
            }
            None => {}
        }
        outcome.response.apply(site, request, self.disk, &mut head);
        Answered { status, fields: fields_of(&head), body }
    }

    fn serve(
        &self,
        site: &Site<'_>,
        request: &Request<'_>,
        outcome: &Outcome,
        target: &RequestedFile,
    ) -> Answered {
        let bytes = fs::read(path(&target.file)).unwrap();
        let mut head = Head { status: 200, ..Head::default() };
        let body = if target.handler == Handler::Php {
            head.fields.push(field("Content-Type", "text/html; charset=UTF-8"));
            head.fields.push(field("X-Script", "yes"));
            script(self, request, outcome, target)
        } else {
            head.modified = fs::metadata(path(&target.file)).unwrap().modified().ok();
            static_fields(&mut head, target);
            String::from_utf8(bytes).unwrap()
        };
        outcome.response.apply(site, request, self.disk, &mut head);
        let body = if request.method == b"HEAD" { String::new() } else { body };
        Answered { status: 200, fields: fields_of(&head), body: Some(body) }
    }
}

fn static_fields(head: &mut Head, target: &RequestedFile) {
    let content_type = match &target.content_type {
        Some(by_rule) => by_rule.clone(),
        None => {
            let name = String::from_utf8_lossy(&target.file).into_owned();
            let name = name.rsplit('/').next().unwrap_or_default().to_owned();
            name.rsplit_once('.').and_then(|(_, ending)| media_type(ending.as_bytes()))
        }
    };
    if let Some(mut content_type) = content_type {
        if let Some(charset) = &target.charset {
            content_type.extend_from_slice(b"; charset=");
            content_type.extend_from_slice(charset);
        }
        head.fields.push((b"Content-Type".to_vec(), content_type));
    }
    for (name, value) in
        [("Content-Encoding", &target.encoding), ("Content-Language", &target.language)]
    {
        if !value.is_empty() {
            head.fields.push((name.as_bytes().to_vec(), value.clone()));
        }
    }
    if target.etag {
        head.fields.push(field("ETag", "some"));
    }
}

/// The output of the corpus's script ([`SCRIPT`](super::cases::SCRIPT)).
fn script(
    driver: &Driver<'_>,
    request: &Request<'_>,
    outcome: &Outcome,
    target: &RequestedFile,
) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut fields = Vec::new();
    request.fields.each(&mut |name, value| fields.push((text(name), text(value))));
    // Apache keeps it from scripts.
    fields.retain(|(name, _)| name != "Authorization");
    for (name, value) in &outcome.request_fields {
        fields.retain(|(known, _)| !known.as_bytes().eq_ignore_ascii_case(name));
        fields.extend(value.as_ref().map(|value| (text(name), text(value))));
    }
    let variable = |name: &str| format!("HTTP_{}", name.to_uppercase().replace('-', "_"));
    let mut seen: Vec<(String, String)> =
        fields.iter().map(|(name, value)| (variable(name), value.clone())).collect();
    for (name, value) in &outcome.environment {
        seen.retain(|(known, _)| known.as_bytes() != name);
        seen.push((text(name), text(value)));
    }
    let wanted = |name: &str| {
        ["REDIRECT_", "E_", "HTTP_X_"].iter().any(|start| name.starts_with(start))
            || name == "HTTP_AUTHORIZATION"
    };
    let mut lines: Vec<String> = seen
        .iter()
        .filter(|(n, _)| wanted(n))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    lines.sort();
    let setting = |name: &str, usual: &str| {
        let found = outcome.php.iter().find(|setting| setting.name == name.as_bytes());
        found.map_or(usual.to_owned(), |setting| text(&setting.value))
    };
    let file = text(&target.file[driver.disk.root.len()..]);
    let mut printed = format!("script {file}\npath info {}\n", text(&target.path_info));
    writeln!(printed, "query {}", text(target.query.as_deref().unwrap_or_default())).unwrap();
    let (memory, display) = (setting("memory_limit", "128M"), setting("display_errors", ""));
    writeln!(printed, "memory {memory} {display}").unwrap();
    for line in lines {
        writeln!(printed, "{line}").unwrap();
    }
    printed
}

fn own_page(status: u16) -> Answered {
    Answered { status, fields: Vec::new(), body: None }
}

fn field(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn shown(name: &[u8], value: &[u8]) -> (String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(name).to_lowercase(), text(value))
}

fn fields_of(head: &Head) -> Vec<(String, String)> {
    let mut fields: Vec<_> = head.fields.iter().map(|(name, value)| shown(name, value)).collect();
    fields.sort();
    fields
}

fn split(path: &[u8]) -> (String, Option<Vec<u8>>) {
    let text = String::from_utf8_lossy(path).into_owned();
    match text.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.as_bytes().to_vec())),
        None => (text, None),
    }
}

fn media_type(ending: &[u8]) -> Option<Vec<u8>> {
    let ending = ending.to_ascii_lowercase();
    let line = TYPES
        .lines()
        .find(|line| line.split(' ').skip(1).any(|known| known.as_bytes() == ending.as_slice()))?;
    line.split(' ').next().map(|media_type| media_type.as_bytes().to_vec())
}

/// `%xx` and repeated slashes; the corpus has no dots.
fn decode(path: &str) -> Option<Vec<u8>> {
    let (mut decoded, mut bytes) = (Vec::new(), path.bytes());
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let pair = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?
        } else {
            byte
        };
        if byte != b'/' || decoded.last() != Some(&b'/') {
            decoded.push(byte);
        }
    }
    Some(decoded)
}
