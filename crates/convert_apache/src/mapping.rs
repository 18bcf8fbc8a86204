//! The folders of the file system behind the paths of a site.

use sendoff_convert_document::expression::{matches, quote};

use super::areas::{Area, Surely, beneath, glob};
use super::folders;

/// A path of the site, and the folder behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) path: String,
    pub(super) folder: String,
}

/// The paths that applications may answer.
#[derive(Debug, Clone)]
pub(super) enum Proxied {
    Paths(Vec<String>),
    /// They are not known.
    Any,
}

/// The folders of a site.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    /// The folder of all other paths.
    pub(super) root: Option<String>,
    pub(super) aliases: Vec<Mapped>,
    /// The paths that applications answer: no folder is behind them.
    pub(super) elsewhere: Vec<String>,
    /// The paths that applications may answer.
    pub(super) proxied: Proxied,
}

impl Mapping {
    /// The paths of a folder that may have stars, and of everything beneath it.
    pub(super) fn directory(&self, pattern: &str) -> Area {
        self.areas(&|folder| under(pattern, folder))
    }

    /// The paths of the folders that an expression matches.
    pub(super) fn directory_matching(&self, expression: &str) -> Area {
        self.areas(&|folder| folders::behind(folder, expression))
    }

    /// The paths in the folder of the site and in its aliases for which a function knows the paths
    /// behind the folder.
    fn areas(&self, inside: &dyn Fn(&str) -> Area) -> Area {
        let mut areas = Vec::new();
        let taken: Vec<Area> = self
            .aliases
            .iter()
            .map(|alias| alias.path.as_str())
            .chain(self.elsewhere.iter().map(String::as_str))
            .map(beneath)
            .collect();
        if taken.iter().any(Area::is_all) {
            return Area::none();
        }
        let folders = self.root.iter().chain(self.aliases.iter().map(|alias| &alias.folder));
        if folders.clone().all(|folder| inside(folder.trim_end_matches('/')).is_all()) {
            let proxied = self.elsewhere.iter().map(|path| format!("(?!{})", beneath(path).may));
            return Area { may: proxied.collect(), surely: Surely::Exact };
        }
        if let Some(root) = &self.root {
            let area = inside(root.trim_end_matches('/'));
            if area != Area::none() {
                let others = outside(&area, taken.iter());
                areas.push(area.and(&others));
            }
        }
        for (number, alias) in self.aliases.iter().enumerate() {
            let area = inside(alias.folder.trim_end_matches('/'));
            if area == Area::none() {
                continue;
            }
            // Earlier aliases and applications have taken their paths.
            let own = beneath(&alias.path);
            let earlier = taken[..number].iter().chain(&taken[self.aliases.len()..]);
            let around = own.and(&outside(&own, earlier));
            areas.push(around.and(&shifted(area, &alias.path)));
        }
        if areas.is_empty() {
            return Area::none();
        }
        Area::either(&areas)
    }

    /// The path of the site that leads to a folder; `None`: it has none, or several.
    pub(super) fn path_of(&self, folder: &str) -> Option<String> {
        let folder = folder.trim_end_matches('/');
        let roots = self.root.iter().map(|root| ("", root.as_str()));
        let aliases = self.aliases.iter().map(|a| (a.path.as_str(), a.folder.as_str()));
        let mut found = roots.chain(aliases).filter_map(|(path, around)| {
            let rest = folder.strip_prefix(around.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{path}{rest}"))
        });
        match (found.next(), found.next()) {
            (Some(path), None) => Some(path),
            _ => None,
        }
    }
}

/// The paths outside of others, of which those count that share paths with an area.
fn outside<'a>(area: &Area, others: impl Iterator<Item = &'a Area>) -> Area {
    let shared = others.filter(|other| area.may_overlap(other));
    let may = shared.map(|other| format!("(?!{})", other.may)).collect();
    Area { may, surely: Surely::Exact }
}

/// An area for paths behind an alias.
fn shifted(area: Area, path: &str) -> Area {
    let path = quote(path.trim_end_matches('/'));
    let moved = |text: String| match text.is_empty() {
        true => text,
        false => format!("(?={path}{text})"),
    };
    Area {
        may: moved(area.may),
        surely: match area.surely {
            Surely::Narrower(text) => Surely::Narrower(moved(text)),
            other => other,
        },
    }
}

/// The paths behind a folder that are in another one, which may have stars.
fn under(pattern: &str, folder: &str) -> Area {
    let mut wanted = pattern.split('/').filter(|part| !part.is_empty());
    for own in folder.split('/').filter(|part| !part.is_empty()) {
        let Some(part) = wanted.next() else { return Area::all() };
        let Some(expression) = glob(part) else { return Area::unknown() };
        if !matches(&format!(r"^{expression}\z"), own) {
            return Area::none();
        }
    }
    let mut rest = String::new();
    for part in wanted {
        let Some(expression) = glob(part) else { return Area::unknown() };
        // A star stands for a name, which is not empty.
        rest.push_str(if part.starts_with('*') { "/(?=[^/])" } else { "/" });
        rest.push_str(&expression);
    }
    match rest.is_empty() {
        true => Area::all(),
        false => Area::exact(&format!(r"{rest}(?:/|\z)")),
    }
}
