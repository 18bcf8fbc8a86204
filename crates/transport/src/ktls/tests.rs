//! Records of rustls' client, in memory. `lent.rs` tests sockets that the kernel encrypts.

mod lent;

use std::io::Write;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::crypto::aws_lc_rs;
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType,
    ProtocolVersion, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
};

use super::handshake::{Handshake, HandshakeStep};
use super::inbound::{Inbound, Received};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// A server, and a client that trusts it.
fn configs(version: &'static SupportedProtocolVersion) -> (Arc<ServerConfig>, ClientConnection) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain = vec![made.cert.der().clone()];
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    server.enable_secret_extraction = true;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    let name = ServerName::try_from("localhost").unwrap();
    (Arc::new(server), ClientConnection::new(Arc::new(client), name).unwrap())
}

/// A client, and the receiving direction of its server after the handshake. `ahead`: bytes that the
/// client sends right after the end of the handshake.
fn pair(version: &'static SupportedProtocolVersion, ahead: &[u8]) -> (ClientConnection, Inbound) {
    let (server, mut client) = configs(version);
    client.writer().write_all(ahead).unwrap();
    let mut server = Handshake::new(server, BytesMut::new()).unwrap();
    loop {
        server.incoming.extend_from_slice(&sent(&mut client));
        let quiet = loop {
            match server.step().unwrap() {
                HandshakeStep::Again | HandshakeStep::Send => {}
                HandshakeStep::Read => break false,
                HandshakeStep::Quiet => break true,
            }
        };
        client.read_tls(&mut &*std::mem::take(&mut server.outgoing)).unwrap();
        client.process_new_packets().unwrap();
        if quiet && !server.connection.is_handshaking() && !client.wants_write() {
            break;
        }
    }
    let Handshake { connection, incoming, plain, .. } = server;
    let (secrets, kernel) = connection.dangerous_into_kernel_connection().unwrap();
    (client, Inbound::new(kernel, secrets.rx, incoming, plain).unwrap())
}

/// Takes the records that wait in the client.
fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut records).unwrap();
    }
    records
}

fn says(client: &mut ClientConnection, text: &[u8]) -> Vec<u8> {
    client.writer().write_all(text).unwrap();
    sent(client)
}

/// Passes bytes of the socket to the receiver and decrypts a record.
fn give(inbound: &mut Inbound, bytes: &[u8]) -> Result<Received, AlertDescription> {
    inbound.room().extend_from_slice(bytes);
    inbound.plain.clear();
    inbound.decrypt()
}

/// Encrypts records of any type.
struct Crafting(Box<dyn MessageEncrypter>, u64);

impl Crafting {
    fn new(client: ClientConnection) -> Self {
        let Some(SupportedCipherSuite::Tls13(suite)) = client.negotiated_cipher_suite() else {
            panic!("TLS 1.3 only")
        };
        let (next, secrets) = client.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
            panic!("another algorithm")
        };
        Self(suite.aead_alg.encrypter(key, iv), next)
    }

    fn record(&mut self, typ: ContentType, bytes: &[u8]) -> Vec<u8> {
        let (version, payload) = (ProtocolVersion::TLSv1_2, OutboundChunks::Single(bytes));
        let made = self.0.encrypt(OutboundPlainMessage { typ, version, payload }, self.1).unwrap();
        self.1 += 1;
        made.encode()
    }
}

#[test]
fn bytes_come_out_as_they_were_sent_whatever_the_pieces() {
    for version in VERSIONS {
        let (mut client, mut inbound) = pair(version, b"");
        let records = says(&mut client, b"one");
        for byte in &records[..records.len() - 1] {
            assert_eq!(give(&mut inbound, &[*byte]), Ok(Received::Incomplete));
            assert!(!inbound.has_record() && inbound.has_bytes());
        }
        assert_eq!(give(&mut inbound, &records[records.len() - 1..]), Ok(Received::Taken));
        assert_eq!(&inbound.plain[..], b"one");
        // Several records at once, the largest among them.
        let large = vec![7; 1 << 14];
        let records = [says(&mut client, b"two"), says(&mut client, &large)].concat();
        assert_eq!(give(&mut inbound, &records), Ok(Received::Taken));
        assert_eq!(&inbound.plain[..], b"two");
        assert!(inbound.has_record());
        assert_eq!(inbound.decrypt(), Ok(Received::Taken));
        assert_eq!(&inbound.plain[..], &large);
        assert_eq!(inbound.decrypt(), Ok(Received::Incomplete));
    }
}

