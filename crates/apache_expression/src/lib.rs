//! Apache's expressions: `<If>`, `Require expr`, `RewriteCond expr`, `Header ... expr=`,
//! `SetEnvIfExpr`; and what they are made of, regular expressions and networks.
//!
//! The crate parses; it knows no request. The values of [`Word`]s come from the crate `htaccess`,
//! which evaluates the tree.
#![forbid(unsafe_code)]

mod budget;
mod limits;
mod network;
mod parse;
mod pattern;

use std::borrow::Cow;
use std::sync::Arc;

pub use budget::{MatchBudget, TooCostly};
pub use limits::VALUE as MAX_VALUE;
pub use network::Network;
pub use parse::template;
pub use pattern::{Groups, Pattern, fill, weight};

/// A parsed expression.
#[derive(Debug)]
pub enum Expression {
    /// The same value always.
    Constant(bool),
    /// `!`
    Not(Box<Self>),
    /// `&&`
    And(Box<Self>, Box<Self>),
    /// `||`
    Or(Box<Self>, Box<Self>),
    /// `-f WORD` and its like.
    Test(Test, Word),
    /// `WORD == WORD` by bytes.
    Text(Word, Comparison, Word),
    /// `WORD -eq WORD` by numbers.
    Number(Word, Comparison, Word),
    /// `WORD =~ /EXPRESSION/`
    Matches(Word, Arc<Pattern>),
    /// `WORD -in { WORD, ... }`
    In(Word, Vec<Word>),
    /// `-ipmatch`
    InNetwork(Word, Network),
    /// `-strmatch`, `-strcmatch`, `-fnmatch`
    Glob(Word, Word, Globbing),
}

/// The comparison of a shell pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Globbing {
    /// `-strmatch`
    Exact,
    /// `-strcmatch`
    IgnoreCase,
    /// `-fnmatch`: stars do not match slashes.
    Path,
}

/// Tests of one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// `-d`
    Folder,
    /// `-e`
    Exists,
    /// `-f`
    File,
    /// `-s`: a file that is not empty.
    NotEmpty,
    /// `-h`, `-L`
    Link,
    /// `-x`
    Executable,
    /// `-F`: the file is accessible to the client.
    AccessibleFile,
    /// `-U`, `-A`: the path is accessible to the client.
    AccessiblePath,
    /// `-n`
    HasText,
    /// `-z`
    HasNoText,
    /// `-T`: not empty, `0`, `off`, `false` or `no`.
    IsTrue,
    /// `-R`: the client is in this network.
    FromNetwork,
}

/// A comparison of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `==`, `-eq`
    Equal,
    /// `!=`, `-ne`
    NotEqual,
    /// `<`, `-lt`
    Less,
    /// `<=`, `-le`
    LessOrEqual,
    /// `>`, `-gt`
    Greater,
    /// `>=`, `-ge`
    GreaterOrEqual,
}

impl Comparison {
    /// The comparison with this name, such as `eq`, in lower case.
    pub fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"eq" => Self::Equal,
            b"ne" => Self::NotEqual,
            b"lt" => Self::Less,
            b"le" => Self::LessOrEqual,
            b"gt" => Self::Greater,
            b"ge" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// True if two values compare like this.
    pub fn holds<T: Ord + ?Sized>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

/// A text that is evaluated for each request.
#[derive(Debug)]
pub enum Word {
    /// These bytes.
    Literal(Vec<u8>),
    /// The concatenation of words.
    Joined(Vec<Self>),
    /// `%{NAME}`
    Variable(Vec<u8>),
    /// `$1`
    Group(usize),
    /// `NAME(WORD)`, `%{NAME:TEXT}`
    Call(Function, Box<Self>),
}

/// The function of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// A request field; the response then depends on it.
    Field,
    /// A request field; the response does not depend on it.
    FieldWithoutVary,
    /// A field of the response.
    ResponseField,
    /// A variable of the request.
    Environment,
    /// The environment of the server and notes between modules: always empty here.
    Empty,
    /// Capital letters become small ones.
    ToLower,
    /// Small letters become capital ones.
    ToUpper,
    /// Bytes that a path may not contain become `%xx`.
    Escape,
    /// `%xx` becomes the byte.
    Unescape,
    /// Encodes by base64.
    Base64,
    /// Decodes base64.
    FromBase64,
}

