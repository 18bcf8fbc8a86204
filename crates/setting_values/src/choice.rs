//! Values with a fixed list of words.

use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::read::{FileReader, Item, Scope, Wrong, similar};
use crate::rules::FieldName;
use crate::value::{Value, Word};

/// Declares an enum that is written as one of a few words.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])+
        $name:ident $kind:literal {
            $($(#[doc = $variant_doc:literal])+ $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $variant_doc])+ $variant,)+
        }

        impl Word for $name {
            const KIND: &'static str = $kind;
            const CHOICES: &'static [&'static str] = &[$($text),+];

            fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(not_among(text, Self::CHOICES)),
                }
            }

            fn text(&self) -> String {
                match self {
                    $(Self::$variant => $text.to_owned(),)+
                }
            }
        }
    };
}

/// Declares an enum that is written as true, false or one word.
macro_rules! switch {
    (
        $(#[doc = $doc:literal])+
        $name:ident {
            $(#[doc = $off_doc:literal])+ $off:ident = false,
            $(#[doc = $word_doc:literal])+ $word:ident = $text:literal,
            $(#[doc = $on_doc:literal])+ $on:ident = true,
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $off_doc])+ $off,
            $(#[doc = $word_doc])+ $word,
            $(#[doc = $on_doc])+ $on,
        }

        impl Value for $name {
            fn kind() -> String {
                concat!("true, false or \"", $text, "\"").to_owned()
            }

            fn read(item: Item<'_>, reader: &mut FileReader<'_>) -> Option<Self> {
                match item.value {
                    DeValue::Boolean(true) => Some(Self::$on),
                    DeValue::Boolean(false) => Some(Self::$off),
                    DeValue::String(text) if text == $text => Some(Self::$word),
                    _ => {
                        reader.expected(item, &<Self as Value>::kind());
                        None
                    }
                }
            }

            fn toml(&self) -> Option<Toml> {
                Some(match self {
                    Self::$off => Toml::Boolean(false),
                    Self::$word => Toml::String($text.to_owned()),
                    Self::$on => Toml::Boolean(true),
                })
            }

            fn schema() -> Json {
                json!({"enum": [true, false, $text]})
            }
        }
    };
}

/// Converts a choice into the enum of the resolved configuration, whose variants have the same
/// names.
macro_rules! resolved {
    ($name:ident { $($variant:ident),+ }) => {
        impl From<$name> for sendoff_config::$name {
            fn from(choice: $name) -> Self {
                match choice {
                    $($name::$variant => Self::$variant,)+
                }
            }
        }
    };
}

/// The mistake of a word that is not among the choices.
fn not_among(text: &str, choices: &[&str]) -> Wrong {
    let wrong = Wrong::new(format!("\"{text}\" is none of {}", choices.join(", ")));
    match similar(text, choices.iter().copied()) {
        Some(choice) => wrong.help(format!("did you mean \"{choice}\"?")),
        None => wrong,
    }
}

choice! {
    /// The allowed targets of symbolic links.
    Symlinks "\"inside\", \"owner\" or \"any\"" {
        /// Only the root and the folders that are named.
        Inside = "inside",
        /// Also files that belong to the owner of the link.
        Owner = "owner",
        /// Every file.
        Any = "any",
    }
}

choice! {
    /// The demand for client certificates.
    ClientCertificates "\"required\" or \"optional\"" {
        /// Clients without a certificate are refused.
        Required = "required",
        /// Clients without a certificate are served.
        Optional = "optional",
    }
}

choice! {
    /// A version of TLS.
    TlsVersion "\"1.2\" or \"1.3\"" {
        /// RFC 5246.
        Tls12 = "1.2",
        /// RFC 8446.
        Tls13 = "1.3",
    }
}

resolved!(TlsVersion { Tls12, Tls13 });

choice! {
    /// The way of responses out of the workers.
    Delivery "\"auto\", \"direct\", \"file\", \"region\" or \"relay\"" {
        /// The cheapest way for each response.
        Auto = "auto",
        /// As `auto`, and workers write every large response to the client themselves.
        Direct = "direct",
        /// Files are handed over, other bytes pass through the link.
        File = "file",
        /// Files are handed over, other bytes lie in memory shared with the workers.
        Region = "region",
        /// Every byte passes through the link.
        Relay = "relay",
    }
}

choice! {
    /// The protection of a file against changes until it is sent.
    Snapshot "\"lease\" or \"copy\"" {
        /// A read lease on the file.
        Lease = "lease",
        /// A copy.
        Copy = "copy",
    }
}

/// The request field in which trusted proxies name the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyField {
    /// `X-Forwarded-For`, and the fields that go with it.
    XForwardedFor,
    /// The addresses in `X-Forwarded-For` alone.
    AddressesAlone,
    /// The last address in `X-Forwarded-For` alone.
    LastAddressAlone,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// No field: only the header of the PROXY protocol names clients.
    None,
    /// A field whose value is one address.
    Single(FieldName),
}

impl Word for ProxyField {
    const KIND: &'static str = "\"X-Forwarded-For\", \"X-Forwarded-For alone\", \"X-Forwarded-For last\", \"Forwarded\", \"none\" or a field with one address such as \"CF-Connecting-IP\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        match text {
            _ if text.eq_ignore_ascii_case("X-Forwarded-For") => Ok(Self::XForwardedFor),
            _ if text.eq_ignore_ascii_case("X-Forwarded-For alone") => Ok(Self::AddressesAlone),
            _ if text.eq_ignore_ascii_case("X-Forwarded-For last") => Ok(Self::LastAddressAlone),
            "none" => Ok(Self::None),
            _ if text.eq_ignore_ascii_case("Forwarded") => Ok(Self::Forwarded),
            _ => FieldName::parse(text, scope).map(Self::Single),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::XForwardedFor => "X-Forwarded-For".to_owned(),
            Self::AddressesAlone => "X-Forwarded-For alone".to_owned(),
            Self::LastAddressAlone => "X-Forwarded-For last".to_owned(),
            Self::Forwarded => "Forwarded".to_owned(),
            Self::None => "none".to_owned(),
            Self::Single(name) => name.text(),
        }
    }
}

choice! {
    /// An application whose rules are known.
    App "\"dokuwiki\", \"drupal\", \"laravel\", \"matomo\", \"mediawiki\", \"moodle\", \"nextcloud\", \"phpmyadmin\", \"roundcube\", \"symfony\" or \"wordpress\"" {
        /// DokuWiki.
        Dokuwiki = "dokuwiki",
        /// Drupal.
        Drupal = "drupal",
        /// Laravel.
        Laravel = "laravel",
        /// Matomo.
        Matomo = "matomo",
        /// MediaWiki.
        Mediawiki = "mediawiki",
        /// Moodle.
        Moodle = "moodle",
        /// Nextcloud.
        Nextcloud = "nextcloud",
        /// phpMyAdmin.
        Phpmyadmin = "phpmyadmin",
        /// Roundcube.
        Roundcube = "roundcube",
        /// Symfony.
        Symfony = "symfony",
        /// WordPress.
        Wordpress = "wordpress",
    }
}

choice! {
    /// A content coding.
    Coding "\"zstd\", \"br\" or \"gzip\"" {
        /// Zstandard.
        Zstd = "zstd",
        /// Brotli.
        Brotli = "br",
        /// gzip.
        Gzip = "gzip",
    }
}

switch! {
    /// The responses that are compressed.
    Compress {
        /// None.
        Off = false,
        /// Static files.
        Static = "static",
        /// Static files and the responses of scripts and applications.
        All = true,
    }
}

switch! {
    /// The use of `.htaccess` files.
    Htaccess {
        /// The files are ignored.
        Off = false,
        /// The files decide for paths on which one lies.
        Auto = "auto",
        /// The files decide everything, as in Apache.
        On = true,
    }
}

resolved!(Coding { Zstd, Brotli, Gzip });
resolved!(Compress { Off, Static, All });
resolved!(Symlinks { Inside, Owner, Any });
resolved!(Delivery { Auto, Direct, File, Region, Relay });
resolved!(Snapshot { Lease, Copy });
