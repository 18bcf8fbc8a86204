//! curl as a client.

use std::process::Command;

/// curl, which reads neither the user's settings nor settings of proxies, and ends after 30 s.
#[must_use]
pub fn curl() -> Command {
    let mut curl = Command::new("curl");
    curl.args(["-q", "--noproxy", "*", "-sS", "--max-time", "30"]);
    curl
}
