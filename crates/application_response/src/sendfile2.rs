//! lighttpd's `X-Sendfile2: path first-last, path first-`: ranges of files, in their order, are the
//! body.
//!
//! Paths are percent-encoded; a range includes its last byte, or extends to the end of the file.
//! The status and the fields are the application's, including `Content-Range`, because the
//! application has chosen the ranges itself.

use std::collections::{HashMap, hash_map};

use http::StatusCode;
use percent_encoding::percent_decode;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_message::Cut;
use sendoff_message::response::{CgiHead, ResponseHead};
use sendoff_site_files::sendable::{ByPath, Denied};
use sendoff_static_files::Entry;

use crate::fields::is_for_server;

const FIELD: &[u8] = b"x-sendfile2";

/// The value of the field, if a head has it.
pub fn value(head: &CgiHead) -> Option<&[u8]> {
    head.values(FIELD).find(|value| !value.is_empty())
}

/// The most files of one response, which all are open until they have been sent.
const MOST_FILES: usize = 256;

/// Opens the files that the field names, each once; returns the ranges as segments.
pub fn open(files: &impl ByPath, value: &[u8]) -> Result<Vec<Segment>, Denied> {
    let mut segments = Vec::new();
    let mut opened: HashMap<Vec<u8>, Entry> = HashMap::new();
    for piece in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        if piece.is_empty() {
            continue;
        }
        let bad = |why: &str| Denied {
            status: StatusCode::BAD_GATEWAY,
            why: format!("X-Sendfile2: {}: {why}", String::from_utf8_lossy(piece)),
        };
        let space = piece.iter().position(|&byte| byte == b' ').ok_or_else(|| bad("no range"))?;
        let path: Vec<u8> = percent_decode(&piece[..space]).collect();
        let (first, last) = parse(&piece[space..]).ok_or_else(|| bad("a range that is none"))?;
        let is_full = opened.len() >= MOST_FILES;
        let entry = match opened.entry(path) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(_) if is_full => return Err(bad("more than 256 files")),
            hash_map::Entry::Vacant(new) => {
                let entry = files.by_path(new.key())?;
                new.insert(entry)
            }
        };
        let end = match last {
            Some(last) => last.checked_add(1).filter(|&end| end <= entry.size),
            None => Some(entry.size),
        };
        let end = end.filter(|&end| first <= end).ok_or_else(|| bad("not in the file"))?;
        if first < end {
            segments.push(entry.part(first, end - first));
        }
    }
    Ok(segments)
}

/// `first-last` or `first-`.
fn parse(range: &[u8]) -> Option<(u64, Option<u64>)> {
    let (first, last) = std::str::from_utf8(range.trim_ascii()).ok()?.split_once('-')?;
    let number = |digits: &str| {
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let last = if last.is_empty() { None } else { Some(number(last)?) };
    Some((number(first)?, last))
}

/// Answers with the ranges.
pub async fn respond(
    head: CgiHead,
    segments: Vec<Segment>,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let mut out = ResponseHead::of(head);
    out.accel_expires = out.take("X-Accel-Expires");
    out.length = Some(segments.iter().map(Segment::len).sum());
    out.fields.retain(|field| !is_for_server(field.name()));
    sink::respond(sink, out, segments).await
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use sendoff_site_files::sendable::Sendable;

    fn text(sendable: &Sendable, value: &str) -> Result<String, u16> {
        let segments = open(sendable, value.as_bytes()).map_err(|denied| denied.status.as_u16())?;
        let bytes = segments.into_iter().map(|segment| match segment {
            Segment::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Segment::File(_) => panic!("small files are in memory"),
        });
        Ok(bytes.collect())
    }

    #[test]
    fn many_ranges_open_each_file_once_and_files_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let sendable = Sendable::open(&sendoff_config::Site::new(dir.path().to_owned())).unwrap();
        let name = |number: usize| dir.path().join(number.to_string()).display().to_string();
        for number in 0..=MOST_FILES {
            std::fs::write(name(number), vec![b'x'; 100_000]).unwrap();
        }
        let ranges = format!("{} 0-99998,", name(0)).repeat(1000);
        let segments = open(&sendable, ranges.as_bytes()).unwrap();
        let descriptors: std::collections::HashSet<_> = segments
            .iter()
            .map(|segment| match segment {
                Segment::File(part) => part.file.descriptor().unwrap().as_raw_fd(),
                Segment::Bytes(_) => panic!("large parts are files"),
            })
            .collect();
        assert_eq!((segments.len(), descriptors.len()), (1000, 1));
        let all = |count| (0..count).map(|number| format!("{} 0-,", name(number))).collect();
        let (most, more): (String, String) = (all(MOST_FILES), all(MOST_FILES + 1));
        assert_eq!(open(&sendable, most.as_bytes()).unwrap().len(), MOST_FILES);
        assert!(open(&sendable, more.as_bytes()).unwrap_err().why.contains("256 files"));
    }

    #[test]
    fn ranges_of_allowed_files_follow_each_other() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root/a b,c", "out/f"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "0123456789").unwrap();
        }
        let sendable = Sendable::open(&sendoff_config::Site::new(dir.path().join("root"))).unwrap();
        let file = format!("{}/root/a%20b%2cc", dir.path().display());
        let out = format!("{}/out/f", dir.path().display());
        for (value, expected) in [
            (format!("{file} 0-"), Ok("0123456789")),
            (format!("  {file}   2-3  "), Ok("23")),
            (format!("{file} 9-9,{file} 0-1 , {file} 5-,"), Ok("90156789")),
            (format!("{file} 10-"), Ok("")),
            (format!("{file} 3-2"), Ok("")),
            (format!("{file} 4-2"), Err(502)),
            (format!("{file} 11-"), Err(502)),
            (format!("{file} 0-10"), Err(502)),
            (format!("{file} 0-18446744073709551615"), Err(502)),
            (format!("{file} -5"), Err(502)),
            (format!("{file} +1-2"), Err(502)),
            (format!("{file} 1"), Err(502)),
            (format!("{file} 1-2 3"), Err(502)),
            (file.clone(), Err(502)),
            (format!("{file}x 0-"), Err(404)),
            (format!("{file} 0-,{out} 0-"), Err(403)),
            ("a 0-".to_owned(), Err(403)),
        ] {
            assert_eq!(text(&sendable, &value), expected.map(str::to_owned), "{value}");
        }
    }
}
