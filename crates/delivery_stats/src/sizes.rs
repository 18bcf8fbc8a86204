//! Predicts how many bytes a script generates per response.

use std::cell::RefCell;
use std::collections::HashMap;

use sendoff_site_files::router::Script;

/// Maximum number of remembered scripts; one more script clears the table.
const MAX_SCRIPTS: usize = 1024;

/// A moving average of generated body bytes per script, weight 1/4.
#[derive(Debug, Default)]
pub struct Sizes {
    scripts: RefCell<HashMap<Vec<u8>, u64>>,
}

impl Sizes {
    /// The probable size of the script's next response, in bytes.
    pub fn of(&self, script: &Script) -> u64 {
        self.scripts.borrow().get(&script.filename).copied().unwrap_or(0)
    }

    /// Notes the generated body bytes of a response; bytes of files do not count.
    pub fn note(&self, script: &Script, size: u64) {
        let mut scripts = self.scripts.borrow_mut();
        if let Some(known) = scripts.get_mut(&script.filename) {
            *known = *known / 4 * 3 + size / 4;
        } else {
            if scripts.len() == MAX_SCRIPTS {
                // One response per script is enough to learn it again.
                scripts.clear();
            }
            scripts.insert(script.filename.clone(), size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_site_files::router::Upstream;

    fn script(name: String) -> Script {
        let filename = name.into_bytes();
        Script { filename, name: vec![], path_info: vec![], upstream: Upstream::Workers(0) }
    }

    #[test]
    fn a_script_is_known_by_its_last_responses_and_few_are_remembered() {
        let (sizes, page) = (Sizes::default(), script("/page.php".to_owned()));
        assert_eq!(sizes.of(&page), 0);
        sizes.note(&page, 1 << 20);
        assert_eq!(sizes.of(&page), 1 << 20);
        let mut small = 0;
        while sizes.of(&page) >= 1 << 17 {
            sizes.note(&page, 100);
            small += 1;
        }
        assert!((3..20).contains(&small), "{small}");
        sizes.note(&page, u64::MAX);
        sizes.note(&page, u64::MAX);
        for number in 0..3 * MAX_SCRIPTS {
            sizes.note(&script(number.to_string()), 1);
        }
        assert!(sizes.scripts.borrow().len() <= MAX_SCRIPTS && sizes.of(&page) == 0);
    }
}
