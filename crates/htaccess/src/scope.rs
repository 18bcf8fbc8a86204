//! The directives of a file, or of a section, sorted by their subject.

use std::sync::Arc;

use sendoff_apache_expression::Pattern;

use crate::access::{Authentication, Group, HostAccess};
use crate::environment::{Conditional, Fixed};
use crate::expires;
use crate::expression::{Expression, Template};
use crate::header::HeaderRule;
use crate::media;
use crate::outcome::PhpSetting;
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
    pub(crate) hosts: Option<HostAccess>,
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
    /// Lines that are not understood and may be about access.
    pub(crate) refusals: Vec<(usize, String)>,
    pub(crate) sections: Vec<Section>,
}

impl Scope {
    /// True if a directive is about access.
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

/// A section and its condition.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) line: usize,
    pub(crate) covers: Covers,
    pub(crate) scope: Scope,
}

/// The condition of a section.
#[derive(Debug)]
pub(crate) enum Covers {
    /// `<Files>`: a name or a shell pattern.
    Name(Vec<u8>),
    /// `<FilesMatch>`
    Matching(Pattern),
    /// `<If>`; `None` if the expression is not understood: the section may apply.
    If(Option<Expression>),
    ElseIf(Option<Expression>),
    Else,
}

/// A change of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionChange {
    /// All options are reset.
    Clear,
    Listing(bool),
    FollowLinks(bool),
    FollowOwnLinks(bool),
}

/// The treatment of a path that continues behind a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathInfo {
    /// Scripts accept it.
    ByHandler,
    Always,
    Never,
}

/// The combination of `Require` with the requirements of the folders above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthMerging {
    Replace,
    And,
    Or,
}

/// An error document as it is in the file.
#[derive(Debug)]
pub(crate) enum Document {
    Text(Template),
    Path(Template),
    Uri(Template),
}
