//! `sendoff-php`: starts libphp once and keeps workers forked from it. `sendoff serve` runs it.

mod embed;

use std::process::ExitCode;

fn main() -> ExitCode {
    sendoff_php::run(embed::start)
}
