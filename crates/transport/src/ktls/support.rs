//! Detection of the kernel's TLS.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::time::Duration;

use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};
use sendoff_sys::ktls::{self, CryptoInfo};

use super::keys::Keys;

/// Time limit for the connection to itself, in case the machine drops its own packets.
const CONNECTS_WITHIN: Duration = Duration::from_secs(1);

static IS_THERE: LazyLock<bool> = LazyLock::new(|| match look() {
    Ok(()) => true,
    Err(error) => {
        tracing::debug!(%error, "the kernel has no TLS; the server encrypts");
        false
    }
});

/// True if the kernel encrypts with all algorithms that rustls may agree on with a client. (After a
/// handshake it would be too late: rustls could no longer go on with the connection itself.) Checks
/// once, with connections to itself. For a process of root the kernel loads its module.
pub fn kernel_has_tls() -> bool {
    *IS_THERE
}

fn look() -> io::Result<()> {
    let algorithms: [fn(AeadKey, Iv) -> ConnectionTrafficSecrets; 2] = [
        |key, iv| ConnectionTrafficSecrets::Aes256Gcm { key, iv },
        |key, iv| ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
    ];
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    for version in [ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3] {
        for secrets in algorithms {
            let client = TcpStream::connect_timeout(&listener.local_addr()?, CONNECTS_WITHIN)?;
            ktls::attach(client.as_fd())?;
            let secrets = secrets(AeadKey::from([0; 32]), Iv::from([0; 12]));
            let keys = Keys::new(version, &secrets, 0).ok_or(io::ErrorKind::Unsupported)?;
            ktls::encrypt(client.as_fd(), CryptoInfo::new(keys.info()))?;
            // Nothing is sent on the connection, in case another process is the listener.
            listener.accept()?;
        }
    }
    Ok(())
}
