//! Requests whose end is ambiguous, so that two servers could disagree about it.
//!
//! Each request carries another request, `{inner}`, in bytes that some readers could take for its
//! body and others for the next request on the connection. `{inner}` asks for an id of its own,
//! which no reader may answer.

/// A malformed request.
pub(crate) struct Case {
    /// The defect of the request.
    pub(crate) name: String,
    wire: Vec<u8>,
}

impl Case {
    /// The bytes of the request with this `target`, whose body holds `inner`.
    pub(crate) fn bytes(&self, target: &str, inner: &str) -> Vec<u8> {
        let whole = "0\r\n\r\n".len() + inner.len();
        let mut wire = Vec::new();
        let mut rest = &self.wire[..];
        while let Some(at) = rest.iter().position(|&byte| byte == b'{') {
            wire.extend_from_slice(&rest[..at]);
            let len = rest[at..].iter().position(|&byte| byte == b'}').unwrap() + 1;
            let text = match &rest[at..at + len] {
                b"{target}" => target.to_owned(),
                b"{inner}" => inner.to_owned(),
                // The length of the inner request alone, in both notations.
                b"{len}" => inner.len().to_string(),
                b"{hex}" => format!("{:x}", inner.len()),
                // The length with the last chunk before it.
                b"{whole}" => whole.to_string(),
                other => panic!("{}", String::from_utf8_lossy(other)),
            };
            wire.extend_from_slice(text.as_bytes());
            rest = &rest[at + len..];
        }
        wire.extend_from_slice(rest);
        wire
    }
}

/// Fields of a POST request whose body is a last chunk and the inner request: a reader of chunks
/// sees an end that a reader of lengths does not see.
const FIELDS: &[&str] = &[
    // Both lengths.
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: {whole}",
    "Content-Length: {whole}\r\nTransfer-Encoding: identity",
    "Content-Length: {whole}\r\nTransfer-Encoding:",
    "Content-Length: {whole}\r\nTransfer-Encoding: ,",
    // Names that are nearly the name.
    "Content-Length: {whole}\r\nTransfer-Encoding : chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding\t: chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding\x0b: chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding\0: chunked",
    "Content-Length: {whole}\r\n Transfer-Encoding: chunked",
    "Content-Length: {whole}\r\n\tTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nX: y\r\n Transfer-Encoding: chunked",
    "Content-Length: {whole}\r\nX: y\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nX: y\rTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nX: y\r\r\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nX: y\n\rTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nX: y\0\r\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nX:\r\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nX\r\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\n: y\r\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nTransfer_Encoding: chunked",
    "Content-Length: {whole}\r\nTransfer.Encoding: chunked",
    "Content-Length: {whole}\r\nTransfer Encoding: chunked",
    "Content-Length: {whole}\r\nTransfer-Encodin\u{17f}: chunked",
    "Content-Length: {whole}\r\nXTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\n\"Transfer-Encoding\": chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding;: chunked",
    "Content-Length: {whole}\r\n(Transfer-Encoding): chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding\r\n: chunked",
    "Content-Length: {whole}\r\nTransfer-\r\n Encoding: chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding=chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding:: chunked",
    "Content-Length: {whole}\r\ntRANSFER-eNCODING: CHUNKED",
    // Values that are nearly the value.
    "Content-Length: {whole}\r\nTransfer-Encoding:chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding:\tchunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked ",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked\t",
    "Content-Length: {whole}\r\nTransfer-Encoding: \x0bchunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: \x0cchunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked\0",
    "Content-Length: {whole}\r\nTransfer-Encoding: \u{a0}chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: \"chunked\"",
    "Content-Length: {whole}\r\nTransfer-Encoding: 'chunked'",
    "Content-Length: {whole}\r\nTransfer-Encoding: xchunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunkedx",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunk",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked;q=1",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked, identity",
    "Content-Length: {whole}\r\nTransfer-Encoding: identity, chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked, chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: gzip, chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked, gzip",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked,",
    "Content-Length: {whole}\r\nTransfer-Encoding: ,chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x",
    "Content-Length: {whole}\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Content-Length: {whole}\r\nTransfer-Encoding:\r\n chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding:\r\n\tchunked",
    "Content-Length: {whole}\r\nTransfer-Encoding:\n chunked",
    "Content-Length: {whole}\r\nTransfer-Encoding: chun\r\n ked",
    "Content-Length: {whole}\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
    "Content-Length: {whole}\r\nTE: chunked",
    "Content-Length: {whole}\r\nContent-Encoding: chunked",
    "Content-Length: {whole}\r\nProxy-Connection: keep-alive\r\nTransfer-Encoding: chunked",
    // One length, in several ways.
    "Content-Length: {whole}\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: {whole}",
    "Content-Length: 0\r\nContent-Length: {whole}",
    "Content-Length: {whole}, 5",
    "Content-Length: 5, {whole}",
    "Content-Length: {whole}, {whole}",
    "Content-Length: {whole}\r\nContent-Length: {whole}",
    "Content-Length: {whole},",
    "Content-Length: ,{whole}",
    "Content-Length: +{whole}",
    "Content-Length: -{whole}",
    "Content-Length: 0x{hex}",
    "Content-Length: {whole}.0",
    "Content-Length: {whole}e0",
    "Content-Length: {whole}_0",
    "Content-Length: 0 {whole}",
    "Content-Length: {whole} 0",
    "Content-Length: 5;{whole}",
    "Content-Length: \"{whole}\"",
    "Content-Length: {whole}\0",
    "Content-Length: \x0b{whole}",
    "Content-Length: {whole}\x0b",
    "Content-Length: \u{a0}{whole}",
    "Content-Length: \u{661}{whole}",
    "Content-Length: 00000000000000000000000000000{whole}",
    "Content-Length: 18446744073709551616",
    "Content-Length: 18446744073709551621",
    "Content-Length: 4294967301",
    "Content-Length:",
    "Content-Length: x",
    "Content-Length : {whole}",
    "Content-Length\t: {whole}",
    " Content-Length: {whole}",
    "X: y\r\n Content-Length: {whole}",
    "X: y\nContent-Length: {whole}",
    "X: y\rContent-Length: {whole}",
    "X: y\0Content-Length: {whole}",
    "Content-Length:\r\n {whole}",
    "Content-Length:\n{whole}",
    "Content_Length: {whole}",
    "Content_Length: 5\r\nContent-Length: {whole}",
    "Content.Length: 5\r\nContent-Length: {whole}",
    "Content Length: 5\r\nContent-Length: {whole}",
    "HTTP-Content-Length: 5\r\nContent-Length: {whole}",
    "Content-Length: {whole}\r\nContent-Length\r\n: 5",
    "Content-Length: {whole}\r\nConnection: Content-Length",
    "Connection: Content-Length\r\nContent-Length: {whole}",
    // Fields that announce another protocol or another request.
    "Content-Length: {whole}\r\nExpect: 100-continue",
    "Content-Length: {whole}\r\nExpect: 100-continue, x",
    "Content-Length: {whole}\r\nExpect: x",
    "Content-Length: {whole}\r\nUpgrade: websocket\r\nConnection: Upgrade",
    "Content-Length: {whole}\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, HTTP2-Settings",
    "Content-Length: {whole}\r\nX-HTTP-Method-Override: GET",
    "Content-Length: {whole}\r\nHost: b.test",
    "Content-Length: {whole}\r\nX-Forwarded-Host: b.test\r\nX-Original-URL: /other",
    "Content-Length: {whole}\r\nConnection: close\r\nConnection: keep-alive",
    "Content-Length: {whole}\r\nConnection: Host",
    "Content-Length: {whole}\r\nConnection: close, X-Asked",
];

