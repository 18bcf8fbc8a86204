//! The routes of a site while they are made.

use super::application::Program;
use super::conditions::{Conditions, Shape};
use super::json::Node;
use super::matching::Around;
use sendoff_convert_document::Section;

/// The most routes of a site: far more than people write.
const MAX_ROUTES: usize = 5000;

/// The requests that reach an action.
#[derive(Debug, Clone)]
pub(super) enum When {
    /// The requests of a step.
    Step(Vec<Conditions>),
    /// Requests that an earlier route has given the path `/@unit/NUMBER` in front of their own.
    Marked(usize),
}

/// The keys of a site that its actions ask for.
#[derive(Debug, Default, Clone)]
pub(super) struct Folders {
    /// The folder of PHP scripts; otherwise of the first files.
    pub(super) root: Option<String>,
    /// The name of index files.
    pub(super) index: Option<String>,
    /// The application of PHP, by name.
    pub(super) php: Option<String>,
}

/// The routes of one site.
pub(super) struct Builder<'b> {
    pub(super) config: &'b Node<'b>,
    pub(super) around: Around<'b>,
    pub(super) folders: Folders,
    /// The folders that files were asked from, in order.
    pub(super) shares: Vec<(String, String)>,
    /// The first application of PHP: its name, its folder and its index.
    pub(super) php: Option<(String, Option<String>, Option<String>)>,
    pub(super) site: Section,
    pub(super) routes: Vec<Section>,
    pub(super) programs: Vec<Program>,
    pub(super) marks: usize,
    /// The number of steps that were converted, again for each way that leads to them.
    pub(super) steps: usize,
    /// The lists of routes that are being converted, from the outermost.
    pub(super) open: Vec<String>,
}

impl<'b> Builder<'b> {
    pub(super) fn new(config: &'b Node<'b>, around: Around<'b>, folders: Folders) -> Self {
        Self {
            config,
            around,
            folders,
            shares: Vec::new(),
            php: None,
            site: Section::new("site"),
            routes: Vec::new(),
            programs: Vec::new(),
            marks: 0,
            steps: 0,
            open: Vec::new(),
        }
    }

    /// True if the site has too many routes. Some are missing then, so there must be no result.
    pub(super) fn is_too_large(&self) -> bool {
        self.steps > MAX_ROUTES || self.routes.len() > MAX_ROUTES
    }

    /// True if paths below `/@unit` are used.
    pub(super) fn has_marks(&self) -> bool {
        self.marks > 0
    }

    pub(super) fn mark(&mut self) -> usize {
        self.marks += 1;
        self.marks
    }

    /// Adds a route for each list of conditions. The function gets the variable of the path.
    pub(super) fn add(&mut self, when: &When, shape: Shape, fill: &dyn Fn(&mut Section, &str)) {
        if self.is_too_large() {
            return;
        }
        match when {
            When::Step(alternatives) => {
                for conditions in alternatives {
                    let mut route = Section::new("site.route");
                    conditions.set(shape, &mut route);
                    let path = if shape == Shape::Folder { "$1" } else { "$path" };
                    fill(&mut route, path);
                    self.routes.push(route);
                }
            }
            When::Marked(number) => {
                let mut route = Section::new("site.route");
                let behind = match shape {
                    Shape::Any | Shape::Unmarked => "(/.*)",
                    Shape::Folder => "((?:/.*)?/)",
                    Shape::File => "(/.*[^/])",
                };
                route.set("match", format!(r"(?s)^/@unit/{number}{behind}\z"));
                fill(&mut route, "$1");
                self.routes.push(route);
            }
        }
    }

    /// Adds the routes that answer with an action. `own` completes each of them.
    pub(super) fn answer(&mut self, when: &When, own: &Section, fill: &dyn Fn(&mut Section)) {
        let is_marked = matches!(when, When::Marked(_));
        self.add(when, Shape::Any, &|route, path| {
            if is_marked {
                route.set("rewrite", path);
            }
            route.absorb(own.clone());
            fill(route);
        });
    }

    pub(super) fn refuse(&mut self, when: &When, node: &Node<'_>, why: &str) {
        let text = format!("{} has no equal: {why}; the request is refused", node.shown());
        self.refuse_at(when, &node.place, &text);
    }

    pub(super) fn refuse_at(
        &mut self,
        when: &When,
        place: &sendoff_convert_document::Place,
        text: &str,
    ) {
        self.add(when, Shape::Any, &|route, _| {
            route.left_out(place, text);
            error(403, route);
        });
    }
}

/// Answers with Unit's page for an error. (`deny` would also hold for scripts that other paths lead
/// to, while Unit chooses a step once.)
pub(super) fn error(code: i64, route: &mut Section) {
    let page = format!("<!DOCTYPE html><title>Error {code}</title><p>Error {code}.");
    route.set("respond", page);
    route.set("content_type", "text/html");
    route.set("status", code);
}
