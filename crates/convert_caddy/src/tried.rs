//! `try_files`.

use super::body::{Builder, Scope, Step};
use super::conditions::{Case, PathTest, Requests, Seen};
use super::text::literal;

/// A path that is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Candidate {
    /// The path of the request, with a text behind it.
    Path(String),
    /// The path of the request, if it is a folder.
    Folder,
    Fixed(String),
    Status(String),
}

impl Builder<'_> {
    pub(super) fn try_files(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        if step.directive.block.is_some() || step.words.is_empty() {
            return self.refuse(step, scope, "its options");
        }
        let mut candidates = Vec::new();
        for word in &step.words {
            match candidate(word) {
                Some(candidate) => candidates.push(candidate),
                None => return self.refuse(step, scope, &format!("{word} is not known")),
            }
        }
        let Some(base) = self.base(scope) else {
            return self.refuse(step, scope, "the folder of its files is not known");
        };
        self.tries(&step.requests, scope, &candidates, &base);
    }

    /// The beginning of paths below the folder of files. Behind a mark it is an alias.
    pub(super) fn base(&mut self, scope: &Scope<'_>) -> Option<String> {
        let root = scope.root.as_ref()?;
        match scope.mark {
            Some(mark) => {
                let base = format!("/@caddy/{mark}");
                self.site.set_in("alias", &base, root.clone());
                Some(base)
            }
            None => (self.root.as_ref() == Some(root)).then(String::new),
        }
    }

    /// Adds the routes. `{path}` is a file, `{path}/` a folder; a path that none of the candidates
    /// is there for stays.
    fn tries(
        &mut self,
        requests: &Requests,
        scope: &Scope<'_>,
        candidates: &[Candidate],
        base: &str,
    ) {
        let needs_both =
            candidates.iter().any(|one| matches!(one, Candidate::Path(_) | Candidate::Folder));
        let shapes: &[Shape] =
            if needs_both { &[Shape::Folder, Shape::File] } else { &[Shape::File] };
        // Routes for files must not see what the route for folders has made.
        for shape in shapes.iter().rev() {
            // A letter behind the path would be part of its name.
            let is_letter = |one: &Candidate| match one {
                Candidate::Path(rest) => {
                    rest.starts_with(|sign: char| sign.is_ascii_alphanumeric() || sign == '_')
                        || *shape == Shape::Folder && !rest.is_empty()
                }
                _ => false,
            };
            let seen = match candidates.iter().any(is_letter) {
                true => Seen::Grouped,
                false => Seen::Whole,
            };
            let requests = match needs_both {
                true => requests.clone().with_path(&shape.test()),
                false => requests.clone(),
            };
            self.add(&requests, scope.mark, seen, &|route, path| {
                let mut texts: Vec<String> = candidates
                    .iter()
                    .filter_map(|one| match (one, shape) {
                        // Caddy looks for a file without the slash.
                        (Candidate::Path(rest), Shape::Folder) if rest.is_empty() => None,
                        (Candidate::Path(rest), Shape::Folder) => {
                            Some(format!("{base}{path}{}", rest.trim_start_matches('/')))
                        }
                        (Candidate::Path(rest), Shape::File) => Some(format!("{base}{path}{rest}")),
                        (Candidate::Folder, Shape::Folder) => Some(format!("{base}{path}")),
                        (Candidate::Folder, Shape::File) => Some(format!("{base}{path}/")),
                        (Candidate::Fixed(text), _) => Some(format!("{base}{text}")),
                        (Candidate::Status(text), _) => Some(text.clone()),
                    })
                    .collect();
                if !texts.last().is_some_and(|last| last.starts_with('=')) {
                    texts.push(format!("{base}{path}"));
                }
                route.set_list("try_files", texts);
            });
        }
    }
}

/// The kinds of paths for which candidates differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// With a slash at the end.
    Folder,
    File,
}

impl Shape {
    fn test(self) -> PathTest {
        let expression = r"(?s:.*)/\z".to_owned();
        PathTest { expression, case: Case::Exact, is_negated: self == Self::File }
    }
}

fn candidate(word: &str) -> Option<Candidate> {
    let word = word.replace("{http.request.uri.path}", "{path}");
    if let Some(status) = word.strip_prefix('=') {
        return (status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit()))
            .then(|| Candidate::Status(word.clone()));
    }
    // The query stays anyway.
    let word = word
        .strip_suffix("?{query}")
        .or(word.strip_suffix("?{http.request.uri.query}"))
        .unwrap_or(&word);
    if word.contains(['?', '*', '[']) {
        return None;
    }
    let candidate = match word.strip_prefix("{path}").or(word.strip_prefix("/{path}")) {
        Some("/") => Candidate::Folder,
        Some(rest) => Candidate::Path(literal(rest)),
        None => Candidate::Fixed(literal(&format!("/{}", word.trim_start_matches('/')))),
    };
    let text = match &candidate {
        Candidate::Path(text) | Candidate::Fixed(text) => text.as_str(),
        _ => "",
    };
    (!text.contains('{')).then_some(candidate)
}
