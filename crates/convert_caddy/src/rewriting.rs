//! Directives about the path: `redir`, `rewrite` and `uri`.

use sendoff_convert_document::expression::quote;

use super::body::{Answers, Builder, Scope, Step};
use super::conditions::{Case, PathTest, Seen};
use super::text::{Around, translate};

impl Builder<'_> {
    /// `redir TARGET [STATUS]`
    pub(super) fn redir(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        let status = match step.words.get(1).copied() {
            None | Some("temporary") => Some(302),
            Some("permanent") => Some(301),
            Some(code) => {
                code.parse::<i64>().ok().filter(|code| matches!(code, 301 | 302 | 303 | 307 | 308))
            }
        };
        let path = if scope.mark.is_some() { "$1" } else { "$path" };
        let around = Around { path, is_rewritten: scope.is_rewritten, requests: &step.requests };
        match (translate(step.word(), &around), status) {
            (Ok(target), Some(status)) if is_target(&target) => {
                self.add(&step.requests, scope.mark, Seen::Whole, &|route, _| {
                    route.set("redirect", target.clone());
                    route.set("status", status);
                });
            }
            (Err(placeholder), _) => {
                self.refuse(step, scope, &format!("{placeholder} is not known"));
            }
            _ => self.refuse(step, scope, "its target or its status is not known"),
        }
        step.answers()
    }

    /// `rewrite TARGET`. With `done`, the new path gets this mark, so that no other rewriting
    /// changes it.
    pub(super) fn rewrite(&mut self, step: &Step<'_>, scope: &Scope<'_>, done: Option<usize>) {
        let mark = done.or(scope.mark);
        let path = if scope.mark.is_some() { "$1" } else { "$path" };
        let around = Around { path, is_rewritten: scope.is_rewritten, requests: &step.requests };
        // The path and the query change as one.
        let text = step.word().replace("{http.request.uri}", "{uri}");
        let text = match text.split_once("{uri}") {
            Some((start, rest)) if !start.contains('?') && !rest.contains('?') => {
                if rest.is_empty() { format!("{start}{{path}}") } else { text.clone() }
            }
            _ => text,
        };
        let target = match text.starts_with('?') {
            true => format!("{{path}}{text}"),
            false => text,
        };
        let target = match translate(&target, &around) {
            Ok(target) if target.starts_with(['/', '$']) => target,
            Ok(target) => format!("/{target}"),
            Err(placeholder) => {
                return self.refuse(step, scope, &format!("{placeholder} is not known"));
            }
        };
        if target.starts_with('$') && !target.starts_with(path) || target.contains('#') {
            return self.refuse(step, scope, "its target is no path");
        }
        let mut requests = step.requests.clone();
        if done.is_some() && scope.mark.is_none() {
            requests = requests.unmarked_by(&PathTest {
                expression: "/@caddy/".to_owned(),
                case: Case::Exact,
                is_negated: true,
            });
        }
        self.add(&requests, scope.mark, Seen::Whole, &|route, _| {
            let target = match mark {
                Some(mark) => format!("/@caddy/{mark}{target}"),
                None => target.clone(),
            };
            route.set("rewrite", target);
        });
    }

    /// `uri strip_prefix TEXT` and `uri strip_suffix TEXT`
    pub(super) fn uri(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        let (operation, text) = (step.word(), step.words.get(1).copied().unwrap_or_default());
        if text.contains(['{', '%']) || text.is_empty() || step.words.len() > 2 {
            return self.refuse(step, scope, "it has placeholders or escapes");
        }
        let marked = |path: &str| match scope.mark {
            Some(mark) => format!("/@caddy/{mark}{path}"),
            None => path.to_owned(),
        };
        match operation {
            "strip_prefix" => {
                let text = format!("/{}", text.trim_start_matches('/'));
                self.add(&step.requests, scope.mark, Seen::Without(&text), &|route, path| {
                    route.set("rewrite", marked(path));
                });
            }
            "strip_suffix" => {
                let start = scope.mark.map_or(String::new(), |mark| format!("/@caddy/{mark}"));
                let expression = format!(r"(?s)^{start}(/.*)(?i:{})\z", quote(text));
                if !step.requests.is_all() {
                    return self.refuse(step, scope, "a suffix for some requests");
                }
                self.add(&step.requests, None, Seen::Whole, &|route, _| {
                    route.set("match", expression.clone());
                    route.set("rewrite", marked("$1"));
                });
            }
            _ => self.refuse(step, scope, "this change of the path"),
        }
    }
}

fn is_target(target: &str) -> bool {
    target.starts_with(['/', '$']) || target.contains("://")
}
