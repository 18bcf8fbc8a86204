//! The directives that hold in a block: its own, and those that it inherits.

use super::tree::Directive;

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

    /// The directives of the innermost block.
    pub(super) fn own(&self) -> &'d [Directive] {
        self.levels[0]
    }

    /// The directives of this name in the innermost block that has one. As in nginx, a block that
    /// has one inherits none.
    pub(super) fn all(&self, name: &str) -> Vec<&'d Directive> {
        let of_level = |level: &&'d [Directive]| -> Vec<&'d Directive> {
            level.iter().filter(|directive| directive.name == name).collect()
        };
        self.levels.iter().map(of_level).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Directives that replace each other as a group, such as `allow` and `deny`, in order.
    pub(super) fn group(&self, names: &[&str]) -> Vec<&'d Directive> {
        let of_level = |level: &&'d [Directive]| -> Vec<&'d Directive> {
            level.iter().filter(|directive| names.contains(&directive.name.as_str())).collect()
        };
        self.levels.iter().map(of_level).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The directive of this name that holds.
    pub(super) fn get(&self, name: &str) -> Option<&'d Directive> {
        self.all(name).pop()
    }

    /// The first word of the directive of this name that holds.
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
