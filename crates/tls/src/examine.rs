//! Faults of certificates that can be used nevertheless.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{X509Name, X509Version};

use crate::ocsp::{self, Response};

/// Days of remaining validity below which a certificate is worth a warning.
const SOON: i64 = 7;

const DAY: i64 = 24 * 60 * 60;

/// Contents of a site's own certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The hosts and addresses that the certificate is for, in lower case; `*.` stands for one
    /// label.
    pub names: Vec<String>,
    /// Beginning of its validity, in seconds since 1970.
    pub begins: i64,
    /// End of its validity, in seconds since 1970.
    pub ends: i64,
}

impl Leaf {
    /// Reads a certificate.
    ///
    /// # Errors
    /// A sentence: it cannot be decoded.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = parse(certificate)?;
        let alternative = parsed.subject_alternative_name().ok().flatten();
        let names = alternative.iter().flat_map(|names| &names.value.general_names);
        Ok(Self {
            names: names.filter_map(name).collect(),
            begins: parsed.validity().not_before.timestamp(),
            ends: parsed.validity().not_after.timestamp(),
        })
    }

    /// True if the certificate is for this host, in lower case and without a port, or for all hosts
    /// directly beneath a wildcard. A wildcard stands for exactly one label (RFC 6125 §6.4.3).
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(rest) => host.split_once('.').is_some_and(|(_, of)| of == rest),
            None => name == host,
        })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => match *bytes {
            [a, b, c, d] => Some(IpAddr::from([*a, *b, *c, *d]).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }
}

/// A client's certificate as applications see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject's name, most specific part first (RFC 4514): `CN=ada,O=Example`.
    pub subject: String,
    /// The issuer's name.
    pub issuer: String,
    /// The serial number in hexadecimal digits.
    pub serial: String,
    /// The certificate in PEM.
    pub pem: String,
}

impl ClientCertificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// A sentence: it cannot be decoded.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = parse(certificate)?;
        Ok(Self {
            subject: distinguished_name(parsed.subject()),
            issuer: distinguished_name(parsed.issuer()),
            serial: parsed.raw_serial().iter().map(|byte| format!("{byte:02X}")).collect(),
            pem: pem(certificate),
        })
    }
}

/// Characters that are escaped in a distinguished name (RFC 4514 §2.4).
const ESCAPED: &str = "\"+,;<>\\=";

fn distinguished_name(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for attribute in name.iter().flat_map(|part| part.iter()) {
        let kind = oid2abbrev(attribute.attr_type(), oid_registry())
            .map_or_else(|_| attribute.attr_type().to_id_string(), str::to_owned);
        let value = attribute.as_str().unwrap_or_default();
        let mut part = format!("{kind}=");
        for (at, character) in value.char_indices() {
            let is_edge = at == 0 && matches!(character, ' ' | '#')
                || at + 1 == value.len() && character == ' ';
            if character.is_control() {
                let mut bytes = [0; 4];
                let bytes = character.encode_utf8(&mut bytes).bytes();
                part.extend(bytes.map(|byte| format!("\\{byte:02X}")));
                continue;
            }
            if is_edge || ESCAPED.contains(character) {
                part.push('\\');
            }
            part.push(character);
        }
        parts.push(part);
    }
    parts.reverse();
    parts.join(",")
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = BASE64.encode(certificate);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    let body: String = lines.collect();
    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}

fn parse<'c>(certificate: &'c CertificateDer<'_>) -> Result<X509Certificate<'c>, String> {
    let parsed = X509Certificate::from_der(certificate);
    parsed.map(|(_, parsed)| parsed).map_err(|error| format!("a certificate is broken: {error}"))
}

/// The certificates of a chain.
fn parse_all<'c>(chain: &'c [CertificateDer<'_>]) -> Result<Vec<X509Certificate<'c>>, String> {
    let parsed = chain.iter().enumerate().map(|(number, certificate)| {
        // The parser's error contains the bytes that it could not read.
        parse(certificate).map_err(|_| damaged(number))
    });
    parsed.collect()
}

/// The complaint about the certificate with this index.
fn damaged(number: usize) -> String {
    let number = number + 1;
    format!("certificate {number} of the file is damaged; get the file from its issuer again")
}

/// The complaint about a certificate that cannot be decoded; `None` if it can.
pub(crate) fn damage(number: usize, certificate: &CertificateDer<'_>) -> Option<String> {
    parse(certificate).is_err().then(|| damaged(number))
}

/// The faulty part if a key cannot be used with the certificates of a chain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The chain is wrong, regardless of the key.
    Chain(String),
    /// Key and certificate do not belong together.
    Both(String),
}

