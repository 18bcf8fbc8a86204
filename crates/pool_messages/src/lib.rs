//! Messages between the front and the master of a pool over the pool socket: all messages to a
//! master, and those from the master of a program. The socket keeps the boundaries of messages
//! (`SOCK_SEQPACKET`), so a message has no length field.
//!
//! | kind | content | meaning |
//! |---|---|---|
//! | 1 | u64 | a front has started at this time: workers of an earlier front must end |
//! | 2 | u32 | keep this many workers |
//! | 3 | u32, text | the process with this id is stuck: replace it; the text names its request |
//! | 4 | u32 | the process with this id is slow: write its backtrace to the slow log |
//! | 5 | u32 | the process with this id has answered a request (programs) |
//! | 6 | | a process has closed a connection while it worked on a request (programs) |
//!
//! Numbers are big-endian, times are nanoseconds of `CLOCK_MONOTONIC`. Messages from a PHP master
//! are not here: they carry descriptors (`SCM_RIGHTS`), and `sendoff_upstream_worker` reads them. The PHP
//! master announces each worker with its descriptors and, when it or a front starts, the socket on
//! which workers ask for the state of the pool. The master of a program reports the state of its
//! processes ([`ProgramState`]) when it or a front starts, and after each change. Both masters
//! report a process that was killed for lack of memory ([`OUT_OF_MEMORY`]).
#![forbid(unsafe_code)]

use std::borrow::Cow;

/// The message of any master to the front that a process of the pool was killed for lack of memory,
/// without a descriptor. No other message of a master looks like this one.
pub const OUT_OF_MEMORY: [u8; 8] = [0, 0, 0, 0, 255, 255, 255, 254];

/// The largest message to a master, in bytes; the text about a request is cut to fit.
pub const MAX_MESSAGE: usize = 1024;

const FRONT_STARTED: u8 = 1;
const WORKERS: u8 = 2;
const REPLACE: u8 = 3;
const TRACE: u8 = 4;
const SERVED: u8 = 5;
const DIED_AT_WORK: u8 = 6;

/// A message to the master of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToMaster<'a> {
    /// A front has started. The first message of each front.
    FrontStarted {
        /// The time of the start in nanoseconds of `CLOCK_MONOTONIC`, before the front has received
        /// a worker.
        at: u64,
    },
    /// The master should keep this number of workers.
    Workers(u32),
    /// A worker is stuck and must be replaced.
    Replace {
        /// Its process id.
        pid: u32,
        /// The request at which it is stuck, for the log.
        request: Cow<'a, str>,
    },
    /// A worker has worked on a request for a long time.
    Trace {
        /// Its process id.
        pid: u32,
    },
    /// A process of a program, or a child of one, has answered a request.
    Served {
        /// Its process id.
        pid: u32,
    },
    /// A process of a program has closed a connection after it read a request and before it
    /// answered.
    DiedAtWork,
}

impl<'a> ToMaster<'a> {
    /// The message in bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, number, text) = match self {
            Self::FrontStarted { at } => {
                return [&[FRONT_STARTED][..], &at.to_be_bytes()].concat();
            }
            Self::Workers(count) => (WORKERS, count, ""),
            Self::Replace { pid, request } => (REPLACE, pid, &**request),
            Self::Trace { pid } => (TRACE, pid, ""),
            Self::Served { pid } => (SERVED, pid, ""),
            Self::DiedAtWork => return vec![DIED_AT_WORK],
        };
        let mut message = vec![kind];
        message.extend(number.to_be_bytes());
        let room = MAX_MESSAGE - message.len();
        message.extend(&text.as_bytes()[..text.len().min(room)]);
        message
    }

    /// Reads a message; `None` if it is invalid. Control characters in the text about a request,
    /// which may come from a client, are replaced, so that the text fits into one line.
    #[must_use]
    pub fn decode(message: &'a [u8]) -> Option<Self> {
        let (&kind, content) = message.split_first()?;
        let number = || content.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        match kind {
            FRONT_STARTED => {
                Some(Self::FrontStarted { at: u64::from_be_bytes(content.try_into().ok()?) })
            }
            WORKERS if content.len() == 4 => Some(Self::Workers(number()?)),
            TRACE if content.len() == 4 => Some(Self::Trace { pid: number()? }),
            SERVED if content.len() == 4 => Some(Self::Served { pid: number()? }),
            DIED_AT_WORK if content.is_empty() => Some(Self::DiedAtWork),
            REPLACE => {
                let request = String::from_utf8_lossy(content.get(4..)?);
                let is_bad = |c: char| c.is_control();
                let request = if request.contains(is_bad) {
                    request.replace(is_bad, "?").into()
                } else {
                    request
                };
                Some(Self::Replace { pid: number()?, request })
            }
            _ => None,
        }
    }
}