/// Chunks whose first one holds the inner request, or whose size some readers cannot read.
const CHUNKS: &[&str] = &[
    "{hex}\r\n{inner}\r\n0\r\n\r\n",
    "0{hex}\r\n{inner}\r\n0\r\n\r\n",
    "00000000000000000{hex}\r\n{inner}\r\n0\r\n\r\n",
    "0x{hex}\r\n{inner}\r\n0\r\n\r\n",
    "+{hex}\r\n{inner}\r\n0\r\n\r\n",
    "-{hex}\r\n{inner}\r\n0\r\n\r\n",
    " {hex}\r\n{inner}\r\n0\r\n\r\n",
    "\t{hex}\r\n{inner}\r\n0\r\n\r\n",
    "{hex} \r\n{inner}\r\n0\r\n\r\n",
    "{hex}\t\r\n{inner}\r\n0\r\n\r\n",
    "{hex}\x0b\r\n{inner}\r\n0\r\n\r\n",
    "{hex}\0\r\n{inner}\r\n0\r\n\r\n",
    "{hex}\u{a0}\r\n{inner}\r\n0\r\n\r\n",
    "{hex}g\r\n{inner}\r\n0\r\n\r\n",
    "{hex} 0\r\n{inner}\r\n0\r\n\r\n",
    "{hex},0\r\n{inner}\r\n0\r\n\r\n",
    "{hex}_0\r\n{inner}\r\n0\r\n\r\n",
    "\"{hex}\"\r\n{inner}\r\n0\r\n\r\n",
    "\r\n{hex}\r\n{inner}\r\n0\r\n\r\n",
    "10000000000000000{hex}\r\n{inner}\r\n0\r\n\r\n",
    "fffffffffffffffff\r\n{inner}\r\n0\r\n\r\n",
    "8000000000000000\r\n{inner}\r\n0\r\n\r\n",
    "100000000\r\n{inner}\r\n0\r\n\r\n",
    // Extensions.
    "{hex};a\r\n{inner}\r\n0\r\n\r\n",
    "{hex};a=b\r\n{inner}\r\n0\r\n\r\n",
    "{hex};a=\"b\"\r\n{inner}\r\n0\r\n\r\n",
    "{hex};a=\"\r\n{inner}\r\n0\r\n\r\n",
    "{hex};\r\n{inner}\r\n0\r\n\r\n",
    "{hex} ;a\r\n{inner}\r\n0\r\n\r\n",
    "{hex};a\n{inner}\r\n0\r\n\r\n",
    "{hex};a\r{inner}\r\n0\r\n\r\n",
    "{hex};a\nb\r\n{inner}\r\n0\r\n\r\n",
    "{hex};a\rb\r\n{inner}\r\n0\r\n\r\n",
    "{hex};a\0b\r\n{inner}\r\n0\r\n\r\n",
    "2;\n{inner}\r\nxx\r\n0\r\n\r\n",
    "1;a=\"\n\"\r\nx\r\n{hex}\r\n{inner}\r\n0\r\n\r\n",
    // Ends of lines.
    "{hex}\n{inner}\r\n0\r\n\r\n",
    "{hex}\r{inner}\r\n0\r\n\r\n",
    "{hex}\r\r\n{inner}\r\n0\r\n\r\n",
    "{hex}\n\r{inner}\r\n0\r\n\r\n",
    "{hex}\r\n{inner}\n0\r\n\r\n",
    "{hex}\r\n{inner}0\r\n\r\n",
    "{hex}\r\n{inner}xx0\r\n\r\n",
    "{hex}\r\n{inner}\r\n\r\n0\r\n\r\n",
    // The last chunk and the trailer section.
    "1\r\nx\r\n0\r\nX: y\r\n\r\n",
    "1\r\nx\r\n0\r\nContent-Length: {len}\r\n\r\n",
    "1\r\nx\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "1\r\nx\r\n0\r\nX: y\r\n z\r\n\r\n",
    "1\r\nx\r\n0\r\nX : y\r\n\r\n",
    "1\r\nx\r\n0\r\nX: \0\r\n\r\n",
    "1\r\nx\r\n00000\r\n\r\n",
    "1\r\nx\r\n0 \r\n\r\n",
    "1\r\nx\r\n0;a\r\n\r\n",
];

