//! `php_fastcgi`: scripts, and a script that answers for paths that lead to no file.

use sendoff_convert_document::Section;

use super::body::{Answers, Builder, Scope, Step};
use super::conditions::{Case, PathTest, Requests, Seen};

/// A script, perhaps with a path behind it.
const SCRIPT: &str = r"(?s:.*?)\.php(?:/|\z)";

impl Builder<'_> {
    /// `php_fastcgi ADDRESS... { root PATH, index NAME, try_files PATH..., env NAME VALUE }`
    pub(super) fn php_fastcgi(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        // A script that answers for other paths may be outside of the matcher: Caddy compares once.
        if step.has_matcher && scope.prefix.is_none() {
            let mark = self.mark();
            self.enter(step, scope, mark);
            let inner = Scope {
                requests: Requests::all(),
                mark: Some(mark),
                is_rewritten: true,
                ..scope.clone()
            };
            let own = Step {
                directive: step.directive,
                words: step.words.clone(),
                requests: Requests::all(),
                has_matcher: false,
            };
            self.scripts(&own, &inner);
            self.leave(scope, mark);
            return Answers::Some;
        }
        self.scripts(step, scope)
    }

    fn scripts(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        let (mut index, mut params) = ("index.php".to_owned(), Vec::new());
        for option in step.directive.inner() {
            match (option.name.as_str(), &option.words[..]) {
                ("index", [name]) if !name.contains(['/', '{', '$']) => index.clone_from(name),
                ("root", [root]) if Some(root) == self.root.as_ref() => {}
                ("env", [name, value]) if !value.contains('{') => {
                    params.push((name.clone(), super::text::literal(value)));
                }
                ("resolve_root_symlink" | "capture_stderr" | "dial_timeout", _)
                | ("read_timeout" | "write_timeout", _) => {
                    option.left_out(&mut self.site, "scripts run in Sendoff's workers");
                }
                _ => {
                    self.refuse(step, scope, &format!("{} is not known", option.text()));
                    return step.answers();
                }
            }
        }
        if scope.root.is_none() || scope.root != self.root || scope.prefix.is_some() {
            self.refuse(
                step,
                scope,
                "its scripts are in another folder than the scripts of the site",
            );
            return step.answers();
        }
        let Some(base) = self.base(scope) else {
            self.refuse(step, scope, "the folder of its scripts is not known");
            return step.answers();
        };
        self.pool(step);
        if index != "off" {
            self.find_scripts(&step.requests, scope, &base, &index);
        }
        let is_script =
            PathTest { expression: SCRIPT.to_owned(), case: Case::Exact, is_negated: false };
        let scripts = step.requests.clone().with_path(&is_script);
        let is_marked = scope.mark.is_some();
        self.add(&scripts, scope.mark, Seen::Whole, &|route, path| {
            if is_marked {
                route.set("rewrite", path);
            }
            for (name, value) in &params {
                route.set_in("params", name, value.clone());
            }
            route.set("php", true);
        });
        Answers::Some
    }

    /// Looks for a file, for the script of a folder, and takes the script of the site otherwise.
    fn find_scripts(&mut self, requests: &Requests, scope: &Scope<'_>, base: &str, index: &str) {
        let not_script = PathTest {
            expression: r"(?s:.*?)\.php/".to_owned(),
            case: Case::Exact,
            is_negated: true,
        };
        let is_folder = |is_negated| PathTest {
            expression: r"(?s:.*)/\z".to_owned(),
            case: Case::Exact,
            is_negated,
        };
        let mut found = requests.clone().with_path(&not_script);
        let folders = self.mark();
        if let Some(root) = scope.root.clone() {
            self.site.set_in("alias", &format!("/@caddy/{folders}"), root);
        }
        if scope.mark.is_none() {
            found = found.with_path(&PathTest {
                expression: "/@caddy/".to_owned(),
                case: Case::Exact,
                is_negated: true,
            });
        }
        let of_folders = found.clone().with_path(&is_folder(false));
        self.add(&of_folders, scope.mark, Seen::Grouped, &|route, path| {
            let own = format!("{base}{path}{index}");
            route.set_list("try_files", vec![own, format!("{base}/{index}")]);
        });
        let of_files = found.with_path(&is_folder(true));
        self.add(&of_files, scope.mark, Seen::Whole, &|route, path| {
            let texts = [
                format!("{base}{path}"),
                format!("/@caddy/{folders}{path}/{index}"),
                format!("{base}/{index}"),
            ];
            route.set_list("try_files", texts.to_vec());
        });
        // A folder without a slash.
        let mut route = Section::new("site.route");
        let quoted = sendoff_convert_document::expression::quote(index);
        route.set("match", format!(r"(?s)^/@caddy/{folders}(/.*/){quoted}\z"));
        route.set("redirect", "$1");
        route.set("status", 308);
        self.push(route);
    }

    /// The pool of the site, in place of php-fpm.
    fn pool(&mut self, step: &Step<'_>) {
        let address = step.word();
        let name = sendoff_convert_document::pool::name_of(address.trim_start_matches("unix/"));
        let name = if name.is_empty() { "php".to_owned() } else { name };
        if let [own] = &self.site.texts("pool")[..]
            && *own != name
        {
            let text = format!("{}: its scripts run in the pool {own}", step.directive.text());
            self.site.left_out(&step.directive.place, text);
            return;
        }
        let mut pool = Section::new("pool");
        pool.comment(format!(
            "In place of php-fpm at {address}: its user and its settings are in its file in pool.d."
        ));
        pool.set("name", name.clone());
        if !self.groups.contains(&pool) {
            self.groups.push(pool);
        }
        self.site.set("pool", name);
    }
}