/// The most processes of a program in one report to the front.
const MOST_PROCESSES: usize = 1024;
/// The most bytes of the reason why no process runs; a longer text is cut.
const MAX_REASON: usize = 512;
/// The largest message to the front about a program, in bytes.
pub const MAX_STATE: usize = 4 + 4 * MOST_PROCESSES + MAX_REASON;

/// The state of a program's processes. Each message carries a descriptor of the pool's listening
/// socket (`O_PATH`), which the front connects to, and, if the pool keeps fragments, one of the
/// counters by which the front purges them.
///
/// | content | meaning |
/// |---|---|
/// | u32 | number of processes |
/// | u32 for each | process id |
/// | text | the reason why no process runs; empty if some run, or are about to |
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramState {
    /// The ids of the running processes.
    pub processes: Vec<u32>,
    /// The reason why no process runs and none will be started at once. Completes the sentence "the
    /// program ...".
    pub down: Option<String>,
}

impl ProgramState {
    /// The message in bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let processes = &self.processes[..self.processes.len().min(MOST_PROCESSES)];
        let count = u32::try_from(processes.len()).unwrap_or_default();
        let mut message = count.to_be_bytes().to_vec();
        processes.iter().for_each(|pid| message.extend(pid.to_be_bytes()));
        let reason = self.down.as_deref().unwrap_or_default();
        message.extend(&reason.as_bytes()[..reason.len().min(MAX_REASON)]);
        message
    }

    /// Reads a message; `None` if it is invalid.
    #[must_use]
    pub fn decode(message: &[u8]) -> Option<Self> {
        let (count, rest) = message.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
        let (processes, reason) = rest.split_at_checked(count.checked_mul(4)?)?;
        let (processes, _) = processes.as_chunks::<4>();
        let processes = processes.iter().map(|pid| u32::from_be_bytes(*pid)).collect();
        let down = (!reason.is_empty()).then(|| String::from_utf8_lossy(reason).into_owned());
        Some(Self { processes, down })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replace(request: &str) -> ToMaster<'_> {
        ToMaster::Replace { pid: 4711, request: request.into() }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for message in [
            ToMaster::FrontStarted { at: u64::MAX - 1 },
            ToMaster::Workers(0),
            ToMaster::Workers(u32::MAX),
            replace("GET /a"),
            replace(""),
            ToMaster::Trace { pid: 4711 },
            ToMaster::Served { pid: 4711 },
            ToMaster::DiedAtWork,
        ] {
            assert_eq!(ToMaster::decode(&message.encode()), Some(message.clone()));
        }
    }

    #[test]
    fn a_long_request_is_cut_and_cannot_forge_lines_of_the_log() {
        let long = "é".repeat(MAX_MESSAGE);
        let message = replace(&long).encode();
        assert_eq!(message.len(), MAX_MESSAGE);
        assert!(matches!(ToMaster::decode(&message), Some(ToMaster::Replace { pid: 4711, .. })));
        let message = replace("GET /\nsendoff: all is well\x1b[2J").encode();
        assert_eq!(ToMaster::decode(&message), Some(replace("GET /?sendoff: all is well?[2J")));
    }

    #[test]
    fn other_bytes_are_no_message() {
        for bad in [
            &b""[..],
            &[0],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0],
            &[2, 0, 0, 0, 1, 0],
            &[3, 0, 0, 0],
            &[4, 0, 0, 0],
            &[4, 0, 0, 0, 1, 0],
            &[5, 0, 0, 0],
            &[6, 0],
            &[7, 0, 0, 0, 1],
        ] {
            assert_eq!(ToMaster::decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_was_ended_for_want_of_memory_looks_like_no_state() {
        for down in [None, Some("x".to_owned())] {
            for processes in [vec![], vec![u32::MAX - 1]] {
                let state = ProgramState { processes, down: down.clone() };
                assert_ne!(*state.encode(), OUT_OF_MEMORY);
            }
        }
    }

    #[test]
    fn the_state_of_a_program_is_read_as_it_was_written() {
        for (processes, down) in [
            (vec![], None),
            (vec![], Some("ended (exit status: 1)".to_owned())),
            (vec![1, u32::MAX], None),
        ] {
            let state = ProgramState { processes, down };
            assert_eq!(ProgramState::decode(&state.encode()), Some(state));
        }
        let large = ProgramState { processes: vec![7; 5000], down: Some("é".repeat(5000)) };
        let read = ProgramState::decode(&large.encode()).unwrap();
        assert_eq!((large.encode().len(), read.processes.len()), (MAX_STATE, MOST_PROCESSES));
        for bad in [&b""[..], &[0, 0, 0], &[0, 0, 0, 1, 0, 0, 0], &[255; 20]] {
            assert_eq!(ProgramState::decode(bad), None, "{bad:?}");
        }
    }
}