/// With TLS 1.3 requests come in one packet with the end of the handshake.
#[test]
fn what_was_sent_ahead_is_not_lost() {
    for version in VERSIONS {
        let (mut client, mut inbound) = pair(version, b"ahead");
        let mut all = inbound.plain.split().to_vec();
        while inbound.decrypt() == Ok(Received::Taken) {
            all.extend_from_slice(&inbound.plain.split());
        }
        assert_eq!(all, b"ahead");
        assert_eq!(give(&mut inbound, &says(&mut client, b"later")), Ok(Received::Taken));
        assert_eq!(&inbound.plain[..], b"later");
    }
}

#[test]
fn clients_may_change_their_keys() {
    let (mut client, mut inbound) = pair(&TLS13, b"");
    for _ in 0..3 {
        client.refresh_traffic_keys().unwrap();
        let records = says(&mut client, b"by other keys");
        assert_eq!(give(&mut inbound, &records), Ok(Received::WantsNewKeys));
        assert_eq!(inbound.decrypt(), Ok(Received::Taken));
        assert_eq!(&inbound.plain[..], b"by other keys");
    }
    let (client, mut inbound) = pair(&TLS13, b"");
    let record = Crafting::new(client).record(ContentType::Handshake, &[24, 0, 0, 1, 0]);
    assert_eq!(give(&mut inbound, &record), Ok(Received::Taken));
    assert!(inbound.plain.is_empty());
}

#[test]
fn the_end_is_told_from_a_broken_connection() {
    for version in VERSIONS {
        let (mut client, mut inbound) = pair(version, b"");
        client.send_close_notify();
        assert_eq!(give(&mut inbound, &sent(&mut client)), Ok(Received::End));
    }
    for (alert, expected) in [
        (&[1, 90][..], Ok(Received::Taken)),
        (&[2, 20], Err(AlertDescription::CloseNotify)),
        (&[1], Err(AlertDescription::DecodeError)),
    ] {
        let (client, mut inbound) = pair(&TLS13, b"");
        let record = Crafting::new(client).record(ContentType::Alert, alert);
        assert_eq!(give(&mut inbound, &record), expected, "{alert:?}");
    }
}

#[test]
fn hostile_records_are_refused() {
    for version in VERSIONS {
        let (mut client, mut inbound) = pair(version, b"");
        let mut records = says(&mut client, b"x");
        *records.last_mut().unwrap() ^= 1;
        assert_eq!(give(&mut inbound, &records), Err(AlertDescription::BadRecordMac));
        let (_, mut inbound) = pair(version, b"");
        let overlong = give(&mut inbound, &[23, 3, 3, 0xff, 0xff]);
        assert_eq!(overlong, Err(AlertDescription::RecordOverflow));
        let (_, mut inbound) = pair(version, b"");
        assert!(give(&mut inbound, &[23, 3, 3, 0, 0]).is_err(), "no room for a tag");
    }
    let (_, mut inbound) = pair(&TLS13, b"");
    let in_the_clear = give(&mut inbound, &[20, 3, 3, 0, 1, 1]);
    assert_eq!(in_the_clear, Err(AlertDescription::UnexpectedMessage));
    for message in
        [&[24, 0, 0, 1][..], &[24, 0, 0, 1, 0, 0], &[24, 0, 0, 2, 0, 0], &[1, 0, 0, 0], &[]]
    {
        let (client, mut inbound) = pair(&TLS13, b"");
        let record = Crafting::new(client).record(ContentType::Handshake, message);
        let received = give(&mut inbound, &record);
        assert_eq!(received, Err(AlertDescription::UnexpectedMessage), "{message:?}");
    }
    let (client, mut inbound) = pair(&TLS13, b"");
    let record = Crafting::new(client).record(ContentType::Handshake, &[24, 0, 0, 1, 2]);
    assert_eq!(give(&mut inbound, &record), Err(AlertDescription::IllegalParameter));
}
