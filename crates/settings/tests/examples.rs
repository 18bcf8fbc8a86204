//! Every configuration in the documents passes `check` without an error or a warning, on a machine
//! that has all its folders.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sendoff_config::Account;
use sendoff_settings::{Chosen, FileKind, Machine, expand, load, resolve};

const CONFIG: &str = "/etc/sendoff/sendoff.toml";

/// A machine on which every file and folder exists.
struct Complete {
    config: String,
}

impl Machine for Complete {
    fn read(&self, path: &Path) -> io::Result<String> {
        Ok(match path {
            path if path == Path::new(CONFIG) => self.config.clone(),
            path if path.extension().is_some_and(|ending| ending == "toml") => String::new(),
            _ => "ada:$2y$05$zG6GKXi4lRaCysT0o/VgZOkfK.r.fpi96s..rGbo2uC.jAuaVdt3u\n".to_owned(),
        })
    }

    fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        Ok(vec![pattern.to_str().unwrap().replace('*', "a").into()])
    }

    fn kind(&self, path: &Path) -> io::Result<FileKind> {
        match path.extension() {
            Some(ending) if ending == "php" || ending == "pem" => Ok(FileKind::File),
            _ => Ok(FileKind::Folder),
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn account(&self, _: Option<&str>, _: &Path) -> Result<Chosen, String> {
        Ok(Chosen { account: Some(Account { uid: 33, gid: 33 }), warning: None })
    }

    fn user(&self, _: &str) -> Option<u32> {
        Some(33)
    }

    fn group(&self, _: &str) -> Option<u32> {
        Some(33)
    }

    fn may_run(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn worker_group(&self, _: &str) -> Result<u32, String> {
        Ok(33)
    }

    fn may_append(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![[192, 0, 2, 1].into()])
    }

    fn has_ipv6(&self) -> bool {
        true
    }

    fn state_folder(&self) -> PathBuf {
        "/var/lib/sendoff".into()
    }

    fn cache_folder(&self) -> PathBuf {
        "/var/cache/sendoff".into()
    }

    fn cores(&self) -> usize {
        2
    }

    fn memory(&self) -> u64 {
        8 << 30
    }
}

/// The blocks of a page, with its lines.
fn configurations(page: &str) -> Vec<String> {
    let blocks = page.split("\n```toml\n").skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap().to_owned() + "\n").collect()
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
            let machine = Complete { config };
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
