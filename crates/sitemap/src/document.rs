//! A sitemap, or an index of sitemaps.
//!
//! Entities that a document declares are not expanded: an address with one is not valid. Text
//! is limited after decompression.

use std::io::{self, BufRead, BufReader};

use flate2::read::MultiGzDecoder;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

use crate::location::Location;

/// Most bytes of a document that are read, after decompression. The protocol allows 50 MB; 50,000
/// addresses of usual length take 8.
pub const MOST_BYTES: u64 = 16 << 20;

/// Most addresses of a document, as in the protocol.
const MOST_ADDRESSES: usize = 50_000;

/// The first bytes of a gzip file (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Depth of the element with an address: `<urlset><url><loc>`. Deeper ones are images and videos.
const DEPTH_OF_ADDRESS: usize = 3;

/// The addresses in a document.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The pages.
    pub pages: Vec<Location>,
    /// Further sitemaps.
    pub sitemaps: Vec<Location>,
    /// Addresses that are not valid.
    pub invalid: usize,
    /// Why the rest of the document was left out, as a sentence about "it"; `None`: it is complete.
    pub cut: Option<String>,
}

/// The meaning of the addresses in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pages,
    Sitemaps,
}

impl Document {
    /// Reads the body of a response.
    ///
    /// # Errors
    /// The reason why it is no sitemap, as a sentence about "it".
    pub fn read(body: &[u8]) -> Result<Self, String> {
        if body.starts_with(&GZIP) {
            return Self::of(BufReader::new(MultiGzDecoder::new(body)));
        }
        Self::of(body)
    }

    fn of(text: impl BufRead) -> Result<Self, String> {
        let mut text = text.take(MOST_BYTES);
        match first_byte(&mut text) {
            Ok(Some(b'<')) => Self::of_xml(text),
            Ok(Some(b'h')) => Ok(Self::of_lines(text)),
            Ok(Some(_)) => Err("it is neither XML nor a list of addresses".to_owned()),
            Ok(None) => Err("it is empty".to_owned()),
            Err(error) => Err(format!("it cannot be decompressed: {error}")),
        }
    }

    /// One address on each line.
    fn of_lines(text: io::Take<impl BufRead>) -> Self {
        let mut document = Self::default();
        for line in text.lines() {
            match line {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => document.add(Kind::Pages, &line),
                Err(error) => document.cut = Some(format!("it cannot be read further: {error}")),
            }
            if document.cut.is_some() {
                break;
            }
        }
        document
    }

    fn of_xml(text: io::Take<impl BufRead>) -> Result<Self, String> {
        let mut reader = Reader::from_reader(text);
        let (mut document, mut kind, mut depth) = (Self::default(), None, 0_usize);
        let mut address: Option<String> = None;
        let mut buffer = Vec::new();
        while document.cut.is_none() {
            buffer.clear();
            let event = match reader.read_event_into(&mut buffer) {
                Ok(event) => event,
                Err(error) if kind.is_some() => {
                    let broken =
                        || format!("it is broken at byte {}: {error}", reader.error_position());
                    document.cut = Some(too_long(&reader).unwrap_or_else(broken));
                    break;
                }
                Err(error) => return Err(format!("it is no XML: {error}")),
            };
            match event {
                Event::Start(element) => {
                    depth += 1;
                    let name = element.local_name();
                    if depth == 1 {
                        kind = Some(kind_of(name.as_ref())?);
                    }
                    address = (depth == DEPTH_OF_ADDRESS && name.as_ref() == b"loc")
                        .then(String::new)
                        .or(address);
                }
                Event::End(_) => {
                    if depth == DEPTH_OF_ADDRESS
                        && let (Some(kind), Some(address)) = (kind, address.take())
                    {
                        document.add(kind, &address);
                    }
                    depth = depth.saturating_sub(1);
                }
                Event::Text(text) => extend(&mut address, text.decode().ok().as_deref()),
                Event::CData(text) => extend(&mut address, text.decode().ok().as_deref()),
                Event::GeneralRef(reference) => {
                    extend(&mut address, resolved(&reference).as_deref());
                }
                Event::Eof if depth > 0 => {
                    let early = || "it ends in the middle".to_owned();
                    document.cut = Some(too_long(&reader).unwrap_or_else(early));
                }
                Event::Eof => break,
                _ => {}
            }
        }
        match kind {
            Some(_) => Ok(document),
            None => Err("it has no element".to_owned()),
        }
    }

    fn add(&mut self, kind: Kind, address: &str) {
        let Some(location) = Location::parse(address) else {
            self.invalid += 1;
            return;
        };
        let list = match kind {
            Kind::Pages => &mut self.pages,
            Kind::Sitemaps => &mut self.sitemaps,
        };
        if list.len() >= MOST_ADDRESSES {
            self.cut = Some(format!("it has more than {MOST_ADDRESSES} addresses"));
            return;
        }
        list.push(location);
    }
}

fn kind_of(root: &[u8]) -> Result<Kind, String> {
    match root {
        b"urlset" => Ok(Kind::Pages),
        b"sitemapindex" => Ok(Kind::Sitemaps),
        other => {
            let name = String::from_utf8_lossy(other);
            Err(format!("it begins with <{name}> in place of <urlset> or <sitemapindex>"))
        }
    }
}

