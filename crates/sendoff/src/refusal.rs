//! Errors in the command line: one sentence with the error and a correction.

use std::error::Error as _;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::options::Options;

/// Options of other servers and tools, and the equivalents here.
const OPTIONS: [(&str, &str); 15] = [
    ("--port", "--listen PORT"),
    ("-p", "--listen PORT"),
    ("--bind", "--listen ADDRESS"),
    ("--address", "--listen ADDRESS"),
    ("-l", "--listen ADDRESS"),
    ("-v", "--version"),
    ("--root", "the folder without an option: sendoff serve FOLDER"),
    ("--docroot", "the folder without an option: sendoff serve FOLDER"),
    ("-t", "sendoff check"),
    ("--config", "sendoff run --config FILE"),
    ("-c", "sendoff run --config FILE"),
    ("--cert", "--tls-cert FILE"),
    ("--key", "--tls-key FILE"),
    ("--daemon", "a service manager such as systemd: sendoff stays in the foreground"),
    ("-d", "a service manager such as systemd: sendoff stays in the foreground"),
];

/// Commands of other servers and tools, and the equivalents here.
const COMMANDS: [(&str, &str); 6] = [
    ("start", "sendoff serve FOLDER or sendoff run"),
    ("restart", "sendoff upgrade or sendoff reload"),
    ("test", "sendoff check"),
    ("quit", "sendoff stop"),
    ("rotate", "sendoff reopen"),
    ("version", "sendoff --version"),
];

/// Ends the program because of an invalid command line or a request for help.
pub(crate) fn refuse(error: &clap::Error) -> ! {
    let Some(sentence) = sentence(error) else { error.exit() };
    crate::log::say(&sentence);
    std::process::exit(error.exit_code())
}

/// One sentence about the error in the command line; `None` for help, which the parser writes
/// itself.
pub(crate) fn sentence(error: &clap::Error) -> Option<String> {
    let help = help(error);
    match error.kind() {
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => bad_value(error),
        ErrorKind::UnknownArgument => {
            let given = text(error, ContextKind::InvalidArg)?;
            if !given.starts_with('-') {
                return Some(format!(
                    "{given}: one argument too many: {help} shows how it is used"
                ));
            }
            let meant = known(&OPTIONS, &given).or_else(|| text(error, ContextKind::SuggestedArg));
            Some(format!("there is no option {given} here: {}", instead(meant, &help)))
        }
        ErrorKind::InvalidSubcommand => {
            let given = text(error, ContextKind::InvalidSubcommand)?;
            let folder = given.contains(['/', '.']).then(|| format!("sendoff serve {given}"));
            let meant = known(&COMMANDS, &given).or(folder).or_else(|| suggested_command(error));
            Some(format!("there is no command {given}: {}", instead(meant, &help)))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = text(error, ContextKind::InvalidArg)?;
            let why = match missing.split(' ').next() {
                Some("--tls-key") => "--tls-cert needs the file with its private key",
                Some("--tls-cert") => "--tls-key needs the file with its certificate",
                _ => return Some(format!("{missing} is missing: {help} shows how it is used")),
            };
            Some(format!("{missing} is missing: {why}; --tls alone makes a certificate"))
        }
        ErrorKind::ArgumentConflict => {
            let (one, other) =
                (text(error, ContextKind::InvalidArg)?, text(error, ContextKind::PriorArg)?);
            Some(if one == other {
                format!("{one} is given twice: leave one out")
            } else {
                format!("{one} and {other} exclude each other: leave one out")
            })
        }
        _ => None,
    }
}

/// The command with the most similar name, except hidden commands, which only the server itself
/// uses.
fn suggested_command(error: &clap::Error) -> Option<String> {
    let suggested = match error.get(ContextKind::SuggestedSubcommand)? {
        ContextValue::String(name) => std::slice::from_ref(name),
        ContextValue::Strings(names) => names,
        _ => return None,
    };
    let commands = Options::command();
    let is_for_people =
        |name: &&String| commands.find_subcommand(name).is_some_and(|one| !one.is_hide_set());
    suggested.iter().find(is_for_people).cloned()
}

/// The sentence about an invalid value of an option.
fn bad_value(error: &clap::Error) -> Option<String> {
    // The parser names the option as "--workers <N|auto>".
    let option = text(error, ContextKind::InvalidArg)?;
    let value = text(error, ContextKind::InvalidValue)?;
    let name = option.split(' ').next()?;
    let why = match error.kind() {
        _ if value.is_empty() => {
            return Some(format!("{name} : a value is missing: write {option}"));
        }
        ErrorKind::ValueValidation => error.source()?.to_string(),
        _ => format!("expected one of {}", text(error, ContextKind::ValidValue)?),
    };
    Some(format!("{name} {value}: {why}"))
}

