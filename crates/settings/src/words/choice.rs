//! Values of which there are few.

use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use crate::read::{Item, Reader, Scope, Wrong, similar};
use crate::value::{Value, Word};

/// Declares an enum that is written as one of a few words, and what it is in the resolved configuration.
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

/// What a choice is in the resolved configuration, where its variants have the same names.
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

/// A word that is not among the choices.
fn not_among(text: &str, choices: &[&str]) -> Wrong {
    let wrong = Wrong::new(format!("\"{text}\" is none of {}", choices.join(", ")));
    match similar(text, choices.iter().copied()) {
        Some(choice) => wrong.help(format!("did you mean \"{choice}\"?")),
        None => wrong,
    }
}

choice! {
    /// Where symbolic links may lead.
    Symlinks "\"inside\", \"owner\" or \"any\"" {
        /// Nowhere outside.
        Inside = "inside",
        /// To what belongs to the owner of the link.
        Owner = "owner",
        /// Anywhere.
        Any = "any",
    }
}

choice! {
    /// Whether clients must show a certificate.
    ClientCertificates "\"required\" or \"optional\"" {
        /// Those without are refused.
        Required = "required",
        /// Those without are served.
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
    /// How responses leave the workers.
    Delivery "\"auto\", \"direct\", \"file\", \"region\" or \"relay\"" {
        /// Whatever is cheapest.
        Auto = "auto",
        /// As auto, and workers write every large response to the client themselves.
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
    /// What keeps a file as the script read it until it is sent.
    Snapshot "\"lease\" or \"copy\"" {
        /// A read lease on the file.
        Lease = "lease",
        /// A copy.
        Copy = "copy",
    }
}

choice! {
    /// The request field in which trusted proxies name the client.
    ProxyField "\"X-Forwarded-For\" or \"Forwarded\"" {
        /// `X-Forwarded-For`, and the fields that go with it.
        XForwardedFor = "X-Forwarded-For",
        /// `Forwarded` (RFC 7239).
        Forwarded = "Forwarded",
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

/// Which responses are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compress {
    /// None.
    Off,
    /// Static files.
    Static,
    /// Those of scripts and applications, too.
    All,
}

impl Value for Compress {
    fn kind() -> String {
        "true, false or \"static\"".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match item.value {
            DeValue::Boolean(true) => Some(Self::All),
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::String(text) if text == "static" => Some(Self::Static),
            _ => {
                reader.expected(item, &<Self as Value>::kind());
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        Some(match self {
            Self::Off => Toml::Boolean(false),
            Self::Static => Toml::String("static".to_owned()),
            Self::All => Toml::Boolean(true),
        })
    }

    fn schema() -> Json {
        json!({"enum": [true, false, "static"]})
    }
}

/// Whether `.htaccess` files are obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Htaccess {
    /// No.
    Off,
    /// Where one lies.
    Auto,
    /// They answer for everything, as in Apache.
    On,
}

impl Value for Htaccess {
    fn kind() -> String {
        "true, false or \"auto\"".to_owned()
    }

    fn read(item: Item<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match item.value {
            DeValue::Boolean(true) => Some(Self::On),
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::String(text) if text == "auto" => Some(Self::Auto),
            _ => {
                reader.expected(item, &<Self as Value>::kind());
                None
            }
        }
    }

    fn toml(&self) -> Option<Toml> {
        Some(match self {
            Self::Off => Toml::Boolean(false),
            Self::Auto => Toml::String("auto".to_owned()),
            Self::On => Toml::Boolean(true),
        })
    }

    fn schema() -> Json {
        json!({"enum": [true, false, "auto"]})
    }
}

resolved!(Coding { Zstd, Brotli, Gzip });
resolved!(Compress { Off, Static, All });
resolved!(Symlinks { Inside, Owner, Any });
resolved!(Delivery { Auto, Direct, File, Region, Relay });
resolved!(Snapshot { Lease, Copy });
