//! Flags of rewrite rules and conditions.

use super::substitution::Substitution;
use crate::limits;
use crate::problem::Problem;
use crate::text::{self, lossy};

/// Flags of a rule.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(super) ignore_case: bool,
    pub(super) last: bool,
    pub(super) end: bool,
    pub(super) chained: bool,
    pub(super) next_round: Option<usize>,
    pub(super) skip: usize,
    pub(super) not_in_lookups: bool,
    pub(super) no_escape: bool,
    pub(super) discard_path_info: bool,
    pub(super) append_query: bool,
    pub(super) discard_query: bool,
    pub(super) query_behind_last_mark: bool,
    /// `[R]`: the status of the redirect.
    pub(super) redirect: Option<u16>,
    /// `[F]`, `[G]`, `[R=404]`: the status of the refusal.
    pub(super) status: Option<u16>,
    pub(super) escape_groups: bool,
    pub(super) escaped_bytes: Vec<u8>,
    pub(super) unescaped_bytes: Vec<u8>,
    pub(super) no_plus: bool,
    pub(super) allow_3f: bool,
    pub(super) media_type: Option<Substitution>,
    pub(super) handler: Option<Substitution>,
    pub(super) variables: Vec<EnvVariable>,
    pub(super) cookies: Vec<Substitution>,
    /// `[P]`: refused, because `.htaccess` files cannot use the proxy.
    pub(super) proxy: bool,
}

/// `[E=NAME:TEXT]`, `[E=!NAME]`
#[derive(Debug)]
pub(super) struct EnvVariable(pub(super) Substitution);

/// A flag's name and value.
type Flag = (Vec<u8>, Vec<u8>);

/// The flags between brackets.
pub(super) fn split(text: &[u8]) -> Result<Vec<Flag>, Problem> {
    let inner = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
    let inner = inner.ok_or("flags stand in brackets, without blanks between them")?;
    let flags = inner.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let pair = |flag: &[u8]| match flag.iter().position(|byte| *byte == b'=') {
        Some(at) => (flag[..at].to_vec(), flag[at + 1..].to_vec()),
        None => (flag.to_vec(), Vec::new()),
    };
    Ok(flags.filter(|flag| !flag.is_empty()).map(pair).collect())
}

impl Flags {
    /// Parses the flags of a rule.
    ///
    /// # Errors
    /// Apache does not know a flag, or we do not support it.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Problem> {
        let mut flags = Self::default();
        for (name, value) in split(text)? {
            let name = name.to_ascii_uppercase();
            flags.set(&name, &value)?;
        }
        Ok(flags)
    }

    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Problem> {
        match name {
            b"B" => {
                self.escape_groups = true;
                self.escaped_bytes = value.to_vec();
            }
            b"BCTLS" => {
                self.escape_groups = true;
                self.escaped_bytes = (0..33).chain([127]).collect();
            }
            b"BNE" => self.unescaped_bytes = value.to_vec(),
            b"BNP" => self.no_plus = true,
            b"C" | b"CHAIN" => self.chained = true,
            b"CO" | b"COOKIE" => self.cookies.push(Substitution::parse(value)?),
            b"DPI" | b"DISCARDPATH" => self.discard_path_info = true,
            b"E" | b"ENV" => self.variables.push(EnvVariable(Substitution::parse(value)?)),
            b"END" => self.end = true,
            b"F" | b"FORBIDDEN" => self.status = Some(403),
            b"G" | b"GONE" => self.status = Some(410),
            b"H" | b"HANDLER" => self.handler = Some(Substitution::parse(value)?),
            b"L" | b"LAST" => self.last = true,
            b"N" | b"NEXT" => {
                let rounds = usize::try_from(text::number(value)).unwrap_or(0);
                let rounds = if rounds == 0 { limits::ROUNDS } else { rounds };
                self.next_round = Some(rounds.min(limits::ROUNDS));
            }
            b"NC" | b"NOCASE" => self.ignore_case = true,
            b"NE" | b"NOESCAPE" => self.no_escape = true,
            b"NS" | b"NOSUBREQ" => self.not_in_lookups = true,
            b"P" | b"PROXY" => self.proxy = true,
            // Paths are always passed through in a folder.
            b"PT" | b"PASSTHROUGH" => self.last = true,
            b"QSA" | b"QSAPPEND" => self.append_query = true,
            b"QSD" | b"QSDISCARD" => self.discard_query = true,
            b"QSL" | b"QSLAST" => self.query_behind_last_mark = true,
            b"R" | b"REDIRECT" => self.set_redirect(value)?,
            b"S" | b"SKIP" => self.skip = usize::try_from(text::number(value)).unwrap_or(0),
            b"T" | b"TYPE" => self.media_type = Some(Substitution::parse(value)?),
            b"UNSAFEALLOW3F" => self.allow_3f = true,
            b"UNSAFEPREFIXSTAT" | b"UNC" => {}
            _ => return Err(format!("RewriteRule has no flag {:?}", lossy(name)).into()),
        }
        Ok(())
    }

    fn set_redirect(&mut self, value: &[u8]) -> Result<(), Problem> {
        let status = match value.to_ascii_lowercase().as_slice() {
            b"" | b"temp" => 302,
            b"permanent" => 301,
            b"seeother" => 303,
            digits if digits.iter().all(u8::is_ascii_digit) => {
                u16::try_from(text::number(digits)).unwrap_or(0)
            }
            other => return Err(format!("{:?} is no status of a redirect", lossy(other)).into()),
        };
        if !is_known(status) {
            return Err(format!("{status} is no status that Apache knows").into());
        }
        match status {
            300..=399 => self.redirect = Some(status),
            200..=299 | 400..=599 => self.status = Some(status),
            _ => return Err(format!("{status} is no status of a redirect").into()),
        }
        Ok(())
    }
}

/// True for a status that Apache knows.
pub(crate) fn is_known(status: u16) -> bool {
    matches!(status, 100..=102 | 200..=208 | 226 | 300..=308 | 400..=417 | 421..=426 | 428 | 429 | 431 | 451)
        || matches!(status, 500..=508 | 510 | 511)
}
