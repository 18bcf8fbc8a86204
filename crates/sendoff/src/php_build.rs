//! The builds of the PHP programs on this machine, found in their files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sendoff_config::{FileVersion, PhpBuild};

/// Bytes of a program that are in memory at a time. PHP has 5 MB; memory for all of it costs more
/// time than the search.
const PIECE: u64 = 64 << 10;
/// Longer than the mark of a build, which two pieces may share.
const LONGEST_MARK: usize = 64;
/// Programs whose builds are remembered. The lookup of a version asks for the same two or three
/// files once for each version of PHP and for each name of a folder.
const REMEMBERED: usize = 16;

/// The build of a program; `None`: it is no PHP program. `version` is the version of its file.
pub(crate) fn of(path: &Path, version: FileVersion) -> io::Result<Option<PhpBuild>> {
    static FOUND: Mutex<Vec<(FileVersion, Option<PhpBuild>)>> = Mutex::new(Vec::new());
    let found = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, build)) = found().iter().find(|(known, _)| *known == version) {
        return Ok(*build);
    }
    let build = search(File::open(path)?)?;
    let mut found = found();
    if found.len() == REMEMBERED {
        found.remove(0);
    }
    found.push((version, build));
    Ok(build)
}

fn search(mut program: impl Read) -> io::Result<Option<PhpBuild>> {
    let mut bytes = Vec::new();
    loop {
        let read = program.by_ref().take(PIECE).read_to_end(&mut bytes)?;
        let build = PhpBuild::find(&bytes);
        if build.is_some() || read == 0 {
            return Ok(build);
        }
        // The mark may begin here.
        bytes.drain(..bytes.len().saturating_sub(LONGEST_MARK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_wherever_pieces_end() {
        let mark = b"API20220829,NTS\0";
        let piece = usize::try_from(PIECE).unwrap();
        for at in (piece - 20..piece + 4).chain([0, 3 * piece]) {
            let program = [&vec![b'A'; at][..], mark, &[1; 100]].concat();
            assert_eq!(search(&program[..]).unwrap(), PhpBuild::find(mark), "{at}");
        }
        assert_eq!(search(&[0; 200_000][..]).unwrap(), None);
        assert!(PhpBuild::find(mark).is_some());
    }
}
