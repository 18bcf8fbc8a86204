//! What the rules make of a request.

use crate::reason::{DependsOn, Reason};
use crate::response::ResponseRules;

/// What the rules make of a request.
#[derive(Debug)]
pub struct Outcome {
    /// What to answer.
    pub answer: Answer,
    /// Changes of the response's head, whatever the answer is.
    pub response: ResponseRules,
    /// Changes of the request's fields that a script sees, in order: a value, or `None` for a field that is taken out.
    pub request_fields: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Variables for scripts, on top of the server's own.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of a request body; zero: no limit. `None`: the server's own limit.
    pub max_body: Option<u64>,
    /// PHP settings.
    pub php: Vec<PhpSetting>,
    /// What the client gets with an error status that the server itself answers with.
    pub error_documents: Vec<(u16, ErrorDocument)>,
    /// What the files leave to the server.
    pub says: Says,
    /// What the outcome depends on, beside the method, the target, the host and the files.
    pub depends_on: DependsOn,
    /// Which rules decided, in order.
    pub reasons: Vec<Reason>,
}

impl Outcome {
    /// Bytes that the outcome takes, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let pairs =
            self.environment.iter().map(|(name, value)| 2 * (48 + name.len() + value.len()));
        let php = self.php.iter().map(|setting| 48 + setting.name.len() + setting.value.len());
        let documents = self.error_documents.iter().map(|(_, document)| match document {
            ErrorDocument::Text(text) => 32 + text.len(),
            ErrorDocument::Path(text) | ErrorDocument::Redirect(text) => 32 + text.len(),
        });
        let fields = self.request_fields.iter();
        let fields =
            fields.map(|(name, value)| 48 + name.len() + value.as_ref().map_or(0, Vec::len));
        let reasons = self.reasons.iter().map(|reason| reason.file.len() + reason.text.len());
        let target = match &self.answer {
            Answer::Serve(target) | Answer::List(target) | Answer::Missing(target) => {
                target.file.len()
                    + 2 * target.path.len()
                    + target.query.as_ref().map_or(0, Vec::len)
            }
            Answer::Redirect { location, .. } => location.len(),
            Answer::Authenticate { realm, users } => realm.len() + users.len(),
            Answer::Refuse { .. } => 0,
        };
        let parts = pairs.chain(php).chain(documents).chain(fields).chain(reasons);
        target + parts.sum::<usize>() + self.response.weight()
    }

    /// The error document for a status.
    #[must_use]
    pub fn error_document(&self, status: u16) -> Option<&ErrorDocument> {
        self.error_documents.iter().find(|(code, _)| *code == status).map(|(_, document)| document)
    }
}

/// What the files leave to the server, which may have rules of its own for that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Says {
    /// They say what answers for paths that lead nowhere: they rewrite, or name a fallback or a page for 404.
    pub missing: bool,
    /// They say what answers for folders: by an index file or the slash behind the folder's name.
    pub folders: bool,
}

/// What to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A file or script.
    Serve(Target),
    /// The list of a folder's contents.
    List(Target),
    /// Nothing is at the path. The target says what was looked for.
    Missing(Target),
    /// A redirect.
    Redirect {
        /// From 300 to 399.
        status: u16,
        /// An absolute URI, or what the rule has instead.
        location: Vec<u8>,
    },
    /// An error page. The status may be any from 200 on that a rule names.
    Refuse {
        /// 403, 404, 410, 500, ...
        status: u16,
    },
    /// Basic authentication (RFC 7617). The server asks for name and password (401); when it has verified them, it
    /// evaluates again with [`Request::user`](crate::Request).
    Authenticate {
        /// What the client shows its user.
        realm: Vec<u8>,
        /// The file with lines `NAME:HASH`: an absolute path.
        users: Vec<u8>,
    },
}

/// What a request leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The file or folder: an absolute path.
    pub file: Vec<u8>,
    /// The path of the site that led to the file, decoded: after all rewriting, with `path_info`.
    pub path: Vec<u8>,
    /// What follows the file in the path; empty or with a slash at its beginning.
    pub path_info: Vec<u8>,
    /// The query after all rewriting.
    pub query: Option<Vec<u8>>,
    /// What makes the response.
    pub handler: Handler,
    /// The media type, if a rule decided it: `Some(None)` is no type.
    pub content_type: Option<Option<Vec<u8>>>,
    /// `Content-Encoding`, joined by `, `; empty: none.
    pub encoding: Vec<u8>,
    /// `Content-Language`, joined by `, `; empty: none.
    pub language: Vec<u8>,
    /// The charset that goes into the type of a static file.
    pub charset: Option<Vec<u8>>,
    /// Whether a static file has an entity tag.
    pub etag: bool,
}

/// What makes a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// The file's bytes.
    Static,
    /// PHP runs the file.
    Php,
    /// The file is a script whose execution the rules turn off. Apache sends its source; a careful server refuses.
    Source,
}

/// A setting of PHP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhpSetting {
    /// `upload_max_filesize`
    pub name: Vec<u8>,
    /// Its value; flags are `1` and `0`.
    pub value: Vec<u8>,
}

/// What the client gets with an error status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorDocument {
    /// These bytes, as HTML.
    Text(Vec<u8>),
    /// What the site has at this path (with a query, if there is one), as an answer to `GET`.
    Path(Vec<u8>),
    /// A redirect to this URI (302).
    Redirect(Vec<u8>),
}