/// Whole requests. If the inner request follows a head without a body, it is cut at its end or
/// after a folded line.
const WHOLE: &[&str] = &[
    "GET {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "HEAD {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "DELETE {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "OPTIONS {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "TRACE {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "FOO {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "GET {target} HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n{hex}\r\n{inner}\r\n0\r\n\r\n",
    "GET {target} HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n{hex}\r\n{inner}\r\n0\r\n\r\n",
    "POST {target} HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST http://b.test{target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST http://a.test{target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST http://a.test@b.test{target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.1\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.1\r\nHost: a.test b.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.1\nHost: a.test\nContent-Length: {len}\n\n{inner}",
    "POST {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\n\r\n{inner}",
    "POST {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\n{inner}",
    "POST {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r{inner}",
    "POST {target} HTTP/1.1\rHost: a.test\rContent-Length: {len}\r\r{inner}",
    "\r\nPOST {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    " POST {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST  {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target}  HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST\t{target}\tHTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.1 \r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.1 HTTP/1.0\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.2\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/2.0\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/01.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} http/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target}\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "post {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "PO\0ST {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target}\0 HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target}#x HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target}\u{a0} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.1\r\n Host: a.test\r\nContent-Length: {len}\r\n\r\n{inner}",
    "POST {target} HTTP/1.1\r\nHost: a.test\r\nX: {inner}\r\n\r\n",
    "POST {target} HTTP/1.1\r\nHost: a.test\r\nX: y\r\n\t{inner}\r\n\r\n",
];

/// All of them.
pub(crate) fn corpus() -> Vec<Case> {
    let case = |kind: &str, text: &str, wire: String| Case {
        name: format!("{kind} {text:?}"),
        wire: wire.into(),
    };
    let fields = FIELDS.iter().map(|fields| {
        let head = format!("POST {{target}} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n\r\n");
        case("fields", fields, head + "0\r\n\r\n{inner}")
    });
    let chunks = CHUNKS.iter().map(|chunks| {
        let head = "POST {target} HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
        case("chunks", chunks, head.to_owned() + chunks)
    });
    let whole = WHOLE.iter().map(|whole| case("request", whole, (*whole).to_owned()));
    fields.chain(chunks).chain(whole).collect()
}
