//! Every configuration in the documents passes `check` without an error or a warning, on a machine
//! that has all its folders.

use std::path::Path;

use crate::complete::Complete;
use sendoff_settings::{expand, load, resolve};

const CONFIG: &str = "/etc/sendoff/sendoff.toml";

/// The blocks of a page, with its lines. A block that begins with a section of a site belongs into
/// a site.
fn configurations(page: &str) -> Vec<String> {
    let blocks =
        page.split("\n```toml\n").skip(1).map(|block| block.split("\n```").next().unwrap());
    let whole = |block: &str| {
        let site = if block.contains("[[site]]") { "" } else { "[[site]]\nroot = '/srv/site'\n" };
        let is_part = block.trim_start_matches('[').starts_with("site.");
        format!("{}{block}\n", if is_part { site } else { "" })
    };
    blocks.map(whole).collect()
}

#[test]
fn configurations_in_the_documents_are_fine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut pages: Vec<_> = folder.read_dir().unwrap().map(|page| page.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|ending| ending == "md"));
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for config in configurations(&text) {
            count += 1;
            let machine = Complete(|path: &Path| match path.extension() {
                _ if path == Path::new(CONFIG) => config.clone(),
                Some(ending) if ending == "toml" => String::new(),
                _ => {
                    "ada:$2y$05$zG6GKXi4lRaCysT0o/VgZOkfK.r.fpi96s..rGbo2uC.jAuaVdt3u\n".to_owned()
                }
            });
            let mut loaded = load(Path::new(CONFIG), &machine);
            expand(&mut loaded.top, &mut loaded.sources, &mut loaded.problems);
            let resolved = resolve(&loaded.top, &loaded.sources, &machine, &mut loaded.problems);
            if resolved.is_none() || !loaded.problems.0.is_empty() {
                let report = loaded.problems.report(&loaded.sources, false);
                wrong.push(format!("{}:\n{report}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 10, "{count} configurations");
}
