//! The records of the streams.
//!
//! A record has the fields `v`, the version; `by`, a random name of the process that has added it;
//! and a content in JSON: `purge`, or `counts` of requests. A record without a content marks the
//! place at which a node has begun to read.

use redis::{Cmd, Value, cmd};

/// The version of records that this server writes and reads.
const VERSION: u32 = 1;

/// Most bytes of a purge in JSON. A longer one is sent as a purge of everything.
pub(crate) const MAX_PURGE: usize = 64 << 10;

/// Most bytes of a content. Counts need about 60 bytes for each client.
const MAX_CONTENT: usize = 128 << 10;

/// A stream.
pub(crate) struct Stream {
    /// The field with the content.
    content: &'static str,
    /// Most bytes of it.
    most: usize,
    /// About the number of records that the stream keeps.
    kept: u32,
}

/// Purges. A node that is away misses no record until there are as many as are kept.
pub(crate) const PURGES: Stream = Stream { content: "purge", most: MAX_PURGE, kept: 10_000 };

/// Counts of requests, which are of no use later.
pub(crate) const COUNTS: Stream = Stream { content: "counts", most: MAX_CONTENT, kept: 64 };

/// An entry of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) record: Record,
    /// Bytes of its fields.
    pub(crate) len: usize,
}

/// The meaning of an entry for this node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Nothing is to be done: this node has added it, or it marks a place.
    Nothing,
    /// The content that another node has added, in JSON.
    Content(Vec<u8>),
    /// A record of a newer server.
    Newer,
    /// No record: a sentence about it.
    Broken(String),
}

/// The command that adds a content to the stream with this name; `None`: a mark.
pub(crate) fn add(stream: &Stream, name: &str, by: &str, content: Option<&[u8]>) -> Cmd {
    let mut add = cmd("XADD");
    add.arg(name).arg("MAXLEN").arg("~").arg(stream.kept).arg("*");
    add.arg("v").arg(VERSION).arg("by").arg(by);
    if let Some(content) = content {
        add.arg(stream.content).arg(content);
    }
    add
}

/// The entries in an answer to `XRANGE`, as the node `me` sees them; `None`: it is no such answer.
pub(crate) fn entries(stream: &Stream, answer: Value, me: &str) -> Option<Vec<Entry>> {
    let Value::Array(entries) = answer else { return None };
    let entry = |entry| {
        let Value::Array(parts) = entry else { return None };
        let [Value::BulkString(id), Value::Array(fields)] = <[Value; 2]>::try_from(parts).ok()?
        else {
            return None;
        };
        let id = String::from_utf8(id).ok()?;
        let lens = fields.iter().map(|field| match field {
            Value::BulkString(text) => text.len(),
            _ => 0,
        });
        Some(Entry { id, len: lens.sum(), record: Record::of(stream, &fields, me) })
    };
    entries.into_iter().map(entry).collect()
}

impl Record {
    /// Reads the fields of an entry, which come with their names in between.
    fn of(stream: &Stream, fields: &[Value], me: &str) -> Self {
        let field = |name: &str| {
            fields.chunks_exact(2).find_map(|pair| match pair {
                [Value::BulkString(known), Value::BulkString(value)]
                    if known == name.as_bytes() =>
                {
                    Some(&value[..])
                }
                _ => None,
            })
        };
        let version = field("v").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        match version {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => return Self::Newer,
            _ => return Self::Broken("it has no version".to_owned()),
        }
        match (field("by"), field(stream.content)) {
            (None, _) => Self::Broken("it names no node".to_owned()),
            (Some(by), _) if by == me.as_bytes() => Self::Nothing,
            (Some(_), None) => Self::Nothing,
            (Some(_), Some(content)) if content.len() > stream.most => {
                Self::Broken(format!("its {} has {} bytes", stream.content, content.len()))
            }
            (Some(_), Some(content)) => Self::Content(content.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: impl AsRef<[u8]>) -> Value {
        Value::BulkString(text.as_ref().to_vec())
    }

    fn answer(fields: &[&[u8]]) -> Value {
        let fields = fields.iter().map(bulk).collect();
        Value::Array(vec![Value::Array(vec![bulk("1-0"), Value::Array(fields)])])
    }

    fn record(fields: &[&[u8]]) -> Record {
        entries(&PURGES, answer(fields), "me").unwrap().remove(0).record
    }

    #[test]
    fn what_others_have_added_is_read() {
        let fields: [&[u8]; 6] = [b"v", b"1", b"by", b"other", b"purge", b"{}"];
        assert_eq!(record(&fields), Record::Content(b"{}".to_vec()));
        assert_eq!(record(&fields[..4]), Record::Nothing, "a mark");
        let own: [&[u8]; 6] = [b"v", b"1", b"by", b"me", b"purge", b"{}"];
        assert_eq!(record(&own), Record::Nothing);
        let newer: [&[u8]; 4] = [b"v", b"2", b"x", b"y"];
        assert_eq!(record(&newer), Record::Newer);
    }

    #[test]
    fn anything_else_is_broken() {
        let long = vec![b'x'; MAX_PURGE + 1];
        let cases: [&[&[u8]]; 6] = [
            &[],
            &[b"v"],
            &[b"\xff", b"\xfe"],
            &[b"v", b"0"],
            &[b"v", b"1"],
            &[b"v", b"1", b"by", b"other", b"purge", &long],
        ];
        for fields in cases {
            assert!(matches!(record(fields), Record::Broken(_)), "{fields:?}");
        }
        for answer in [Value::Nil, Value::Array(vec![Value::Int(1)])] {
            assert_eq!(entries(&PURGES, answer, "me"), None);
        }
    }
}
