//! How a site compresses responses.

use serde::{Deserialize, Serialize};

/// How a site compresses responses for clients that accept it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compression {
    /// Which responses; routes may say otherwise.
    pub of: Compress,
    /// The codings that may be used; of those that a client accepts equally, the first is chosen.
    pub codings: Vec<Coding>,
    /// Media types without parameters; `text/*` stands for all of text, `*/*+json` for all that end so.
    pub types: Vec<String>,
    /// Shorter bodies are not compressed, in bytes.
    pub min_length: u64,
    /// Whether responses to requests that another site has caused, and that carry credentials, are compressed under TLS, too.
    pub cross_site: bool,
}

/// Which responses are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compress {
    /// None.
    Off,
    /// Static files.
    Static,
    /// Those of scripts and applications, too.
    All,
}

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Coding {
    /// RFC 8878.
    Zstd,
    /// RFC 7932.
    Brotli,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// All codings, ordered by the bytes that they save per CPU time.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// Its name in `Accept-Encoding` and `Content-Encoding`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// What the name of a compressed file has at its end.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Self::Zstd => ".zst",
            Self::Brotli => ".br",
            Self::Gzip => ".gz",
        }
    }
}

impl Compression {
    /// Media types that compress well and are not compressed already.
    pub const TYPES: [&str; 19] = [
        "text/*",
        "*/*+json",
        "*/*+xml",
        "application/javascript",
        "application/json",
        "application/toml",
        "application/vnd.ms-fontobject",
        "application/wasm",
        "application/x-javascript",
        "application/xml",
        "application/yaml",
        "font/otf",
        "font/ttf",
        "font/collection",
        "application/x-font-ttf",
        "image/bmp",
        "image/vnd.microsoft.icon",
        "image/x-ms-bmp",
        "image/x-icon",
    ];

    /// Bodies shorter than this gain little: head and body fit into one packet anyway.
    pub const MIN_LENGTH: u64 = 1024;
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            of: Compress::Off,
            codings: Coding::ALL.to_vec(),
            types: Self::TYPES.map(str::to_owned).to_vec(),
            min_length: Self::MIN_LENGTH,
            cross_site: false,
        }
    }
}
