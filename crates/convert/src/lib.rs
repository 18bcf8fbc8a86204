//! Reads the configuration of another server and writes one for Sendoff.
//!
//! ```text
//!   nginx.conf ─────▶ convert_nginx ──▶ Document ──▶ sendoff.toml
//!   Unit's JSON ────▶ convert_unit ───▶
//!   Caddyfile ──────▶ convert_caddy ──▶
//!   Apache's sites ─▶ convert_apache ─▶
//! ```
//!
//! The result has a comment at each directive that has no equal. An access rule that cannot be
//! expressed becomes a route that refuses. The crate reads files only through [`Files`].
#![forbid(unsafe_code)]

use std::path::Path;

pub use sendoff_convert_document::{Conversion, Files, Part, Place, Unreadable};

/// The server that a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Apache's HTTP server.
    Apache,
    /// Caddy, by a Caddyfile.
    Caddy,
    /// nginx.
    Nginx,
    /// NGINX Unit.
    Unit,
}

impl Origin {
    /// The server whose configuration has this name and this text.
    #[must_use]
    pub fn of(path: &Path, text: &str) -> Self {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending {
            Some("json") => return Self::Unit,
            Some("caddy" | "caddyfile") => return Self::Caddy,
            _ if name.starts_with("Caddyfile") => return Self::Caddy,
            _ => {}
        }
        if let Some(rest) = text.strip_prefix('{') {
            let rest = rest.trim_start();
            // A Caddyfile may begin with a block of global options.
            return match rest.is_empty() || rest.starts_with(['"', '}', '/']) {
                true => Self::Unit,
                false => Self::Caddy,
            };
        }
        Self::of_lines(text)
    }

    /// The server whose configuration has lines of this form.
    fn of_lines(text: &str) -> Self {
        const SECTIONS: [&str; 8] = [
            "<virtualhost",
            "<directory",
            "<location",
            "<files",
            "<if",
            "<proxy",
            "<limit",
            "<macro",
        ];
        const OF_APACHE: [&str; 10] = [
            "alias",
            "define",
            "documentroot",
            "includeoptional",
            "listen",
            "loadmodule",
            "proxypass",
            "redirect",
            "servername",
            "serverroot",
        ];
        let lines = || {
            let lines = text.lines().map(str::trim);
            lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
        };
        for line in lines() {
            let lower = line.to_ascii_lowercase();
            if SECTIONS.iter().any(|section| lower.starts_with(section)) {
                return Self::Apache;
            }
            if line.ends_with(';') || line.ends_with("; }") {
                return Self::Nginx;
            }
        }
        let first = lines().next().unwrap_or_default();
        let word = first.split_whitespace().next().unwrap_or_default();
        let has_blocks = lines().any(|line| line.ends_with('{'));
        match () {
            () if OF_APACHE.contains(&word.to_ascii_lowercase().as_str()) => Self::Apache,
            () if word == "server" || word == "http" => Self::Nginx,
            () if has_blocks || word.contains([':', '.', ',']) || word == "localhost" => {
                Self::Caddy
            }
            () => Self::Nginx,
        }
    }
}

/// Converts the configuration in `path`, and the files that it includes. Without an origin, the
/// name and the text of the file tell which server it is for.
///
/// # Errors
/// A file cannot be read, or is not what its server would accept.
pub fn convert(
    path: &Path,
    files: &dyn Files,
    from: Option<Origin>,
) -> Result<Conversion, Unreadable> {
    let found = || Origin::of(path, &files.read(path).unwrap_or_default());
    match from.unwrap_or_else(found) {
        Origin::Apache => sendoff_convert_apache::convert(path, files),
        Origin::Caddy => sendoff_convert_caddy::convert(path, files),
        Origin::Nginx => sendoff_convert_nginx::convert(path, files),
        Origin::Unit => sendoff_convert_unit::convert(path, files),
    }
}