/// The reason why a key cannot be used with the first certificate of a chain. `public`: the public
/// half of the key, in DER; `refused`: rustls' reason.
pub(crate) fn misfit(chain: &[CertificateDer<'_>], public: Option<&[u8]>, refused: &str) -> Misfit {
    let parsed = match parse_all(chain) {
        Ok(parsed) => parsed,
        Err(why) => return Misfit::Chain(why),
    };
    let fits = |certificate: &X509Certificate<'_>| Some(certificate.public_key().raw) == public;
    let Some(own) = parsed.iter().position(fits) else {
        return Misfit::Both("the key does not fit the certificate".to_owned());
    };
    if own > 0 && parsed[own].version() == X509Version::V3 {
        return Misfit::Chain(
            "the site's own certificate must be the first in the file".to_owned(),
        );
    }
    let number = own + 1;
    Misfit::Chain(match parsed[own].version() {
        X509Version::V3 => {
            format!(
                "certificate {number} of the file cannot be used ({refused}); have another one issued"
            )
        }
        X509Version(version) => format!(
            "certificate {number} of the file is of X.509 version {}, which browsers refuse; have one of version 3 issued, with the names of the site as subjectAltName",
            version + 1
        ),
    })
}

/// Accepted sizes of RSA keys, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The reason why every key for this certificate is unusable: its type, or its size. `None` if the
/// certificate does not tell.
pub(crate) fn unusable_key(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = parse(certificate).ok()?;
    let taken = format!(
        "RSA of {} to {} bits, ECDSA with P-256, P-384 or P-521, and Ed25519 are taken",
        RSA_BITS.start(),
        RSA_BITS.end()
    );
    let key = parsed.public_key().parsed().ok()?;
    match key {
        PublicKey::RSA(_) if RSA_BITS.contains(&key.key_size()) => None,
        PublicKey::RSA(_) if key.key_size() < *RSA_BITS.start() => {
            Some(format!("the key is too small: RSA of {} bits; {taken}", key.key_size()))
        }
        PublicKey::RSA(_) => {
            Some(format!("the key is too large: RSA of {} bits; {taken}", key.key_size()))
        }
        PublicKey::DSA(_) => Some(format!("the key is one of DSA; {taken}")),
        _ => Some(format!("the key is of a kind that is not known here; {taken}")),
    }
}

/// Describes a fault of a stapled OCSP response that clients can use nevertheless.
///
/// # Errors
/// A sentence: clients would refuse the connection because of the response.
pub(crate) fn stapled(
    bytes: &[u8],
    certificate: &CertificateDer<'_>,
) -> Result<Option<String>, String> {
    let remedy = "`openssl ocsp -respout FILE` writes one";
    let Some(response) = ocsp::read(bytes) else {
        let what = match bytes {
            [] => "the file is empty",
            bytes if bytes.starts_with(b"-----BEGIN") => "this is PEM",
            _ => "this is something else",
        };
        return Err(format!(
            "expected a response of an OCSP responder in DER, and {what}; {remedy}"
        ));
    };
    let answers = match response {
        Response::Refused(why) => {
            return Ok(Some(format!("the OCSP responder has refused to answer: {why}")));
        }
        Response::Answers(answers) => answers,
    };
    let own = parse(certificate)?;
    let Some(answer) = answers.iter().find(|answer| answer.serial == own.raw_serial()) else {
        return Err("this OCSP response is about another certificate".to_owned());
    };
    let now = ASN1Time::now().timestamp();
    Ok(match answer.ends {
        _ if !answer.is_good => {
            Some("the OCSP response says that the certificate is revoked or unknown".to_owned())
        }
        Some(ends) if ends < now => {
            Some(format!("the OCSP response has expired {}", days(now - ends, "ago")))
        }
        _ => None,
    })
}

/// Lists faults that clients will complain about: dates, names, and a chain that does not lead to a
/// root. `hosts`: the hosts that the site answers for, `*.example.org` for wildcards.
///
/// # Errors
/// A sentence: a certificate cannot be decoded.
pub fn warnings(chain: &[CertificateDer<'_>], hosts: &[String]) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    let Some(first) = chain.first() else { return Ok(warnings) };
    let parsed = parse_all(chain)?;
    let leaf = Leaf::read(first)?;
    let now = ASN1Time::now().timestamp();
    if leaf.ends < now {
        warnings.push(format!("the certificate has expired {}", days(now - leaf.ends, "ago")));
    } else if leaf.ends - now < SOON * DAY {
        let left = days(leaf.ends - now, "from now");
        warnings.push(format!("the certificate expires {left}"));
    }
    if leaf.begins > now {
        let later = days(leaf.begins - now, "from now");
        warnings.push(format!("the certificate is not valid yet: it begins {later}"));
    }
    let missing: Vec<_> = hosts.iter().filter(|host| !leaf.covers(host)).cloned().collect();
    if !missing.is_empty() {
        let names =
            if leaf.names.is_empty() { "no host".to_owned() } else { leaf.names.join(", ") };
        warnings.push(format!("the certificate is for {names}, not for {}", missing.join(", ")));
    }
    for (number, pair) in parsed.windows(2).enumerate() {
        if pair[0].issuer() != pair[1].subject() {
            warnings.push(format!(
                "the chain is broken: certificate {} was issued by \"{}\", but \"{}\" follows",
                number + 1,
                pair[0].issuer(),
                pair[1].subject()
            ));
        }
    }
    if let [only] = &*parsed
        && only.issuer() != only.subject()
    {
        warnings.push(format!(
            "the chain is incomplete: the certificate of its issuer \"{}\" is missing, and many clients need it (use the file that is often called fullchain.pem)",
            only.issuer()
        ));
    }
    Ok(warnings)
}

fn days(seconds: i64, direction: &str) -> String {
    match seconds / DAY {
        0 => format!("{} hours {direction}", seconds / 3600),
        1 => format!("1 day {direction}"),
        days => format!("{days} days {direction}"),
    }
}
