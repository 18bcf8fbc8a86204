//! Counts of requests, for limits that the nodes share: a stream of which each node reads what is
//! new. Counts that are lost while the engine is away are not made up for.

use std::convert::Infallible;
use std::time::Duration;

use redis::{Value, cmd};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::engine::{Connection, Trouble};
use crate::node::Node;
use crate::record::{COUNTS, Record, add, entries};

/// The time in which counts are collected until they are sent.
const PERIOD: Duration = Duration::from_millis(100);

/// The time for which the engine holds a question for new records back.
const HOLD: Duration = Duration::from_secs(2);

/// Most records of one answer.
const BATCH: u32 = 64;

/// The limits of the server.
pub trait Counts: Send + Sync {
    /// Notified when there are counts for other nodes.
    fn counted(&self) -> &Notify;

    /// Takes the counts for other nodes out; `None`: there are none.
    fn take(&self) -> Option<Vec<u8>>;

    /// Adds the counts of another node.
    ///
    /// # Errors
    /// A sentence: these are no counts.
    fn add(&self, counts: &[u8]) -> Result<(), String>;
}

/// Sends counts as they come.
pub(crate) async fn send(node: &Node, connection: &Connection) -> Result<Infallible, Trouble> {
    let counts = &node.parts.counts;
    // These are from the time without the engine.
    counts.take();
    loop {
        counts.counted().notified().await;
        sleep(PERIOD).await;
        if let Some(taken) = counts.take() {
            let record = add(&COUNTS, &node.counts, &node.me, Some(&taken));
            connection.ask::<Value>(&record).await?;
        }
    }
}

/// The place in the stream from which on a node reads: a mark of its own.
pub(crate) async fn begin(node: &Node, connection: &Connection) -> Result<String, Trouble> {
    connection.ask(&add(&COUNTS, &node.counts, &node.me, None)).await
}

/// Adds the counts of other nodes as they come, from `last` on.
pub(crate) async fn follow(
    node: &Node,
    connection: &Connection,
    mut last: String,
) -> Result<Infallible, Trouble> {
    loop {
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(BATCH).arg("BLOCK").arg(HOLD.as_millis().to_string());
        read.arg("STREAMS").arg(&node.counts).arg(&last);
        let answer = connection.ask_patiently::<Value>(&read, HOLD).await?;
        let Some(stream) = only_stream(answer)? else { continue };
        let unexpected = || Trouble::unexpected("XREAD");
        for entry in entries(&COUNTS, stream, &node.me).ok_or_else(unexpected)? {
            let broken = match entry.record {
                Record::Nothing | Record::Newer => None,
                Record::Content(counts) => node.parts.counts.add(&counts).err(),
                Record::Broken(why) => Some(why),
            };
            if let Some(why) = broken {
                let why = format!("record {}: {why}", entry.id);
                node.parts.state.note_broken(&node.counts, &why);
            }
            last = entry.id;
        }
    }
}

/// The entries in an answer about one stream; `None`: nothing is new.
fn only_stream(answer: Value) -> Result<Option<Value>, Trouble> {
    let unexpected = || Trouble::unexpected("XREAD");
    let streams = match answer {
        Value::Nil => return Ok(None),
        Value::Array(streams) => streams,
        _ => return Err(unexpected()),
    };
    let Some(Value::Array(mut stream)) = streams.into_iter().next() else {
        return Err(unexpected());
    };
    stream.pop().map(Some).ok_or_else(unexpected)
}
