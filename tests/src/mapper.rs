//! A process that writes to files through shared mappings whose descriptors are closed: a program
//! in C, because Rust's standard library has no `mmap`.

use crate::Site;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The compiled program.
pub struct Mapper(PathBuf);

impl Mapper {
    /// Compiles it, beside the site.
    ///
    /// # Panics
    /// Without a C compiler.
    pub fn compile(site: &Site) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("helpers/mapper.c");
        let program = site.outside("mapper");
        let compiled = Command::new("cc").arg("-o").arg(&program).arg(source).status();
        assert!(compiled.expect("cc").success());
        Self(program)
    }

    /// Runs it.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) -> Mapping {
        let mut command = Command::new(&self.0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (wishes, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Mapping { child, wishes: Some(wishes), answers: BufReader::new(answers) }
    }
}

/// The running program.
pub struct Mapping {
    child: Child,
    wishes: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Mapping {
    /// Maps a file, fills its first page with this letter, and unmaps it.
    pub fn write_to(&mut self, path: &Path, letter: char) {
        self.ask(&format!("{letter} {}", path.display()));
    }

    /// Maps a file and keeps the mapping.
    pub fn keep(&mut self, path: &Path) {
        self.ask(&format!("+ {}", path.display()));
    }

    /// Fills the first page of the kept mapping.
    pub fn write_to_kept(&mut self, letter: char) {
        self.ask(&letter.to_string());
    }

    fn ask(&mut self, wish: &str) {
        writeln!(self.wishes.as_ref().unwrap(), "{wish}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(["done\n", "cut\n", "empty\n", "gone\n"].contains(&&*answer), "{answer:?}");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The program ends at the end of its input.
        drop(self.wishes.take());
        let _ended = self.child.wait();
    }
}
