//! The directives that hold in a block: its own, and those that it inherits.

use super::tree::Directive;
use sendoff_convert_document::Section;

/// Blocks from the innermost to the outermost.
#[derive(Debug, Clone)]
pub(super) struct Scope<'d> {
    levels: Vec<&'d [Directive]>,
}

impl<'d> Scope<'d> {
    pub(super) fn new(outermost: &'d [Directive]) -> Self {
        Self { levels: vec![outermost] }
    }

    /// The scope of a block inside of this one.
    pub(super) fn inner(&self, block: &'d [Directive]) -> Self {
        let mut levels = vec![block];
        levels.extend(&self.levels);
        Self { levels }
    }

    /// The directives of the innermost block. This takes none of them.
    pub(super) fn block(&self) -> &'d [Directive] {
        self.levels[0]
    }

    /// Takes the directive of this name in the innermost block, which others do not inherit.
    pub(super) fn own(&self, name: &str) -> Option<&'d Directive> {
        let mut found = self.block().iter().filter(|directive| directive.name == name);
        let first = found.next();
        first.into_iter().for_each(Directive::take);
        first
    }

    /// The directive of this name that holds, without taking it.
    pub(super) fn peek(&self, name: &str) -> Option<&'d Directive> {
        self.found(&[name]).pop()
    }

    /// The directives of this name that hold, without taking them.
    pub(super) fn peek_all(&self, name: &str) -> Vec<&'d Directive> {
        self.found(&[name])
    }

    /// Takes the directives of this name in the innermost block that has one. As in nginx, a block
    /// that has one inherits none.
    pub(super) fn all(&self, name: &str) -> Vec<&'d Directive> {
        self.group(&[name])
    }

    /// Takes directives that replace each other as a group, such as `allow` and `deny`, in order.
    pub(super) fn group(&self, names: &[&str]) -> Vec<&'d Directive> {
        // The directives of outer blocks do not hold here.
        for directive in self.levels.iter().copied().flatten() {
            if names.contains(&directive.name.as_str()) {
                directive.take();
            }
        }
        self.found(names)
    }

    /// True if only the outermost block has directives of this name.
    pub(super) fn is_outermost(&self, name: &str) -> bool {
        let (_, inner) = self.levels.split_last().unwrap_or((&self.levels[0], &[]));
        !inner.iter().copied().flatten().any(|directive| directive.name == name)
    }

    /// True if the server has `gzip on`: its block is the second from outside.
    pub(super) fn is_site_compressed(&self) -> bool {
        let around = self.levels.len().saturating_sub(2);
        let server = Self { levels: self.levels[around..].to_vec() };
        server.peek("gzip").is_some_and(|gzip| gzip.word() == "on")
    }

    /// The directives of the outermost block, `http`.
    pub(super) fn outermost(&self) -> &'d [Directive] {
        self.levels.last().copied().unwrap_or_default()
    }

    /// True if `http` has an upstream of this name.
    pub(super) fn has_upstream(&self, name: &str) -> bool {
        self.outermost()
            .iter()
            .any(|directive| directive.name == "upstream" && directive.word() == name)
    }

    /// The scope of the location that a test chooses for a path, among all of a block.
    pub(super) fn found_location(
        &self,
        path: &str,
        is_chosen: impl Fn(&Directive, &[Directive], &str) -> bool,
    ) -> Option<Self> {
        self.levels.iter().enumerate().find_map(|(number, level)| {
            let mut locations = level.iter().filter(|inner| inner.name == "location");
            let found = locations.find(|location| is_chosen(location, level, path))?;
            let around = Self { levels: self.levels[number..].to_vec() };
            Some(around.inner(found.block.as_deref()?))
        })
    }

    /// The first directive, from the innermost block outwards, for which a test holds, without taking
    /// it. A block that has a directive of the same name replaces those around it.
    pub(super) fn holding(&self, test: impl Fn(&Directive) -> bool) -> Option<&'d Directive> {
        let mut seen: Vec<&str> = Vec::new();
        for level in &self.levels {
            if let Some(found) = level.iter().find(|one| !seen.contains(&&*one.name) && test(one)) {
                return Some(found);
            }
            seen.extend(level.iter().map(|one| &*one.name));
        }
        None
    }

    fn found(&self, names: &[&str]) -> Vec<&'d Directive> {
        let of_level = |level: &&'d [Directive]| -> Vec<&'d Directive> {
            level.iter().filter(|directive| names.contains(&directive.name.as_str())).collect()
        };
        self.levels.iter().map(of_level).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Takes the directive of this name that holds.
    pub(super) fn get(&self, name: &str) -> Option<&'d Directive> {
        self.all(name).pop()
    }

    /// Takes the last of the directives that hold together, such as several logs. The section gets
    /// a remark about each of the others.
    pub(super) fn only(&self, name: &str, section: &mut Section) -> Option<&'d Directive> {
        let mut all = self.all(name);
        let last = all.pop();
        for other in all {
            let text = format!("{} has no equal: only one {name} can be expressed", other.text());
            section.left_out(&other.place, text);
        }
        last
    }

    /// Takes the directive of this name that holds; its first word.
    pub(super) fn word(&self, name: &str) -> Option<&'d str> {
        self.get(name).map(Directive::word)
    }

    /// The value of a variable that one `set` defines, and no other one changes.
    pub(super) fn variable(&self, name: &str) -> Option<&'d str> {
        let mut found = Vec::new();
        for level in &self.levels {
            sets(level, name, &mut found);
        }
        match found[..] {
            [value] => Some(value),
            _ => None,
        }
    }
}

/// The values that directives of this block, or of the `if` blocks in it, give to a variable.
fn sets<'d>(block: &'d [Directive], name: &str, found: &mut Vec<&'d str>) {
    for directive in block {
        match (&*directive.name, &directive.block) {
            ("set", _) if directive.word().strip_prefix('$') == Some(name) => {
                found.extend(directive.words.get(1).map(String::as_str));
            }
            ("if", Some(inner)) => sets(inner, name, found),
            _ => {}
        }
    }
}
