//! What packages contain beside the programs: manual pages and completions, from the declarations of the options.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::options::{Generate, Options};

/// Writes the manual pages and the completions to a folder.
///
/// # Errors
/// The folder cannot be written to.
pub(crate) fn run(generate: &Generate) -> Result<(), Failure> {
    let folder = &generate.folder;
    write(folder).map_err(Failure::input(folder.display()))
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let command = Options::command().name("sendoff");
    clap_mangen::generate_to(command.clone(), folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command.clone(), "sendoff", folder)?;
    }
    Ok(())
}
