//! The users that a section asks for: `AuthType`, `AuthName`, `AuthBasicProvider`, `AuthUserFile`.
//!
//! Apache merges each of these directives by itself. So the last section of a path with an
//! `AuthUserFile` decides about its users, and another section may have the `Require`.

use sendoff_convert_document::{Directive, Place, Section};

use super::areas::Area;
use super::sections::{Kind, Part};

/// The directives about users.
pub(super) const NAMES: [&str; 4] = ["authtype", "authname", "authbasicprovider", "authuserfile"];

/// The directives that tell the users of some paths, in the order of [`NAMES`].
#[derive(Debug, Clone)]
pub(super) struct Users<'d> {
    directives: [Option<&'d Directive>; NAMES.len()],
    /// A directive of the section, for remarks.
    first: Option<&'d Directive>,
    /// True if sections that overlap make the users of these paths unclear.
    is_unclear: bool,
}

/// Paths within a section whose users are others.
pub(super) struct Zone<'d> {
    pub(super) area: Area,
    pub(super) users: Users<'d>,
}

/// The last directive of a name in a section.
fn last<'d>(part: &Part<'d>, name: &str) -> Option<&'d Directive> {
    part.directives.iter().rfind(|one| one.name == name).copied()
}

impl<'d> Users<'d> {
    /// The users of a section: it inherits from sections with the same paths, or with all.
    pub(super) fn of(part: &Part<'d>, all: &[Part<'d>]) -> Self {
        Self::merged(part, all, |_| false)
    }

    fn merged(part: &Part<'d>, all: &[Part<'d>], is_within: impl Fn(usize) -> bool) -> Self {
        let around: Vec<&Part<'d>> = all
            .iter()
            .enumerate()
            .filter(|(number, other)| {
                other.area == part.area || other.area.is_all() || is_within(*number)
            })
            .map(|(_, other)| other)
            .collect();
        let directives = NAMES.map(|name| around.iter().rev().find_map(|part| last(part, name)));
        Self { directives, first: part.directives.first().copied(), is_unclear: false }
    }

    /// Other sections that change the users of some of these paths.
    pub(super) fn zones(part: &Part<'d>, all: &[Part<'d>]) -> Vec<Zone<'d>> {
        let own = Self::of(part, all);
        let others: Vec<usize> = (0..all.len())
            .filter(|number| {
                let other = &all[*number];
                other.kind != Kind::If
                    && other.area != part.area
                    && !other.area.is_all()
                    && NAMES.iter().any(|name| last(other, name).is_some())
            })
            .collect();
        let mut zones = Vec::new();
        for number in &others {
            let mut users = Self::merged(part, all, |one| one == *number);
            // What this section leaves to another one may differ where both overlap.
            users.is_unclear = others.iter().filter(|one| *one != number).any(|other| {
                NAMES.iter().any(|name| {
                    last(&all[*number], name).is_none()
                        && last(&all[*other], name).is_some()
                        && all[*number].area.may_overlap(&all[*other].area)
                })
            });
            let is_same = users.words() == own.words() && !users.is_unclear;
            if !is_same && part.area.may_overlap(&all[*number].area) {
                zones.push(Zone { area: all[*number].area.clone(), users });
            }
        }
        zones
    }

    /// The place of the section.
    pub(super) fn place(&self) -> Option<&Place> {
        self.first.map(|first| &first.place)
    }

    fn words(&self) -> [Option<&[String]>; NAMES.len()] {
        self.directives.map(|one| one.map(|one| &one.words[..]))
    }

    /// Sets the file of users and the name of the area, or refuses.
    pub(super) fn set(&self, route: &mut Section) {
        let [kind, name, provider, file] = self.directives;
        let provider = provider.map_or("file", Directive::word);
        let kind = kind.map_or("", Directive::word);
        match file.filter(|_| !self.is_unclear) {
            Some(file)
                if provider.eq_ignore_ascii_case("file") && kind.eq_ignore_ascii_case("basic") =>
            {
                route.set_in("auth", "users", file.word());
                if let Some(name) = name {
                    route.set_in("auth", "realm", name.words.join(" ").replace(['"', '\\'], "'"));
                }
            }
            other => {
                if let Some(directive) = other.or(file).or(self.first) {
                    let text = "the file of its users is not known: every request is refused";
                    route.left_out(&directive.place, text);
                }
                route.set("deny", true);
            }
        }
    }
}
