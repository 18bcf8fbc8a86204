//! `file_server`.

use sendoff_convert_document::Directive;
use sendoff_convert_document::expression::quote;

use super::body::{Answers, Builder, Scope, Step};
use super::conditions::{Case, Conditions, PathTest, Requests, Seen};

/// The index files of a `file_server` that names none.
const INDEX: [&str; 2] = ["index.html", "index.txt"];

/// The index files of a site: the list of its first `file_server` with names that Sendoff accepts.
pub(super) fn index(directives: &[Directive]) -> Vec<String> {
    let mut all = Vec::new();
    lists(directives, &mut all);
    let is_name = |name: &String| !name.contains(['/', '{', '$']) && !name.is_empty();
    let default = INDEX.map(str::to_owned).to_vec();
    if all.contains(&default) {
        return default;
    }
    all.into_iter().find(|names| names.iter().all(is_name)).unwrap_or(default)
}

fn lists(directives: &[Directive], all: &mut Vec<Vec<String>>) {
    for directive in directives {
        if directive.name == "file_server" {
            let own = directive.inner().iter().rfind(|option| option.name == "index");
            all.push(own.map_or(INDEX.map(str::to_owned).to_vec(), |own| own.words.clone()));
        }
        lists(directive.inner(), all);
    }
}

