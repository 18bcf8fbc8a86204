//! Blocks of directives: `handle`, `handle_path` and `route`. Of several `handle`, the first that a
//! request reaches takes it.

use sendoff_convert_document::Directive;

use super::body::{Answers, BlockOrder, Builder, Scope, Step};
use super::conditions::{Clients, Seen};
use super::order::ordered_name;

/// Directives that change nothing about the path and answer nothing.
const RULES: [&str; 7] = [
    "header",
    "request_header",
    "request_body",
    "encode",
    "basic_auth",
    "forward_auth",
    "log_skip",
];

impl Builder<'_> {
    /// `handle` and `handle_path`, which exclude each other.
    pub(super) fn handles(&mut self, group: &[Step<'_>], scope: &Scope<'_>) -> Answers {
        if scope.prefix.is_none() && group.iter().all(|step| self.is_simple(step, scope)) {
            for step in group {
                let inner = Scope {
                    requests: step.requests.clone(),
                    prefix: prefix(step).map(str::to_owned),
                    is_rewritten: scope.is_rewritten,
                    ..scope.clone()
                };
                self.block(step.directive.inner(), &inner, BlockOrder::Caddy);
            }
        } else {
            let marked: Vec<_> = group.iter().map(|step| (step, self.mark())).collect();
            for (step, mark) in &marked {
                self.enter(step, scope, *mark);
            }
            let mut left = false;
            for (step, mark) in &marked {
                self.inside(step, scope, *mark, BlockOrder::Caddy);
                left |= std::mem::take(&mut self.has_left_folder);
            }
            self.has_left_folder = left;
        }
        match group.iter().any(|step| !step.has_matcher) && self.all_answer(group) {
            true => Answers::All,
            false => Answers::Some,
        }
    }

    /// `route`: its directives are carried out in the order of the file.
    pub(super) fn route(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        if !step.has_matcher && scope.prefix.is_none() {
            let answers = self.block(step.directive.inner(), scope, BlockOrder::File);
            if answers == Answers::Some {
                self.left(step, scope);
            }
            return answers;
        }
        let mark = self.mark();
        self.enter(step, scope, mark);
        self.inside(step, scope, mark, BlockOrder::File);
        Answers::Some
    }

    /// `rewrite` directives: only the first that is for a request changes it.
    pub(super) fn rewrites(&mut self, group: &[Step<'_>], scope: &Scope<'_>) {
        let done = self.mark();
        for step in group {
            self.rewrite(step, scope, Some(done));
        }
        self.leave(scope, done);
    }

    /// Marks the requests of a block.
    pub(super) fn enter(&mut self, step: &Step<'_>, scope: &Scope<'_>, mark: usize) {
        if step.requests.clients != Clients::Everyone && step.requests.unknown.is_none() {
            let text = format!(
                "{}: other clients are refused, where Caddy tries what follows",
                step.directive.text()
            );
            self.site.note(&step.directive.place, text);
        }
        let prefix = prefix(step);
        let seen = prefix.map_or(Seen::Whole, Seen::Without);
        // A path with a mark reaches no other block.
        let requests = match scope.mark {
            None => step.requests.clone().with_path(&unmarked()),
            Some(_) => step.requests.clone(),
        };
        self.add(&requests, scope.mark, seen, &|route, path| {
            route.set("rewrite", format!("/@caddy/{mark}{path}"));
        });
    }

    /// The routes of a block whose requests have a mark.
    fn inside(&mut self, step: &Step<'_>, scope: &Scope<'_>, mark: usize, order: BlockOrder) {
        let inner = Scope {
            requests: super::conditions::Requests::all(),
            mark: Some(mark),
            prefix: None,
            is_rewritten: scope.is_rewritten || prefix(step).is_some(),
            stripped: format!("{}{}", scope.stripped, prefix(step).unwrap_or_default()),
            ..scope.clone()
        };
        if self.block(step.directive.inner(), &inner, order) == Answers::Some {
            self.leave(scope, mark);
            self.left(step, scope);
        }
    }

    /// Removes the mark of requests that no directive of a block has answered.
    pub(super) fn leave(&mut self, scope: &Scope<'_>, mark: usize) {
        let everything = super::conditions::Requests::all();
        let around = scope.mark;
        self.add(&everything, Some(mark), Seen::Whole, &|route, path| {
            let path = match around {
                Some(outer) => format!("/@caddy/{outer}{path}"),
                None => path.to_owned(),
            };
            route.set("rewrite", path);
        });
    }

    /// True if a block answers all that reaches it, and changes no path before.
    fn is_simple(&self, step: &Step<'_>, scope: &Scope<'_>) -> bool {
        let block = step.directive.inner();
        let has_matchers = block.iter().any(|inner| inner.word().starts_with(['/', '@']));
        let mut answers = block.iter().filter(|inner| {
            let name = ordered_name(&inner.name);
            !RULES.contains(&name) && name != "root" && !inner.name.starts_with('@')
        });
        let (Some(last), None) = (answers.next(), answers.next()) else { return false };
        let root = block.iter().find(|inner| inner.name == "root");
        let is_known = match last.name.as_str() {
            "reverse_proxy" | "respond" | "error" | "abort" => root.is_none(),
            "file_server" => {
                last.block.is_none()
                    && (root.is_none() && prefix(step).is_none() && scope.root == self.root
                        || self.has_alias(step, scope))
            }
            _ => false,
        };
        is_known && !has_matchers && step.requests.unknown.is_none()
    }

    /// True if each block of a group answers all that reaches it.
    fn all_answer(&self, group: &[Step<'_>]) -> bool {
        const ANSWERS: [&str; 5] = ["reverse_proxy", "respond", "error", "abort", "file_server"];
        group.iter().all(|step| {
            let inner = step.directive.inner();
            inner.iter().any(|inner| {
                ANSWERS.contains(&inner.name.as_str()) && !inner.word().starts_with(['/', '@'])
            })
        })
    }

    /// True if an alias of the site stands for the folder of files of a block.
    fn has_alias(&self, step: &Step<'_>, scope: &Scope<'_>) -> bool {
        let block = step.directive.inner();
        let own = block.iter().find(|inner| inner.name == "root");
        let own = own.and_then(|root| root.words.iter().find(|word| *word != "*"));
        let Some(path) = step.directive.word().strip_suffix("/*") else { return false };
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.".contains(&b);
        let is_folder = path.len() > 1 && path.bytes().all(is_plain);
        let root = own.or(scope.root.as_ref());
        is_folder
            && scope.mark.is_none()
            && scope.prefix.is_none()
            && root.is_some_and(|root| root.starts_with('/') && !root.contains(['{', '$']))
    }
}

/// The beginning that `handle_path` takes off the path.
fn prefix<'s>(step: &Step<'s>) -> Option<&'s str> {
    if step.directive.name != "handle_path" {
        return None;
    }
    let path: &'s Directive = step.directive;
    Some(path.word().trim_end_matches('*').trim_end_matches('/'))
}

/// A path that no earlier route has marked.
fn unmarked() -> super::conditions::PathTest {
    super::conditions::PathTest {
        expression: "/@caddy/".to_owned(),
        case: super::conditions::Case::Exact,
        is_negated: true,
    }
}
