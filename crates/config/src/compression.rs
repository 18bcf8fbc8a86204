//! Compression of a site's responses.

use serde::{Deserialize, Serialize};

/// Compression of a site's responses for clients that accept it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compression {
    /// The responses to compress; routes may override it.
    pub of: Compress,
    /// The codings that may be used. Among codings that a client accepts equally, the first in this
    /// list is chosen.
    pub codings: Vec<Coding>,
    /// Media types without parameters; `text/*` stands for all of text, `*/*+json` for all types
    /// that end in `+json`.
    pub types: Vec<String>,
    /// Length in bytes from which bodies are compressed.
    pub min_length: u64,
    /// Compresses also responses over TLS to requests that carry credentials and were caused by
    /// another site.
    pub cross_site: bool,
}

/// The responses that are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compress {
    /// None.
    Off,
    /// Static files.
    Static,
    /// Static files and the responses of scripts and applications.
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

    /// The ending of a compressed file's name.
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
