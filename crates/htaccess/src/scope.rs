//! What a file, or a section of it, says: the directives sorted by their subject.

use std::sync::Arc;

use crate::access::{Authentication, Group, Hosts};
use crate::environment::{Conditional, Fixed};
use crate::expires;
use crate::expression::{Expression, Template};
use crate::header::HeaderRule;
use crate::media;
use crate::outcome::PhpSetting;
use crate::pattern::Pattern;
use crate::redirect::Redirect;
use crate::rewrite;

/// The directives of a file, or of a section.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) rewrite: Option<rewrite::Config>,
    pub(crate) redirects: Vec<Redirect>,
    pub(crate) response_headers: Vec<Arc<HeaderRule>>,
    pub(crate) request_headers: Vec<HeaderRule>,
    pub(crate) fixed: Vec<Fixed>,
    pub(crate) conditional: Vec<Conditional>,
    pub(crate) hosts: Option<Hosts>,
    pub(crate) require: Option<Group>,
    pub(crate) auth_merging: Option<AuthMerging>,
    pub(crate) authentication: Authentication,
    pub(crate) media: media::Config,
    pub(crate) expires: expires::Config,
    pub(crate) php: Vec<PhpSetting>,
    pub(crate) options: Vec<OptionChange>,
    pub(crate) error_documents: Vec<(u16, Option<Document>)>,
    /// `ForceType`; `Some(None)`: `none`.
    pub(crate) force_type: Option<Option<Vec<u8>>>,
    /// `SetHandler`; `Some(None)`: `none`.
    pub(crate) handler: Option<Option<Vec<u8>>>,
    /// `AddDefaultCharset`; `Some(None)`: `Off`.
    pub(crate) default_charset: Option<Option<Vec<u8>>>,
    pub(crate) etag: Option<bool>,
    pub(crate) path_info: Option<PathInfo>,
    pub(crate) index: Option<Vec<Vec<u8>>>,
    pub(crate) slash: Option<bool>,
    /// `FallbackResource`; `Some(None)`: `disabled`.
    pub(crate) fallback: Option<Option<Vec<u8>>>,
    /// `SSLRequireSSL` and its line.
    pub(crate) require_tls: Option<usize>,
    /// `LimitRequestBody` in bytes; zero: no limit.
    pub(crate) max_body: Option<u64>,
    /// Lines that may be about access and are not understood.
    pub(crate) refusals: Vec<(usize, String)>,
    pub(crate) sections: Vec<Section>,
}

impl Scope {
    /// Whether a directive is about access.
    pub(crate) fn protects(&self) -> bool {
        let rules = self.rewrite.as_ref().map_or(&[][..], |config| &config.rules);
        self.require.is_some()
            || self.hosts.is_some()
            || self.require_tls.is_some()
            || !self.refusals.is_empty()
            || self.handler.is_some()
            || self.php.iter().any(|setting| setting.name == b"engine")
            || self.redirects.iter().any(|redirect| redirect.status >= 400)
            || rules.iter().any(|rule| rule.refuses())
            || self.sections.iter().any(|section| section.scope.protects())
    }
}

/// A section and the requests that it is for.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) line: usize,
    pub(crate) covers: Covers,
    pub(crate) scope: Scope,
}

/// Which requests a section is for.
#[derive(Debug)]
pub(crate) enum Covers {
    /// `<Files>`: a name or a shell pattern.
    Name(Vec<u8>),
    /// `<FilesMatch>`
    Matching(Pattern),
    /// `<If>`; `None`: the expression is not understood, so that it may hold.
    If(Option<Expression>),
    ElseIf(Option<Expression>),
    Else,
}

/// What an option becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionChange {
    /// The options begin anew.
    Clear,
    Listing(bool),
    FollowLinks(bool),
    FollowOwnLinks(bool),
}

/// Whether what follows the file in a path is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathInfo {
    /// By scripts.
    ByHandler,
    Always,
    Never,
}

/// How `Require` combines with that of the folders above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthMerging {
    Replace,
    And,
    Or,
}

/// An error document as it is written.
#[derive(Debug)]
pub(crate) enum Document {
    Text(Template),
    Path(Template),
    Uri(Template),
}
