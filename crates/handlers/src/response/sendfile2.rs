//! lighttpd's `X-Sendfile2: path first-last, path first-`: ranges of files, in their order, are the
//! body.
//!
//! Paths are percent-encoded; a range includes its last byte, or extends to the end of the file.
//! The status and the fields are the application's, including `Content-Range`, because the
//! application has chosen the ranges itself.

use http::StatusCode;
use percent_encoding::percent_decode;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::Sink;
use sendoff_fastcgi::channel::is_for_front;
use sendoff_message::Cut;
use sendoff_message::response::{CgiHead, ResponseHead};
use sendoff_site::sendable::{ByPath, Denied};

const FIELD: &[u8] = b"x-sendfile2";

/// The value of the field, if a head has it.
pub(crate) fn value(head: &CgiHead) -> Option<&[u8]> {
    head.values(FIELD).find(|value| !value.is_empty())
}

/// Opens the files that the field names; returns the ranges as segments.
pub(crate) fn open(files: &impl ByPath, value: &[u8]) -> Result<Vec<Segment>, Denied> {
    let mut segments = Vec::new();
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
        let entry = files.by_path(&path)?;
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
pub(crate) async fn respond(
    head: CgiHead,
    segments: Vec<Segment>,
    sink: &mut dyn Sink,
) -> Result<(), Cut> {
    let mut out = ResponseHead::of(head);
    out.accel_expires = out.take("X-Accel-Expires");
    out.length = Some(segments.iter().map(Segment::len).sum());
    out.fields.retain(|field| !is_for_front(field.name()));
    sink::respond(sink, out, segments).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_site::sendable::Sendable;

    fn text(sendable: &Sendable, value: &str) -> Result<String, u16> {
        let segments = open(sendable, value.as_bytes()).map_err(|denied| denied.status.as_u16())?;
        let bytes = segments.into_iter().map(|segment| match segment {
            Segment::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Segment::File(_) => panic!("small files are in memory"),
        });
        Ok(bytes.collect())
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
