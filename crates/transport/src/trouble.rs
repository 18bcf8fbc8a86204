//! Handshake errors as sentences for the log.

use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible,
};

/// Describes a failed handshake: completes "no TLS handshake: ...". Errors that clients do not
/// cause in practice keep rustls' wording.
pub(super) fn sentence(error: &Error) -> String {
    let says = match error {
        Error::PeerIncompatible(why) => return incompatible(why),
        Error::InvalidMessage(why) => return broken(*why),
        Error::InvalidCertificate(why) => return certificate(why),
        Error::AlertReceived(alert) => return refused(*alert),
        Error::NoCertificatesPresented => {
            "the client shows no certificate, and the site requires one (client_certificates)"
        }
        Error::NoApplicationProtocol => {
            "the client speaks none of the protocols that are offered, HTTP/1.1 and HTTP/2 (ALPN)"
        }
        Error::DecryptError => "what the client sends cannot be decrypted",
        Error::PeerSentOversizedRecord => {
            "the client sends a record that is larger than TLS allows"
        }
        Error::UnsupportedNameType => "the client names the host in an unknown way (SNI)",
        Error::PeerMisbehaved(why) => {
            return format!("the client breaks the rules of TLS: {why:?}");
        }
        Error::InappropriateMessage { got_type, .. } => {
            return format!("the client sends what does not belong here: {got_type:?}");
        }
        Error::InappropriateHandshakeMessage { got_type, .. } => {
            return format!("the client sends what does not belong here: {got_type:?}");
        }
        other => return other.to_string(),
    };
    says.to_owned()
}

fn incompatible(why: &PeerIncompatible) -> String {
    let says = match why {
        PeerIncompatible::SupportedVersionsExtensionRequired => {
            "the client speaks TLS 1.2 at most, and the site wants 1.3 (oldest)"
        }
        PeerIncompatible::Tls12NotOffered | PeerIncompatible::Tls12NotOfferedOrEnabled => {
            "the client speaks neither TLS 1.2 nor 1.3; older versions are not spoken here"
        }
        PeerIncompatible::NoCipherSuitesInCommon => {
            "the client knows no cipher suite that is safe and fits the key of the certificate"
        }
        PeerIncompatible::NoKxGroupsInCommon
        | PeerIncompatible::NamedGroupsExtensionRequired
        | PeerIncompatible::KeyShareExtensionRequired => {
            "the client knows no key exchange that is spoken here (X25519, P-256, P-384)"
        }
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::SignatureAlgorithmsExtensionRequired => {
            "the client knows no signature that the key of the certificate can make"
        }
        PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => {
            "the client's certificate has a key whose signatures are not taken here"
        }
        PeerIncompatible::NullCompressionRequired => {
            "the client insists on compression by TLS, which is not safe"
        }
        PeerIncompatible::EcPointsExtensionRequired
        | PeerIncompatible::NoEcPointFormatsInCommon
        | PeerIncompatible::UncompressedEcPointsRequired => {
            "the client does not take points of elliptic curves as they are sent here"
        }
        PeerIncompatible::ExtendedMasterSecretExtensionRequired => {
            "the client does not know extended master secrets (RFC 7627)"
        }
        other => return format!("the client and the server do not agree: {other:?}"),
    };
    says.to_owned()
}

fn broken(why: InvalidMessage) -> String {
    let says = match why {
        InvalidMessage::InvalidContentType
        | InvalidMessage::UnknownProtocolVersion
        | InvalidMessage::InvalidEmptyPayload
        | InvalidMessage::MessageTooLarge => "what the client sends is not TLS",
        InvalidMessage::InvalidServerName => {
            "the client asks for a host whose name is not one of DNS (SNI)"
        }
        InvalidMessage::HandshakePayloadTooLarge | InvalidMessage::CertificatePayloadTooLarge => {
            "the client sends more in its handshake than is taken: 64 KiB"
        }
        other => return format!("the client sends a broken message: {other:?}"),
    };
    says.to_owned()
}

/// True if the certificate's version is unsupported. rustls has no public type for this error, so
/// its debug name is compared.
fn is_of_version_1(error: &OtherError) -> bool {
    format!("{error:?}").contains("UnsupportedCertVersion")
}

fn certificate(why: &CertificateError) -> String {
    let says = match why {
        CertificateError::Other(other) if is_of_version_1(other) => {
            "the client's certificate is of X.509 version 1, as `openssl x509 -req` makes them without extensions: version 3 is needed"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the client's certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the client's certificate is not valid yet"
        }
        CertificateError::UnknownIssuer => {
            "none of the issuers in client_issuers has signed the client's certificate, or an intermediate certificate is missing"
        }
        CertificateError::BadSignature => "the signature of the client's certificate is wrong",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the client's certificate is not one for clients (extendedKeyUsage without clientAuth)"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            "the client's certificate is signed in a way that is not taken here"
        }
        CertificateError::Revoked => "the client's certificate has been revoked",
        other => return format!("the client's certificate is not taken: {other}"),
    };
    says.to_owned()
}

fn refused(alert: AlertDescription) -> String {
    let says = match alert {
        AlertDescription::UnknownCA => {
            "the client does not know the issuer of the certificate: its authority is not a public one, or the chain lacks an intermediate certificate"
        }
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "the client does not take the certificate: its host or issuer is not one that the client expects"
        }
        AlertDescription::CertificateExpired => "the client finds that the certificate has expired",
        AlertDescription::CertificateRevoked => {
            "the client finds that the certificate has been revoked"
        }
        AlertDescription::UnsupportedCertificate => {
            "the client does not take certificates of this kind"
        }
        AlertDescription::ProtocolVersion => "the client does not speak TLS of this version",
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "the client does not take what the server offers"
        }
        AlertDescription::UserCanceled | AlertDescription::CloseNotify => "the client has given up",
        other => return format!("the client refuses with the alert {other:?}"),
    };
    says.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_cause_is_said_without_names_of_the_library() {
        for (error, expected) in [
            (
                PeerIncompatible::SupportedVersionsExtensionRequired.into(),
                "the client speaks TLS 1.2 at most, and the site wants 1.3 (oldest)",
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateExpired),
                "the client finds that the certificate has expired",
            ),
            (InvalidMessage::InvalidContentType.into(), "what the client sends is not TLS"),
            (CertificateError::Expired.into(), "the client's certificate has expired"),
        ] {
            let error: Error = error;
            assert_eq!(sentence(&error), expected);
        }
    }
}
