//! Handshakes that end without a connection.

use std::fmt;
use std::io;

use rustls::CertificateError;

/// Why a handshake has made no connection.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client has left, or its socket is broken.
    Io(io::Error),
    /// The client and the server do not agree, or what the client sends is no TLS.
    Tls(rustls::Error),
    /// The client speaks HTTP in the clear.
    Plain,
    /// The client is an authority, which has checked a name: it needs no more than the handshake (RFC 8737 §3).
    Authority,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) if is_of_version_1(error) => f.write_str(
                "the client's certificate is of X.509 version 1, as `openssl x509 -req` makes them without extensions: version 3 is needed",
            ),
            Self::Tls(error) => error.fmt(f),
            Self::Plain => f.write_str("the client speaks HTTP in the clear"),
            Self::Authority => f.write_str("an authority has checked a name"),
        }
    }
}

/// The library has a name for this and no type that it shows.
fn is_of_version_1(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    format!("{other:?}").contains("UnsupportedCertVersion")
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
