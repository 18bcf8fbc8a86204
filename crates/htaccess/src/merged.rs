//! The merged rules for one request: the files of the folders on its path, and the sections that
//! cover it.

use std::sync::Arc;

use crate::access::{self, AccessResult, Authentication, Group, HostAccess};
use crate::budget::{Budget, TooCostly};
use crate::environment::{Conditional, Fixed};
use crate::expires;
use crate::expression::Evaluation;
use crate::file::File;
use crate::header::HeaderRule;
use crate::media;
use crate::outcome::{PhpSetting, Says};
use crate::reason::Reason;
use crate::redirect::Redirect;
use crate::rewrite::{Rule, Rules};
use crate::scope::{AuthMerging, Covers, Document, OptionChange, PathInfo, Scope, Section};
use crate::state::{Context, Pass, Refusal};
use crate::text;

/// The files on a path with their folders, the outermost folder first.
pub(crate) type Chain = Vec<(Vec<u8>, Arc<File>)>;

/// A file and the line of a rule in it.
pub(crate) type Origin<'a> = (&'a File, usize);

/// The rules that apply to a request.
#[derive(Default)]
pub(crate) struct Merged<'a> {
    pub(crate) rewrite: Rules,
    /// Nearest first.
    pub(crate) redirects: Vec<(&'a File, &'a Redirect)>,
    pub(crate) response_headers: Vec<Arc<HeaderRule>>,
    pub(crate) request_headers: Vec<&'a HeaderRule>,
    pub(crate) fixed: Vec<&'a Fixed>,
    pub(crate) conditional: Vec<&'a Conditional>,
    /// All of them must allow the client.
    pub(crate) hosts: Vec<(&'a File, &'a HostAccess)>,
    pub(crate) require: Vec<(AuthMerging, &'a File, &'a Group)>,
    pub(crate) authentication: Authentication,
    pub(crate) media: Vec<&'a media::Config>,
    pub(crate) expires: expires::Config,
    pub(crate) php: Vec<PhpSetting>,
    pub(crate) listing: bool,
    pub(crate) follow_links: bool,
    pub(crate) follow_own_links: bool,
    pub(crate) error_documents: Vec<(u16, Option<&'a Document>)>,
    pub(crate) force_type: Option<&'a Vec<u8>>,
    pub(crate) handler: Option<&'a Option<Vec<u8>>>,
    pub(crate) default_charset: Option<&'a Vec<u8>>,
    pub(crate) etag: Option<bool>,
    pub(crate) path_info: Option<PathInfo>,
    pub(crate) index: Option<&'a [Vec<u8>]>,
    pub(crate) slash: Option<bool>,
    pub(crate) fallback: Option<&'a Vec<u8>>,
    pub(crate) require_tls: Option<Reason>,
    pub(crate) max_body: Option<u64>,
    pub(crate) refused: Option<Reason>,
    /// Request fields that sections depend on.
    pub(crate) vary: Vec<Vec<u8>>,
}

/// The folder and the file of a scope.
#[derive(Clone, Copy)]
struct ScopeOrigin<'a> {
    folder: &'a [u8],
    file: &'a File,
}

impl<'a> Merged<'a> {
    /// The rules for the file that a pass found.
    ///
    /// # Errors
    /// An expression took too long.
    pub(crate) fn of(
        context: &Context<'_>,
        pass: &Pass,
        chain: &'a Chain,
    ) -> Result<Self, Refusal> {
        let listing = context.site.listing;
        let mut merged = Self { listing, follow_links: true, ..Self::default() };
        let name = pass.file.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let places = || chain.iter().map(|(folder, file)| ScopeOrigin { folder, file });
        for place in places() {
            context.budget.time().map_err(|_| costly(place, 0))?;
            merged.merge(place, place.file.scope());
        }
        // Sections come after the directives of all folders: first sections by name, then those by
        // expression.
        let mut expressions: Vec<(ScopeOrigin<'a>, &'a [Section])> = Vec::new();
        for place in places() {
            let sections = place.file.scope().sections.as_slice();
            expressions.push((place, sections));
            let merge = Self::merge;
            merged.by_name(place, sections, name, &context.budget, merge, &mut expressions)?;
        }
        for (place, sections) in expressions {
            merged.by_expression(context, pass, place, sections, name)?;
        }
        Ok(merged)
    }

    /// Merges the sections for a name by `merge`.
    fn by_name(
        &mut self,
        place: ScopeOrigin<'a>,
        sections: &'a [Section],
        name: &[u8],
        budget: &Budget<'_>,
        merge: impl Fn(&mut Self, ScopeOrigin<'a>, &'a Scope),
        expressions: &mut Vec<(ScopeOrigin<'a>, &'a [Section])>,
    ) -> Result<(), Refusal> {
        for Section { line, covers, scope } in sections {
            if covers_name(covers, name, budget).map_err(|_| costly(place, *line))? {
                merge(self, place, scope);
                expressions.push((place, &scope.sections));
                let sections = &scope.sections;
                self.by_name(place, sections, name, budget, Self::merge_nested, expressions)?;
            }
        }
        Ok(())
    }

