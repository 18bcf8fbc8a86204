//! Applications as handlers of routes.

use super::application::{self, Program};
use super::builder::{Builder, When};
use super::conditions::Shape;
use super::json::Node;
use sendoff_convert_document::Section;

impl Builder<'_> {
    pub(super) fn application(
        &mut self,
        pass: &Node<'_>,
        name: &str,
        target: Option<&str>,
        when: &When,
        own: &Section,
    ) {
        let config = self.config;
        let Some(app) = config.get("applications").and_then(|all| all.get(name)) else {
            return self.refuse(when, pass, "no application has this name");
        };
        match app.text_of("type").map(application::language) {
            Some("php") => self.php(pass, name, &app, target, when, own),
            Some("python" | "ruby") => match Program::of(name, &app, target) {
                Ok(program) => {
                    let address = format!("pool:{}", program.name);
                    if !self.programs.iter().any(|known| known.name == program.name) {
                        self.programs.push(program);
                    }
                    self.answer(when, own, &|route| route.set("fastcgi", address.clone()));
                }
                Err(why) => self.refuse(when, pass, &why),
            },
            Some("java") => self.refuse(when, pass, "a servlet needs a container, such as Tomcat"),
            Some("external") => {
                let why = "the program speaks to Unit alone: let it listen at an address of its own, and name that in proxy";
                self.refuse(when, pass, why);
            }
            _ => self.refuse(when, pass, "there is no handler for its language"),
        }
    }

    fn php(
        &mut self,
        pass: &Node<'_>,
        name: &str,
        app: &Node<'_>,
        target: Option<&str>,
        when: &When,
        own: &Section,
    ) {
        let place = match target {
            None => Some(app.clone()),
            Some(target) => app.get("targets").and_then(|targets| targets.get(target)),
        };
        let Some(place) = place else { return self.refuse(when, pass, "no target has this name") };
        let Some(root) = place.text_of("root").filter(|root| root.starts_with('/')) else {
            return self.refuse(when, pass, "its folder is no path");
        };
        let root = if root.len() > 1 { root.trim_end_matches('/') } else { root };
        let script = place.text_of("script");
        let index = script.is_none().then(|| place.text_of("index").unwrap_or("index.php"));
        let (_, _, known_index) =
            self.php.get_or_insert_with(|| (name.to_owned(), Some(root.to_owned()), None));
        if let (None, Some(index)) = (&known_index, index) {
            *known_index = Some(index.to_owned());
        }
        if self.folders.php.as_deref().is_some_and(|known| known != name) {
            return self.refuse(when, pass, "a site has one application of PHP");
        }
        if self.folders.root.as_deref().is_some_and(|known| known != root) {
            return self.refuse(when, pass, "the scripts of a site are in one folder");
        }
        if let Some(script) = script {
            let script = format!("/{}", script.trim_start_matches('/'));
            self.answer(when, own, &|route| route.set("php", script.clone()));
            return;
        }
        if index != self.folders.index.as_deref() && self.folders.index.is_some() {
            return self.refuse(when, pass, "a site has one name of index files for scripts");
        }
        let folder = self.mark();
        self.site.set_in("alias", &format!("/@unit/{folder}"), root);
        let own_path = match when {
            When::Step(_) => String::new(),
            When::Marked(mark) => format!("/@unit/{mark}"),
        };
        self.add(when, Shape::File, &|route, path| {
            let files = vec![format!("/@unit/{folder}{path}/"), format!("{own_path}{path}")];
            route.set("try_files", files);
        });
        self.redirect_to_folder(folder, own);
        self.answer(when, own, &|route| route.set("php", true));
    }
}