impl Function {
    /// A function by its name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"req" | b"http" | b"HTTP" => Self::Field,
            b"req_novary" => Self::FieldWithoutVary,
            b"resp" => Self::ResponseField,
            b"reqenv" | b"env" | b"ENV" => Self::Environment,
            b"osenv" | b"note" => Self::Empty,
            b"tolower" => Self::ToLower,
            b"toupper" => Self::ToUpper,
            b"escape" => Self::Escape,
            b"unescape" => Self::Unescape,
            b"base64" => Self::Base64,
            b"unbase64" => Self::FromBase64,
            _ => return None,
        })
    }
}

/// True for a variable that exists; Apache reports other names as mistakes.
fn is_variable(name: &[u8]) -> bool {
    const NAMES: [&str; 51] = [
        "REQUEST_METHOD",
        "REQUEST_SCHEME",
        "REQUEST_URI",
        "DOCUMENT_URI",
        "REQUEST_FILENAME",
        "SCRIPT_FILENAME",
        "LAST_MODIFIED",
        "SCRIPT_USER",
        "SCRIPT_GROUP",
        "PATH_INFO",
        "QUERY_STRING",
        "IS_SUBREQ",
        "THE_REQUEST",
        "REMOTE_ADDR",
        "REMOTE_HOST",
        "REMOTE_USER",
        "REMOTE_IDENT",
        "REMOTE_PORT",
        "SERVER_NAME",
        "SERVER_PORT",
        "SERVER_ADMIN",
        "SERVER_PROTOCOL",
        "DOCUMENT_ROOT",
        "AUTH_TYPE",
        "CONTENT_TYPE",
        "HANDLER",
        "HTTP2",
        "HTTPS",
        "IPV6",
        "REQUEST_STATUS",
        "REQUEST_LOG_ID",
        "CONN_LOG_ID",
        "CONN_REMOTE_ADDR",
        "CONTEXT_PREFIX",
        "CONTEXT_DOCUMENT_ROOT",
        "TIME_YEAR",
        "TIME_MON",
        "TIME_DAY",
        "TIME_HOUR",
        "TIME_MIN",
        "TIME_SEC",
        "TIME_WDAY",
        "TIME",
        "SERVER_SOFTWARE",
        "API_VERSION",
        "HTTP_USER_AGENT",
        "HTTP_REFERER",
        "HTTP_COOKIE",
        "HTTP_FORWARDED",
        "HTTP_HOST",
        "HTTP_ACCEPT",
    ];
    NAMES.iter().any(|known| known.as_bytes() == name) || name == b"HTTP_PROXY_CONNECTION"
}

impl Word {
    fn names(&self, variable: &[u8]) -> bool {
        match self {
            Self::Variable(name) => name == variable,
            Self::Joined(words) => words.iter().any(|word| word.names(variable)),
            Self::Call(_, word) => word.names(variable),
            Self::Literal(_) | Self::Group(_) => false,
        }
    }
}

impl Expression {
    /// True if the expression depends on the user's name.
    pub fn names_user(&self) -> bool {
        let named = |word: &Word| word.names(b"REMOTE_USER");
        match self {
            Self::Constant(_) => false,
            Self::Not(inner) => inner.names_user(),
            Self::And(left, right) | Self::Or(left, right) => {
                left.names_user() || right.names_user()
            }
            Self::Text(left, _, right)
            | Self::Number(left, _, right)
            | Self::Glob(left, right, _) => named(left) || named(right),
            Self::Test(_, word) | Self::Matches(word, _) | Self::InNetwork(word, _) => named(word),
            Self::In(word, words) => named(word) || words.iter().any(named),
        }
    }
}

/// A byte string as text for people.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