    fn by_expression(
        &mut self,
        context: &Context<'_>,
        pass: &Pass,
        place: ScopeOrigin<'a>,
        sections: &'a [Section],
        name: &[u8],
    ) -> Result<(), Refusal> {
        let mut taken = false;
        for Section { line, covers, scope } in sections {
            let expression = match covers {
                Covers::If(expression) => {
                    taken = false;
                    expression.as_ref()
                }
                Covers::ElseIf(_) | Covers::Else if taken => continue,
                Covers::ElseIf(expression) => expression.as_ref(),
                Covers::Else => None,
                Covers::Name(_) | Covers::Matching(_) => continue,
            };
            let mut evaluation = Evaluation::new(context, pass);
            let holds = match expression {
                Some(expression) => evaluation.holds(expression),
                None => Ok(true),
            };
            self.vary.append(&mut evaluation.vary);
            if !holds.map_err(|_| costly(place, *line))? {
                continue;
            }
            // An expression that is not understood may hold or not: the `ElseIf` and `Else` behind
            // it apply, too.
            taken = expression.is_some() || matches!(covers, Covers::Else);
            self.merge(place, scope);
            let mut nested = vec![(place, scope.sections.as_slice())];
            let (sections, budget) = (&scope.sections, &context.budget);
            self.by_name(place, sections, name, budget, Self::merge_nested, &mut nested)?;
            for (place, sections) in nested {
                self.by_expression(context, pass, place, sections, name)?;
            }
        }
        Ok(())
    }

    fn merge(&mut self, place: ScopeOrigin<'a>, scope: &'a Scope) {
        self.merge_rewriting(place, scope);
        self.merge_access(place, scope);
        let redirects = scope.redirects.iter().map(|redirect| (place.file, redirect));
        self.redirects.splice(0..0, redirects);
        self.response_headers.extend(scope.response_headers.iter().cloned());
        self.request_headers.extend(&scope.request_headers);
        self.fixed.extend(&scope.fixed);
        self.conditional.extend(&scope.conditional);
        self.media.push(&scope.media);
        self.expires.merge(&scope.expires);
        for setting in &scope.php {
            self.php.retain(|known| known.name != setting.name);
            self.php.push(setting.clone());
        }
        self.set_options(&scope.options);
        for (status, document) in &scope.error_documents {
            self.error_documents.retain(|(known, _)| known != status);
            self.error_documents.push((*status, document.as_ref()));
        }
        fn over<T>(known: &mut Option<T>, nearer: Option<T>) {
            if nearer.is_some() {
                *known = nearer;
            }
        }
        if let Some(force_type) = &scope.force_type {
            self.force_type = force_type.as_ref();
        }
        if let Some(charset) = &scope.default_charset {
            self.default_charset = charset.as_ref();
        }
        if let Some(fallback) = &scope.fallback {
            self.fallback = fallback.as_ref();
        }
        over(&mut self.handler, scope.handler.as_ref());
        over(&mut self.etag, scope.etag);
        over(&mut self.path_info, scope.path_info);
        over(&mut self.index, scope.index.as_deref());
        over(&mut self.slash, scope.slash);
        over(&mut self.max_body, scope.max_body);
        if let Some(line) = scope.require_tls {
            let (file, text) = (place.file.name().to_string(), "TLS is required".to_owned());
            self.require_tls = Some(Reason { file, line, text });
        }
        if let Some((line, text)) = scope.refusals.first() {
            self.refused.get_or_insert_with(|| Reason {
                file: place.file.name().to_string(),
                line: *line,
                text: text.clone(),
            });
        }
    }

    /// Merges a section by name within another section. Apache ignores it, so it grants nothing.
    fn merge_nested(&mut self, place: ScopeOrigin<'a>, scope: &'a Scope) {
        let mut hosts = std::mem::take(&mut self.hosts);
        let mut require = std::mem::take(&mut self.require);
        self.merge(place, scope);
        hosts.append(&mut self.hosts);
        let merging = if require.is_empty() { AuthMerging::Replace } else { AuthMerging::And };
        require.extend(self.require.drain(..).map(|(_, file, group)| (merging, file, group)));
        (self.hosts, self.require) = (hosts, require);
    }

