//! Packets to a container: a request's head and its body.

use bytes::{BufMut, Bytes, BytesMut};

use crate::words::{self, CODED, OTHER_METHOD};
use crate::{FROM_SERVER, HEADER};

const FORWARD_REQUEST: u8 = 2;

/// Attributes, by their numbers.
const REMOTE_USER: u8 = 3;
const AUTH_TYPE: u8 = 4;
const QUERY_STRING: u8 = 5;
const SSL_CERT: u8 = 7;
const SSL_CIPHER: u8 = 8;
const REQUEST_ATTRIBUTE: u8 = 10;
const SECRET: u8 = 12;
const STORED_METHOD: u8 = 13;
const END: u8 = 0xff;

/// Facts about a request besides its fields. Absent attributes are not sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts<'a> {
    /// The method.
    pub method: &'a str,
    /// `HTTP/1.1`.
    pub protocol: &'a [u8],
    /// The path as the client sent it, without the query.
    pub uri: &'a [u8],
    /// The query behind the `?`.
    pub query: Option<&'a [u8]>,
    /// The client's address.
    pub remote_addr: &'a [u8],
    /// The client's port.
    pub remote_port: Option<u16>,
    /// The host that the client named, without a port.
    pub server_name: &'a [u8],
    /// The port that the client named.
    pub server_port: u16,
    /// The address that the client connected to.
    pub local_addr: &'a [u8],
    /// True if the client uses https.
    pub is_https: bool,
    /// The version of TLS.
    pub tls_version: Option<&'a [u8]>,
    /// The cipher suite.
    pub tls_cipher: Option<&'a [u8]>,
    /// The client's certificate in PEM.
    pub tls_certificate: Option<&'a [u8]>,
    /// The user whose password the server has checked.
    pub remote_user: Option<&'a [u8]>,
    /// The authentication scheme: `Basic`.
    pub auth_type: Option<&'a [u8]>,
    /// The secret that the container demands (`secret` of its connector).
    pub secret: Option<&'a [u8]>,
}

/// The request does not fit into a packet, or one of its strings is longer than the protocol
/// allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

/// Collects the fields of a request.
#[derive(Debug)]
pub struct ForwardRequest<'a> {
    facts: Facts<'a>,
    fields: BytesMut,
    count: u16,
    is_too_large: bool,
}

impl<'a> ForwardRequest<'a> {
    /// A request without fields.
    #[must_use]
    pub fn new(facts: Facts<'a>) -> Self {
        Self { facts, fields: BytesMut::new(), count: 0, is_too_large: false }
    }

    /// Adds a field; its name is in lower case.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        match words::request_field(name) {
            Some(number) => self.fields.put_slice(&[CODED, number]),
            None => self.is_too_large |= !put_string(&mut self.fields, name.as_bytes()),
        }
        self.is_too_large |= !put_string(&mut self.fields, value);
        match self.count.checked_add(1) {
            Some(count) => self.count = count,
            None => self.is_too_large = true,
        }
    }

    /// The packet. Bytes of the body follow as [`body_piece`]s: the first at once, further ones
    /// when the container asks for them.
    ///
    /// # Errors
    /// The packet would have more than `packet_size` bytes.
    pub fn finish(self, packet_size: usize) -> Result<Bytes, TooLarge> {
        let Self { facts, fields, count, is_too_large } = self;
        let mut payload = BytesMut::with_capacity(512 + fields.len());
        let method = words::method(facts.method);
        payload.put_slice(&[FORWARD_REQUEST, method]);
        let mut fits = !is_too_large;
        for text in [facts.protocol, facts.uri, facts.remote_addr] {
            fits &= put_string(&mut payload, text);
        }
        // The name of the client's host is not looked up: an absent string.
        payload.put_slice(&[0xff, 0xff]);
        fits &= put_string(&mut payload, facts.server_name);
        payload.put_u16(facts.server_port);
        payload.put_u8(u8::from(facts.is_https));
        payload.put_u16(count);
        payload.put_slice(&fields);
        let port = facts.remote_port.map(|port| port.to_string());
        for (number, value) in [
            (REMOTE_USER, facts.remote_user),
            (AUTH_TYPE, facts.auth_type),
            (QUERY_STRING, facts.query),
            (SSL_CERT, facts.tls_certificate),
            (SSL_CIPHER, facts.tls_cipher),
            (SECRET, facts.secret),
            (STORED_METHOD, Some(facts.method.as_bytes()).filter(|_| method == OTHER_METHOD)),
        ] {
            if let Some(value) = value {
                payload.put_u8(number);
                fits &= put_string(&mut payload, value);
            }
        }
        for (name, value) in [
            ("AJP_REMOTE_PORT", port.as_deref().map(str::as_bytes)),
            ("AJP_LOCAL_ADDR", Some(facts.local_addr)),
            ("AJP_SSL_PROTOCOL", facts.tls_version),
        ] {
            if let Some(value) = value {
                payload.put_u8(REQUEST_ATTRIBUTE);
                fits &=
                    put_string(&mut payload, name.as_bytes()) && put_string(&mut payload, value);
            }
        }
        payload.put_u8(END);
        match u16::try_from(payload.len()) {
            Ok(len) if fits && payload.len() + HEADER <= packet_size => {
                Ok([&FROM_SERVER, &len.to_be_bytes()[..], &payload].concat().into())
            }
            _ => Err(TooLarge),
        }
    }
}

/// Appends a string. Returns false if it is too long.
fn put_string(out: &mut BytesMut, text: &[u8]) -> bool {
    // This length stands for an absent string.
    let Some(len) = u16::try_from(text.len()).ok().filter(|len| *len < u16::MAX) else {
        return false;
    };
    out.put_u16(len);
    out.put_slice(text);
    out.put_u8(0);
    true
}

/// The number of body bytes that fit into one packet, if the container has asked for `asked`.
#[must_use]
pub fn piece_room(asked: u16, packet_size: usize) -> usize {
    let room = packet_size.saturating_sub(HEADER + 2);
    room.min(usize::from(asked)).min(usize::from(u16::MAX - 2))
}

/// The packet with a piece of the request body, and the number of bytes in it: as many as fit into
/// `packet_size`, but no more than the container has `asked` for. A packet without bytes means that
/// the body is complete.
#[must_use]
pub fn body_piece(bytes: &[u8], asked: u16, packet_size: usize) -> (Bytes, usize) {
    let taken = bytes.len().min(piece_room(asked, packet_size));
    let Some(len) = u16::try_from(taken).ok().filter(|len| *len > 0) else {
        return (Bytes::from_static(&[FROM_SERVER[0], FROM_SERVER[1], 0, 0]), 0);
    };
    let head = [(len + 2).to_be_bytes(), len.to_be_bytes()].concat();
    ([&FROM_SERVER[..], &head, &bytes[..taken]].concat().into(), taken)
}
