//! The beginning of an application's response: everything up to the end of its header block.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use sendoff_fastcgi::direct::Sent;
use sendoff_http1::CgiHeadReader;

use super::status::Failure;
use crate::response::CgiHead;
use crate::segment::Segment;
use crate::upstream::{Event, Exchange, Retry};

/// Explanations that may come before the header block.
const MAX_EARLY_EXPLANATIONS: usize = 1000;

/// How a response begins.
#[derive(Debug)]
pub(super) enum Answer {
    /// With a header block.
    Begun(Begun),
    /// The worker has written it to the client itself.
    Sent(Sent),
}

/// What has come up to the end of the header block.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) head: CgiHead,
    /// Body bytes that came with the end of the header block.
    pub(super) rest: Bytes,
    /// The body length that the worker announced.
    pub(super) length: Option<u64>,
    /// The contents of `EXPLAIN` records.
    pub(super) explanations: Vec<Bytes>,
    /// The file that the header block names, if the worker has opened it.
    pub(super) named: Option<OwnedFd>,
}

/// Why no response has begun.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The request was not read, so another process may get it.
    Unread,
    /// The request may have been processed.
    Failed(Failure),
}

impl From<Failure> for NoAnswer {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Waits for the whole header block, or for the record that says that the worker has written to the client itself.
pub(super) async fn read(exchange: &Exchange) -> Result<Answer, NoAnswer> {
    let mut reader = CgiHeadReader::new();
    let (mut length, mut named, mut explanations) = (None, None, Vec::new());
    loop {
        let data = match exchange.next().await {
            Event::Segment(Segment::Bytes(data)) => data,
            Event::Named(file) => {
                named = Some(file);
                continue;
            }
            Event::Explanation(text) => {
                if explanations.len() < MAX_EARLY_EXPLANATIONS {
                    explanations.push(text);
                }
                continue;
            }
            Event::Length(announced) => {
                length = Some(announced);
                continue;
            }
            Event::Sent(sent) => return Ok(Answer::Sent(sent)),
            Event::Failed(error) if error.retry() == Retry::Safe && reader.is_empty() => {
                return Err(NoAnswer::Unread);
            }
            Event::Failed(error) => return Err(Failure::from(error).into()),
            Event::Segment(Segment::File(_)) => return Err(early("a file")),
            Event::Piece(_) => return Err(early("shared memory")),
            Event::End => {
                return Err(Failure::bad_gateway("the response has no header block").into());
            }
        };
        let read = reader.push(&data);
        let wrong = |wrong| Failure::bad_gateway(format!("it sent {wrong}"));
        if let Some((head, rest)) = read.map_err(wrong)? {
            if let Some(dropped) = head.dropped {
                tracing::warn!("{}: it sent {dropped}, which is dropped", exchange.who());
            }
            return Ok(Answer::Begun(Begun { head, rest, length, explanations, named }));
        }
    }
}

fn early(what: &str) -> NoAnswer {
    Failure::bad_gateway(format!("{what} was handed over before the header block")).into()
}