/// Skips a byte order mark and blanks, and returns the next byte.
fn first_byte(text: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let Some(&byte) = text.fill_buf()?.first() else { return Ok(None) };
        if !byte.is_ascii_whitespace() && !matches!(byte, 0xef | 0xbb | 0xbf) {
            return Ok(Some(byte));
        }
        text.consume(1);
    }
}

/// Appends to the address that is being read. Text that cannot be decoded makes it invalid.
fn extend(address: &mut Option<String>, text: Option<&str>) {
    if let Some(address) = address {
        address.push_str(text.unwrap_or("\0"));
    }
}

/// The text of a character reference or of one of XML's own entities.
fn resolved(reference: &BytesRef<'_>) -> Option<String> {
    if let Some(character) = reference.resolve_char_ref().ok()? {
        return Some(character.to_string());
    }
    let name = reference.decode().ok()?;
    quick_xml::escape::resolve_xml_entity(&name).map(str::to_owned)
}

/// The reason why a document was not read to its end, if that is its size.
fn too_long<R>(reader: &Reader<io::Take<R>>) -> Option<String> {
    let is_too_long = reader.get_ref().limit() == 0;
    is_too_long.then(|| format!("it has more than {} MiB", MOST_BYTES >> 20))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn shown(list: &[Location]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    const PAGES: &str = "\u{feff}<?xml version=\"1.0\"?>\n<urlset xmlns=\"s\" xmlns:image=\"i\">
        <url><loc>\n https://a.test/1?x=1&amp;y=&#50; </loc><lastmod>2026-01-01</lastmod>
        <image:image><image:loc>https://a.test/i.png</image:loc></image:image></url>
        <url><loc><![CDATA[https://a.test/2?a&b]]></loc></url>
        <url><loc>ftp://a.test/</loc></url><url><loc/></url></urlset>";

    #[test]
    fn pages_are_read() {
        for body in [PAGES.as_bytes().to_vec(), compressed(PAGES.as_bytes())] {
            let document = Document::read(&body).unwrap();
            let pages = ["https://a.test/1?x=1&y=2", "https://a.test/2?a&b"];
            assert_eq!(shown(&document.pages), pages);
            assert_eq!((document.invalid, document.cut), (1, None));
        }
    }

    #[test]
    fn an_index_names_sitemaps_and_text_names_pages() {
        let index =
            "<sitemapindex><sitemap><loc>http://a.test/s.xml</loc></sitemap></sitemapindex>";
        let document = Document::read(index.as_bytes()).unwrap();
        assert_eq!(shown(&document.sitemaps), ["http://a.test/s.xml"]);
        assert!(document.pages.is_empty());
        let document = Document::read(b"http://a.test/1\r\n\nnone\nhttp://a.test/2").unwrap();
        assert_eq!(shown(&document.pages), ["http://a.test/1", "http://a.test/2"]);
        assert_eq!(document.invalid, 1);
    }

    #[test]
    fn declared_entities_are_not_expanded() {
        let bomb = "<!DOCTYPE urlset [<!ENTITY a \"http://a.test/\"><!ENTITY b \"&a;&a;\">\
            <!ENTITY x SYSTEM \"file:///etc/passwd\">]>
            <urlset><url><loc>&b;</loc></url><url><loc>http://a.test/&x;</loc></url>
            <url><loc>http://a.test/1</loc></url></urlset>";
        let document = Document::read(bomb.as_bytes()).unwrap();
        assert_eq!(shown(&document.pages), ["http://a.test/1"]);
        assert_eq!(document.invalid, 2);
    }

    #[test]
    fn long_and_broken_documents_are_cut() {
        let url = "<url><loc>http://a.test/</loc></url>";
        let many = format!("<urlset>{}</urlset>", url.repeat(MOST_ADDRESSES + 1));
        let document = Document::read(many.as_bytes()).unwrap();
        assert_eq!(document.pages.len(), MOST_ADDRESSES);
        assert!(document.cut.unwrap().contains("more than 50000 addresses"));
        let blanks = " ".repeat(usize::try_from(MOST_BYTES).unwrap());
        let large = format!("<urlset>{url}{blanks}</urlset>");
        for body in [large.as_bytes().to_vec(), compressed(large.as_bytes())] {
            let document = Document::read(&body).unwrap();
            assert_eq!(document.pages.len(), 1);
            assert_eq!(document.cut.unwrap(), "it has more than 16 MiB");
        }
        for (text, pages) in [
            (format!("<urlset>{url}<url><loc>http"), 1),
            (format!("<urlset>{url}</url></urlset>"), 1),
            (format!("<urlset>{}", "<a>".repeat(100_000)), 0),
        ] {
            let document = Document::read(text.as_bytes()).unwrap();
            assert_eq!(document.pages.len(), pages, "{text:.60}");
            assert!(document.cut.is_some());
        }
    }

    #[test]
    fn other_documents_are_no_sitemaps() {
        for (text, why) in [
            ("", "empty"),
            ("<html><body><p>hello</html>", "<html>"),
            ("{}", "neither XML"),
            ("<!-- -->", "no element"),
        ] {
            let said = Document::read(text.as_bytes()).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let mut torn = compressed(PAGES.as_bytes());
        torn.truncate(12);
        assert!(Document::read(&torn).unwrap_err().contains("decompressed"));
    }
}