    fn merge_rewriting(&mut self, place: ScopeOrigin<'a>, scope: &Scope) {
        let Some(config) = &scope.rewrite else { return };
        let file = place.file.name();
        let own = config.rules.iter().map(|rule| (Arc::clone(file), Arc::clone(rule)));
        let own: Vec<(Arc<str>, Arc<Rule>)> = own.collect();
        let above = std::mem::take(&mut self.rewrite);
        let old = above.options;
        // One `RewriteOptions` replaces all options of the folder above.
        let options = config.options.unwrap_or(old);
        let takes = !options.ignore_inherit;
        let behind = options.inherit || (takes && old.inherit_down);
        let before = options.inherit_before || (takes && old.inherit_down_before);
        let rules = match (behind, before) {
            (true, _) => [own, above.rules].concat(),
            (false, true) => [above.rules, own].concat(),
            (false, false) => own,
        };
        let base = config.base.clone().or(above.base.filter(|_| options.merge_base));
        let engine = config.engine.unwrap_or(above.engine);
        self.rewrite = Rules { engine, base, options, rules, folder: place.folder.to_vec() };
    }

    fn merge_access(&mut self, place: ScopeOrigin<'a>, scope: &'a Scope) {
        if let Some(hosts) = &scope.hosts {
            self.hosts = vec![(place.file, hosts)];
        }
        if let Some(group) = &scope.require {
            let merging = scope.auth_merging.unwrap_or(AuthMerging::Replace);
            if merging == AuthMerging::Replace {
                self.require.clear();
            }
            self.require.push((merging, place.file, group));
        }
        let (known, nearer) = (&mut self.authentication, &scope.authentication);
        known.basic = nearer.basic.or(known.basic);
        known.realm = nearer.realm.clone().or(known.realm.take());
        known.users = nearer.users.clone().or(known.users.take());
        known.groups = nearer.groups.clone().or(known.groups.take());
    }

    /// Applies changes to the options of a folder.
    pub(crate) fn set_options(&mut self, changes: &[OptionChange]) {
        for change in changes {
            match *change {
                OptionChange::Clear => {
                    (self.listing, self.follow_links, self.follow_own_links) =
                        (false, false, false);
                }
                OptionChange::Listing(on) => self.listing = on,
                OptionChange::FollowLinks(on) => self.follow_links = on,
                OptionChange::FollowOwnLinks(on) => self.follow_own_links = on,
            }
        }
    }

    /// The verdict of `Require`, and the directive that decided.
    ///
    /// # Errors
    /// An expression took too long.
    pub(crate) fn verdict(
        &self,
        context: &Context<'_>,
        pass: &mut Pass,
    ) -> Result<(AccessResult, Option<Origin<'a>>), TooCostly> {
        let groups = self.authentication.groups.as_deref();
        let mut fields = Vec::new();
        let mut verdict = (AccessResult::Granted, None);
        for (merging, file, group) in &self.require {
            let next = group.verdict(context, pass, groups, &mut fields)?;
            let result = match merging {
                AuthMerging::Replace => next,
                AuthMerging::And => verdict.0.and(next),
                AuthMerging::Or => verdict.0.or(next),
            };
            if *merging == AuthMerging::Replace || result != verdict.0 {
                verdict = (result, Some((*file, group.line)));
            }
        }
        pass.depend_on(fields);
        let method = context.request.method;
        let is_concerned = self.require.iter().any(|(_, _, group)| group.concerns(method));
        // Requirements for other methods let the client in.
        if verdict.0 == AccessResult::Neutral && !is_concerned {
            verdict.0 = AccessResult::Granted;
        }
        Ok(verdict)
    }

    /// The kinds of requests that the rules decide, in place of the server's own rules.
    pub(crate) fn says(&self) -> Says {
        let has_page = |(status, document): &(u16, Option<_>)| *status == 404 && document.is_some();
        let rewrites = self.rewrite.engine && !self.rewrite.rules.is_empty();
        let missing =
            rewrites || self.fallback.is_some() || self.error_documents.iter().any(has_page);
        Says { missing, folders: rewrites || self.index.is_some() || self.slash.is_some() }
    }

    /// True if a setting of PHP is off.
    pub(crate) fn is_off(&self, name: &str) -> bool {
        let setting = self.php.iter().find(|setting| setting.name == name.as_bytes());
        setting.is_some_and(|setting| access::is_off(&setting.value))
    }
}

fn covers_name(covers: &Covers, name: &[u8], budget: &Budget<'_>) -> Result<bool, TooCostly> {
    budget.time()?;
    match covers {
        Covers::Name(pattern) => Ok(text::glob(pattern, name)),
        Covers::Matching(pattern) => pattern.matches(name, budget),
        Covers::If(_) | Covers::ElseIf(_) | Covers::Else => Ok(false),
    }
}

fn costly(place: ScopeOrigin<'_>, line: usize) -> Refusal {
    let text = "matching the condition of a section took too long".to_owned();
    Refusal { status: 500, why: Some(Reason { file: place.file.name().to_string(), line, text }) }
}
