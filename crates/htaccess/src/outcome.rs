//! The outcome of the rules for a request.

use crate::reason::{DependsOn, Reason};
use crate::response::ResponseRules;

/// The outcome of the rules for a request.
#[derive(Debug)]
pub struct Outcome {
    /// The answer.
    pub answer: Answer,
    /// Changes of the response's head, for every answer.
    pub response: ResponseRules,
    /// Changes of the request's fields for scripts, in order: a value, or `None` to remove the
    /// field.
    pub request_fields: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Variables for scripts, on top of the server's own.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// The largest request body in bytes; zero: no limit. `None`: the server's own limit.
    pub max_body: Option<u64>,
    /// PHP settings.
    pub php: Vec<PhpSetting>,
    /// The contents of error responses that the server itself makes, by status.
    pub error_documents: Vec<(u16, ErrorDocument)>,
    /// The kinds of requests that the files decide.
    pub says: Says,
    /// The inputs of the outcome, besides the method, the target, the host and the files.
    pub depends_on: DependsOn,
    /// The rules that decided, in order.
    pub reasons: Vec<Reason>,
}

impl Outcome {
    /// The approximate size of the outcome in memory, in bytes.
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

/// The kinds of requests that the files decide. For other kinds the server may have rules of its
/// own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Says {
    /// The files decide paths that lead to no file: they rewrite, or name a fallback or a page for
    /// 404.
    pub missing: bool,
    /// The files decide folders: by an index file, or by the slash behind a folder's name.
    pub folders: bool,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A file or script.
    Serve(RequestedFile),
    /// The list of a folder's contents.
    List(RequestedFile),
    /// No file is at the path. The target describes the missing file.
    Missing(RequestedFile),
    /// A redirect.
    Redirect {
        /// From 300 to 399.
        status: u16,
        /// An absolute URI, or the text of the rule.
        location: Vec<u8>,
    },
    /// An error page. The status may be any status from 200 on that a rule names.
    Refuse {
        /// 403, 404, 410, 500, ...
        status: u16,
    },
    /// Basic authentication (RFC 7617). The server asks for name and password (401); after it has
    /// verified them, it evaluates again with [`Request::user`](crate::Request).
    Authenticate {
        /// The name of the protected area, which browsers show when they ask for the password.
        realm: Vec<u8>,
        /// The file with lines `NAME:HASH`: an absolute path.
        users: Vec<u8>,
    },
}

/// The file or folder that a request leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedFile {
    /// The file or folder: an absolute path.
    pub file: Vec<u8>,
    /// The decoded path of the site that led to the file: after all rewriting, with `path_info`.
    pub path: Vec<u8>,
    /// The part of the path behind the file; empty, or with a slash at its beginning.
    pub path_info: Vec<u8>,
    /// The query after all rewriting.
    pub query: Option<Vec<u8>>,
    /// The handler of the file.
    pub handler: Handler,
    /// The media type, if a rule decided it: `Some(None)` means no type.
    pub content_type: Option<Option<Vec<u8>>>,
    /// `Content-Encoding`, joined by `, `; empty: none.
    pub encoding: Vec<u8>,
    /// `Content-Language`, joined by `, `; empty: none.
    pub language: Vec<u8>,
    /// The charset that goes into the type of a static file.
    pub charset: Option<Vec<u8>>,
    /// True if a static file has an entity tag.
    pub etag: bool,
}

/// The handler that makes a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// The file's bytes.
    Static,
    /// PHP runs the file.
    Php,
    /// A script whose execution the rules turn off. Apache sends its source; a careful server
    /// refuses.
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

/// The contents of an error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorDocument {
    /// These bytes, as HTML.
    Text(Vec<u8>),
    /// The response of the site for `GET` of this path, which may have a query.
    Path(Vec<u8>),
    /// A redirect to this URI (302).
    Redirect(Vec<u8>),
}