fn known(names: &[(&str, &str)], given: &str) -> Option<String> {
    let found = names.iter().find(|(name, _)| *name == given)?;
    Some(found.1.to_owned())
}

/// The advice after an error.
fn instead(meant: Option<String>, help: &str) -> String {
    match meant {
        Some(meant) => format!("did you mean {meant}? {help} lists all"),
        None => format!("{help} lists all"),
    }
}

/// The command that prints help on the present command.
fn help(error: &clap::Error) -> String {
    // "Usage: sendoff serve [OPTIONS] [ROOT]"
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let mut words = usage.split_whitespace().skip_while(|word| *word != "sendoff").skip(1);
    match words.next() {
        Some(command) if command.bytes().all(|byte| byte.is_ascii_lowercase()) => {
            format!("`sendoff {command} --help`")
        }
        _ => "`sendoff --help`".to_owned(),
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn what_is_not_understood_costs_one_sentence_with_a_remedy() {
        for (line, expected) in [
            (
                "serve --wrokers 3",
                "there is no option --wrokers here: did you mean --workers? `sendoff serve --help` lists all",
            ),
            (
                "serve --port 80",
                "there is no option --port here: did you mean --listen PORT? `sendoff serve --help` lists all",
            ),
            (
                "-v",
                "there is no option -v here: did you mean --version? `sendoff --help` lists all",
            ),
            ("serve --zzz", "there is no option --zzz here: `sendoff serve --help` lists all"),
            ("serv", "there is no command serv: did you mean serve? `sendoff --help` lists all"),
            (
                "start",
                "there is no command start: did you mean sendoff serve FOLDER or sendoff run? `sendoff --help` lists all",
            ),
            (
                "/srv/www",
                "there is no command /srv/www: did you mean sendoff serve /srv/www? `sendoff --help` lists all",
            ),
            ("frobnicate", "there is no command frobnicate: `sendoff --help` lists all"),
            ("serve a b", "b: one argument too many: `sendoff serve --help` shows how it is used"),
            ("explain", "<URL> is missing: `sendoff explain --help` shows how it is used"),
            (
                "serve --tls-cert a",
                "--tls-key <FILE> is missing: --tls-cert needs the file with its private key; --tls alone makes a certificate",
            ),
            ("serve --listen", "--listen : a value is missing: write --listen <ADDR>"),
            ("status --json --watch", "--json and --watch exclude each other: leave one out"),
            ("serve --user a --user b", "--user <USER> is given twice: leave one out"),
        ] {
            let arguments = std::iter::once("sendoff").chain(line.split(' '));
            let error = Options::try_parse_from(arguments).expect_err(line);
            let said = sentence(&error);
            assert_eq!(said.as_deref(), Some(expected), "{line}: {error}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        for line in ["--help", "serve --help", "--version", "help"] {
            let arguments = std::iter::once("sendoff").chain(line.split(' '));
            let error = Options::try_parse_from(arguments).expect_err(line);
            assert_eq!(sentence(&error), None, "{line}");
        }
    }

    #[test]
    fn a_bad_value_is_named_with_its_option() {
        for bad in [
            ["--workers", "0"],
            ["--workers", "1025"],
            ["--workers", "many"],
            ["--threads", "0"],
            ["--threads", "64"],
            ["--listen", "nowhere"],
            ["--idle-timeout", "0"],
            ["--idle-timeout", "5 parsecs"],
            ["--max-body", "64MB"],
            ["--delivery", "pigeon"],
            ["--snapshot", ""],
            ["--fastcgi", "php=unix:/x"],
            ["--fastcgi", ".=unix:/x"],
            ["--fastcgi", ".php=9000"],
            ["--fastcgi", "/app"],
            ["--accel", "files=/x"],
        ] {
            let line = ["sendoff", "serve"].iter().chain(&bad);
            let Err(error) = Options::try_parse_from(line) else { panic!("{bad:?}") };
            let sentence = sentence(&error).unwrap();
            let start = format!("{} {}: ", bad[0], bad[1]);
            assert!(sentence.starts_with(&start) && !sentence.contains('\n'), "{sentence}");
        }
    }
}
