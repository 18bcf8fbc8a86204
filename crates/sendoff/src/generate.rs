//! Generates the manual pages and the completions of packages from the declarations of the options
//! and of the settings keys.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::failure::{EXIT_STATUSES, Failure};
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
    let command = for_people(&Options::command().name("sendoff"));
    pages(&command, "sendoff", folder)?;
    fs::write(folder.join("sendoff.toml.5"), sendoff_settings::manual())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command.clone(), "sendoff", folder)?;
    }
    Ok(())
}

/// The command without its hidden options and subcommands, which only the server itself uses.
/// (Completions would offer hidden ones.)
fn for_people(command: &Command) -> Command {
    let mut shown = Command::new(kept(command.get_name()));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(kept(version));
    }
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.args(arguments.cloned()).subcommands(commands.map(for_people))
}

/// A name with the static lifetime that the parser of options requires. The leak is harmless: the
/// process ends when the files are written.
fn kept(name: &str) -> &'static str {
    name.to_owned().leak()
}

/// Writes the pages of a command and of its subcommands.
fn pages(command: &Command, name: &str, folder: &Path) -> io::Result<()> {
    let named = command.clone().name(kept(name)).bin_name(kept(&name.replace('-', " ")));
    let mut page = Vec::new();
    Man::new(named).render(&mut page)?;
    common().to_writer(&mut page)?;
    fs::write(folder.join(format!("{name}.1")), page)?;
    for command in command.get_subcommands() {
        pages(command, &format!("{name}-{}", command.get_name()), folder)?;
    }
    Ok(())
}

/// The section at the end of every page.
fn common() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in EXIT_STATUSES {
        page.control("TP", []).text([bold(status.to_string())]).text([roman(meaning)]);
    }
    page.control("PP", []);
    page.text([roman("With any status but 0 a sentence on standard error says why.")]);
    page.control("SH", ["FILES"]).control("TP", []);
    page.text([bold("/etc/sendoff/sendoff.toml")]).text([roman("the configuration")]);
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("sendoff"), roman("(1), "), bold("sendoff.toml"), roman("(5)")]);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generated() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        folder
    }

    #[test]
    fn pages_say_what_exit_statuses_mean_as_the_document_does() {
        let folder = generated();
        let page = fs::read_to_string(folder.path().join("sendoff-run.1")).unwrap();
        assert!(page.contains(".SH \"EXIT STATUS\"") && page.contains("sendoff run"), "{page}");
        let document = include_str!("../../../docs/operate.md");
        for (status, meaning) in EXIT_STATUSES {
            assert!(page.contains(&format!("\\fB{status}\\fR\n{meaning}\n")), "{page}");
            assert!(document.contains(&format!("| {status} | {meaning} |")), "{status}");
        }
    }

    #[test]
    fn the_page_about_the_configuration_has_every_key() {
        let folder = generated();
        let page = fs::read_to_string(folder.path().join("sendoff.toml.5")).unwrap();
        for expected in
            [".TH sendoff.toml 5", ".SH NAME", "max_connections", "slow_after", "php_ini"]
        {
            assert!(page.contains(&expected.replace('-', "\\-")), "{expected}: {page}");
        }
    }

    #[test]
    fn completions_offer_nothing_that_the_server_uses_itself() {
        let folder = generated();
        for file in ["sendoff.bash", "_sendoff", "sendoff.fish"] {
            let text = fs::read_to_string(folder.path().join(file)).unwrap();
            let text = text.replace("generated", "");
            for hidden in ["take-over-fd", "config-fd", "generate", "supervisor-fd"] {
                assert!(!text.contains(hidden), "{file} has {hidden}");
            }
            assert!(text.contains("reload") && text.contains("print-config"), "{file}");
        }
        let files = fs::read_dir(folder.path()).unwrap();
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name == "sendoff-front.1"), "{names:?}");
        assert!(names.iter().any(|name| name == "sendoff-status.1"), "{names:?}");
    }
}