impl Builder<'_> {
    /// `file_server [browse] { root PATH, hide NAME..., index NAME..., browse, precompressed }`
    pub(super) fn file_server(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        let mut has_listing = step.words.contains(&"browse");
        let mut root = scope.root.clone();
        let mut index = INDEX.map(str::to_owned).to_vec();
        for option in step.directive.inner() {
            match option.name.as_str() {
                "browse" => has_listing = true,
                "root" => root = option.words.first().cloned(),
                "index" => index.clone_from(&option.words),
                "hide" => {
                    for name in &option.words {
                        self.hide(name, step, scope);
                    }
                }
                "precompressed" | "disable_canonical_uris" | "etag_file_extensions" => {
                    option.left_out(&mut self.site, "files are sent as Sendoff sends them");
                }
                name => {
                    let why = format!("{name} is not known");
                    self.refuse(step, scope, &why);
                    return step.answers();
                }
            }
        }
        self.index(&index, step, scope);
        for name in self.configuration(root.as_deref().unwrap_or_default(), scope) {
            self.hide(&name, step, scope);
        }
        let handler = if has_listing { "listing" } else { "static" };
        match root {
            None => {
                self.refuse(step, scope, "the folder of its files is not known");
                step.answers()
            }
            Some(root)
                if Some(&root) == self.root.as_ref()
                    && scope.prefix.is_none()
                    && scope.stripped.is_empty() =>
            {
                self.answer(step, scope, &|route, _| route.set(handler, true))
            }
            Some(root) => self.elsewhere(step, scope, &root, handler),
        }
    }

    /// Files of another folder than the site's.
    fn elsewhere(
        &mut self,
        step: &Step<'_>,
        scope: &Scope<'_>,
        root: &str,
        handler: &'static str,
    ) -> Answers {
        if root.contains(['{', '$']) || !root.starts_with('/') {
            self.refuse(step, scope, "its folder has placeholders, or is relative");
            return step.answers();
        }
        if let Some((path, folder)) = self.folder_of(&step.requests, scope, root) {
            self.site.set_in("alias", &path, folder);
            // The alias takes the beginning off the path.
            self.add(&step.requests, scope.mark, Seen::Whole, &|route, _| route.set(handler, true));
            return step.answers();
        }
        let (files, folders) = (self.mark(), self.mark());
        for mark in [files, folders] {
            self.site.set_in("alias", &format!("/@caddy/{mark}"), root);
        }
        let mut requests = step.requests.clone();
        if scope.mark.is_none() {
            requests = requests.with_path(&PathTest {
                expression: "/@caddy/".to_owned(),
                case: Case::Exact,
                is_negated: true,
            });
        }
        // A folder without a slash: the redirect must not show the mark.
        let is_file =
            PathTest { expression: r"(?s:.*)/\z".to_owned(), case: Case::Exact, is_negated: true };
        let seen = scope.seen();
        self.add(&requests.clone().with_path(&is_file), scope.mark, seen, &|route, path| {
            let file = format!("/@caddy/{files}{path}");
            let folder = format!("/@caddy/{folders}{path}/");
            route.set_list("try_files", vec![file.clone(), folder, file]);
        });
        self.add(&requests, scope.mark, seen, &|route, path| {
            route.set("rewrite", format!("/@caddy/{files}{path}"));
        });
        let marked = Requests::all();
        let stripped = super::text::literal(&scope.stripped);
        let stripped = format!("{stripped}{}", scope.prefix.as_deref().unwrap_or_default());
        self.add(&marked, Some(folders), Seen::Whole, &|route, path| {
            route.set("redirect", format!("{stripped}{path}"));
            route.set("status", 308);
        });
        self.add(&marked, Some(files), Seen::Whole, &|route, _| route.set(handler, true));
        step.answers()
    }

    /// The folder of the site that stands for a folder of files: the requests are those below it.
    fn folder_of(
        &self,
        requests: &Requests,
        scope: &Scope<'_>,
        root: &str,
    ) -> Option<(String, String)> {
        let [Conditions { paths, .. }] = &requests.alternatives[..] else { return None };
        let [PathTest { expression, is_negated: false, .. }] = &paths[..] else { return None };
        let path = expression.strip_suffix('/')?.replace('\\', "");
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.".contains(&b);
        if scope.mark.is_some() || path.len() < 2 || !path.bytes().all(is_plain) {
            return None;
        }
        let root = root.trim_end_matches('/');
        match &scope.prefix {
            Some(prefix) if *prefix == path => Some((path, root.to_owned())),
            Some(_) => None,
            None => Some((path.clone(), format!("{root}{path}"))),
        }
    }

    /// `index`: a site has one list of index files. Folders of a `file_server` with another list are
    /// refused.
    fn index(&mut self, names: &[String], step: &Step<'_>, scope: &Scope<'_>) {
        if self.site.texts("index") == names {
            return;
        }
        let is_folder =
            PathTest { expression: r"(?s:.*)/\z".to_owned(), case: Case::Exact, is_negated: false };
        let folders = step.requests.clone().with_path(&is_folder);
        let place = &step.directive.place;
        let text = "index: a site has one list of index files; these folders are refused";
        self.refuse_at(&folders, scope, place, text);
    }

    /// The files of the configuration that are perhaps in a folder, for `hide`: the path of a file,
    /// or its name where the path of a request does not tell the file.
    fn configuration(&self, root: &str, scope: &Scope<'_>) -> Vec<String> {
        let is_plain = scope.root.as_deref() == Some(root) && scope.prefix.is_none();
        let hidden = self.global.files.iter().filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            match path.is_absolute() && root.starts_with('/') {
                true if !path.starts_with(root) => None,
                true if is_plain && !name.contains(['{', '[', '?', '*', '\\']) => {
                    path.to_str().map(str::to_owned)
                }
                _ => Some(name),
            }
        });
        hidden.collect()
    }

    /// `hide`: names in any folder, or a path of the file system.
    fn hide(&mut self, name: &str, step: &Step<'_>, scope: &Scope<'_>) {
        let root = scope.root.as_deref().unwrap_or_default().trim_end_matches('/');
        let glob = |text: &str| quote(text).replace(r"\*", "[^/]*");
        let expression = match name.strip_prefix(root) {
            Some(path) if name.starts_with('/') => format!(r"{}(?:/|\z)", glob(path)),
            None if name.starts_with('/') && root.starts_with(name.trim_end_matches('/')) => {
                return self.refuse(step, scope, "the whole folder is hidden");
            }
            None if name.starts_with('/') && !name.contains('{') => return,
            _ if name.contains('/') || name.contains(['{', '[', '?', '\\']) => {
                return self.refuse(step, scope, "a hidden path is not known");
            }
            _ => format!(r"(?s:.*)/{}(?:/|\z)", glob(name)),
        };
        let test = PathTest { expression, case: Case::Exact, is_negated: false };
        let requests = step.requests.clone().with_path(&test);
        self.add(&requests, scope.mark, Seen::Whole, &|route, _| {
            route.set("deny", true);
            route.set("status", 404);
        });
    }
}
