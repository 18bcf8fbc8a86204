//! An interpreter with our extension under valgrind.

use std::fs;
use std::path::Path;
use std::process::Command;

use sendoff_tests::dies_with_us;

/// Words of valgrind's reports about lost memory, which are ignored: interpreters lose memory at
/// their end, and a call from an extension may have allocated it.
const LOSSES: [&str; 2] = ["are possibly lost", "are still reachable"];

/// The begin of a command under valgrind, which writes a file for each process.
pub fn command(folder: &Path) -> Command {
    let mut command = dies_with_us(Path::new("valgrind"), "KILL");
    command.args(["-q", "--leak-check=full", "--num-callers=60"]);
    command.arg(format!("--log-file={}/valgrind.%p", folder.display()));
    command
}

/// The reports of valgrind in `folder` with the extension `module` in their stack.
pub fn findings(folder: &Path, module: &str) -> Vec<String> {
    let reports = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let reports = reports.filter(|path| path.to_string_lossy().contains("/valgrind."));
    let texts: Vec<String> = reports.map(|path| fs::read_to_string(path).unwrap()).collect();
    // One of each process: the master and its workers.
    assert!(texts.len() >= 2, "{} processes", texts.len());
    texts.iter().flat_map(|text| about(text, module)).collect()
}

/// The paragraphs of a file that are about the extension.
fn about(text: &str, module: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.splitn(3, "==").nth(2).unwrap_or_default().trim());
    let lines: Vec<&str> = lines.collect();
    let paragraphs = lines.split(|line| line.is_empty()).map(|lines| lines.join("\n"));
    paragraphs
        .filter(|paragraph| paragraph.contains(module))
        .filter(|paragraph| !LOSSES.iter().any(|loss| paragraph.contains(loss)))
        .collect()
}

#[test]
fn a_report_about_the_extension_is_found() {
    let text = "==7== Invalid read of size 1\n==7==    at 0x1: copy (in /a/_sendoff.abi3.so)\n==7== \n\
                ==7== 8 bytes in 1 blocks are definitely lost in loss record 1 of 2\n\
                ==7==    at 0x2: malloc\n==7==    by 0x3: PyThread_allocate_lock (in python3)\n==7== \n";
    let found = about(text, "/_sendoff.");
    assert_eq!(found, ["Invalid read of size 1\nat 0x1: copy (in /a/_sendoff.abi3.so)"]);
}
