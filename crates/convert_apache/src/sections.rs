//! The sections that apply to a site, in the order in which Apache merges them.

use sendoff_convert_document::Directive;

use super::areas::{self, Area};
use super::mapping::{Mapping, Proxied};

/// A section with its paths.
#[derive(Debug, Clone)]
pub(super) struct Part<'d> {
    pub(super) area: Area,
    pub(super) directives: Vec<&'d Directive>,
    pub(super) kind: Kind,
    /// The path of the site that leads to the folder of the section.
    pub(super) folder: Option<String>,
}

/// The kind of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Server,
    /// A folder, with the number of its parts: the longest counts most.
    Directory(usize),
    DirectoryMatch,
    Files,
    Proxy,
    Location,
    /// Its condition is not understood.
    If,
}

/// The sections of the outermost level and of a host, in Apache's order.
pub(super) fn parts<'d>(
    main: &'d [Directive],
    host: Option<&'d [Directive]>,
    mapping: &Mapping,
) -> Vec<Part<'d>> {
    let mut all = Vec::new();
    for block in std::iter::once(main).chain(host) {
        inside(block, &Area::all(), Kind::Server, None, mapping, &mut all);
    }
    // The sort is stable: sections of a kind keep the order of the files.
    all.sort_by_key(|part| part.kind);
    all
}

fn inside<'d>(
    block: &'d [Directive],
    area: &Area,
    kind: Kind,
    folder: Option<String>,
    mapping: &Mapping,
    all: &mut Vec<Part<'d>>,
) {
    let own: Vec<&Directive> =
        block.iter().filter(|one| !is_section(one) && one.name != "<virtualhost").collect();
    if !own.is_empty() {
        let folder = folder.clone();
        all.push(Part { area: area.clone(), directives: own, kind, folder });
    }
    for section in block.iter().filter(|one| is_section(one)) {
        let Some((own, inner, path)) = section_area(section, mapping) else { continue };
        let both = area.and(&own);
        // A section within a folder counts with the files, behind all folders.
        let inner = if kind == Kind::Server { inner } else { inner.max(kind) };
        inside(section.inner(), &both, inner, path.or(folder.clone()), mapping, all);
    }
}

/// True for a section with paths.
pub(super) fn is_section(directive: &Directive) -> bool {
    const NAMES: [&str; 11] = [
        "<directory",
        "<directorymatch",
        "<files",
        "<filesmatch",
        "<location",
        "<locationmatch",
        "<proxy",
        "<proxymatch",
        "<if",
        "<elseif",
        "<else",
    ];
    NAMES.contains(&directive.name.as_str())
}

/// The paths of a section, its kind, and the path that leads to its folder.
fn section_area(section: &Directive, mapping: &Mapping) -> Option<(Area, Kind, Option<String>)> {
    let mut words = section.words.iter().map(String::as_str);
    let first = words.next().unwrap_or_default();
    // With ~ the word behind it is an expression.
    let (is_expression, text) = match first {
        "~" => (true, words.next().unwrap_or_default()),
        text => (false, text),
    };
    let found = match section.name.as_str() {
        "<directory" if !is_expression => {
            let depth = text.split('/').filter(|part| !part.is_empty()).count();
            (mapping.directory(text), Kind::Directory(depth), mapping.path_of(text))
        }
        "<directory" | "<directorymatch" => {
            (mapping.directory_matching(text), Kind::DirectoryMatch, None)
        }
        "<files" if !is_expression => (areas::file(text), Kind::Files, None),
        "<files" | "<filesmatch" => (areas::file_matching(text), Kind::Files, None),
        "<location" if !is_expression => (areas::location(text), Kind::Location, None),
        "<location" | "<locationmatch" => (areas::matching(text), Kind::Location, None),
        "<proxy" | "<proxymatch" => {
            let may = match &mapping.proxied {
                Proxied::Paths(paths) if paths.is_empty() => return None,
                Proxied::Paths(paths) => {
                    let all: Vec<Area> = paths.iter().map(|path| areas::beneath(path)).collect();
                    Area::either(&all)
                }
                Proxied::Any => Area::unknown(),
            };
            let area = match text {
                "*" => may,
                _ => Area { surely: areas::Surely::None, ..may },
            };
            (area, Kind::Proxy, None)
        }
        _ => (Area::unknown(), Kind::If, None),
    };
    Some(found)
}

/// The directives of this name with their sections, in Apache's order.
pub(super) fn named<'p, 'd>(
    parts: &'p [Part<'d>],
    names: &'p [&'p str],
) -> impl Iterator<Item = (&'p Part<'d>, &'d Directive)> {
    parts.iter().flat_map(move |part| {
        let own = part.directives.iter().copied();
        own.filter(move |one| names.contains(&one.name.as_str())).map(move |one| (part, one))
    })
}
