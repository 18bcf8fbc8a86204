//! Apache's `.htaccess` files: parsed once, then evaluated for each request as Apache 2.4 does.
//!
//! The crate reads no files and opens no sockets. The server passes it parsed files and a view of
//! the file system ([`Files`]), a [`Request`] and a [`Site`]; [`evaluate`] returns the answer in an
//! [`Outcome`]. Rewritten paths, index files and internal redirects are already resolved in the
//! outcome.
//!
//! A line that may be about access and is not understood denies the requests that it covers: see
//! docs/htaccess.md.
#![forbid(unsafe_code)]

mod access;
mod authorise;
mod budget;
mod cache_lines;
mod directives;
mod environment;
mod evaluate;
mod expires;
mod expression;
mod file;
mod files;
mod handler;
mod head;
mod header;
mod limits;
mod media;
mod merged;
mod modules;
mod outcome;
mod problem;
mod reason;
mod redirect;
mod request;
mod response;
mod rewrite;
mod scope;
mod state;
pub mod syntax;
mod text;
mod variables;
mod walk;

pub use cache_lines::CacheLines;
pub use directives::{Effect, directives};
pub use evaluate::evaluate;
pub use file::File;
pub use files::Files;
pub use head::{Head, HeadAction, HeadChange};
pub use limits::FILE as MAX_FILE;
pub use outcome::{Answer, ErrorDocument, Handler, Outcome, PhpSetting, RequestedFile, Says};
pub use problem::{Remark, Severity};
pub use reason::{DependsOn, Reason};
pub use request::{Failed, Fields, FileInfo, Kind, Look, Request, Site, VerifiedUser};
pub use response::ResponseRules;
