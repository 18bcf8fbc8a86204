//! Reads the stream of purges, and obeys it.
//!
//! Each look at the stream begins with the last record that is known. If it is no longer there, the
//! stream was trimmed beyond it, or the engine has lost it, and records behind it may be gone as
//! well: all pages are purged, and the node goes on at a mark of its own. So it does if a record is too
//! long to be read.
//!
//! Few records are asked for at once if more of them have not come in time.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use redis::{Value, cmd};

use crate::engine::{Connection, Trouble};
use crate::node::Node;
use crate::position::Position;
use crate::record::{Entry, MAX_PURGE, PURGES, Record, add, entries};

/// The time for which the engine holds a question for new records back. Between two questions a
/// node notices that the engine has lost its data.
const HOLD: Duration = Duration::from_secs(2);

/// Most new records of one answer. Together with the last known one the longest ones have 8 MiB.
pub(crate) const BATCH: u32 = 128;

/// Bytes above which the last record is not read again with each look. The longest of a node has
/// fewer.
const LONG: usize = 2 * MAX_PURGE;

/// The least time between two losses of the last record. If the engine loses it sooner, the node
/// tries again later, instead of purging all pages again and again.
const LASTING: Duration = Duration::from_secs(1);

/// Reads by one connection.
pub(crate) struct Reader<'n> {
    node: &'n Node,
    connection: &'n Connection,
    position: Position,
    /// The time of the last mark of this node.
    marked: Option<Instant>,
}

impl<'n> Reader<'n> {
    /// Reads all records that the node has missed.
    pub(crate) async fn catch_up(
        node: &'n Node,
        connection: &'n Connection,
    ) -> Result<Self, Trouble> {
        let run = run(connection).await?;
        let stream = &node.stream;
        let (position, marked) = match node.parts.positions.get() {
            Some(known) if known.stream == *stream && known.run == run => (known, None),
            known => {
                let why = known.map(|known| match known.stream == *stream {
                    true => "the engine was started again, or was a replica",
                    false => "the fleet is another one",
                });
                let position = Position { run, stream: stream.clone(), last: String::new() };
                (begin(node, connection, position, why).await?, Some(Instant::now()))
            }
        };
        let mut reader = Self { node, connection, position, marked };
        if node.skips.take() {
            reader.begin("a record of the stream is too long to be read").await?;
        }
        while reader.read().await? > 0 {}
        Ok(reader)
    }

    /// Obeys records as they come.
    pub(crate) async fn follow(&mut self) -> Result<Infallible, Trouble> {
        loop {
            if self.read().await? == 0 {
                let mut wait = cmd("XREAD");
                wait.arg("COUNT").arg(1).arg("BLOCK").arg(millis(HOLD));
                wait.arg("STREAMS").arg(&self.position.stream).arg(&self.position.last);
                // The next look reads the records.
                let news = self.connection.ask_patiently::<Value>(&wait, HOLD).await?;
                if news == Value::Nil {
                    self.node.parts.positions.save();
                }
            }
        }
    }

    /// Obeys the records that are there. Returns their number, or 1 if all pages were purged.
    async fn read(&mut self) -> Result<usize, Trouble> {
        let Position { stream, last, .. } = &self.position;
        let batch = &self.node.batch;
        let mut range = cmd("XRANGE");
        range.arg(stream).arg(last).arg("+").arg("COUNT").arg(batch.get() + 1);
        let answer = self.connection.ask(&range).await.inspect_err(|_| {
            let has_too_much = self.connection.had_too_much();
            self.node.skips.set(has_too_much && batch.get() == 1);
            // No number of records that nodes have written is too much.
            batch.set(if has_too_much { 1 } else { (batch.get() / 2).max(1) });
        })?;
        batch.set((batch.get() * 2).min(BATCH));
        let entries =
            entries(&PURGES, answer, &self.node.me).ok_or_else(|| Trouble::unexpected("XRANGE"))?;
        let (known, new) = match entries.split_first() {
            Some((first, new)) if first.id == *last => (true, new),
            _ => (false, &[][..]),
        };
        if !known {
            if self.marked.is_some_and(|marked| marked.elapsed() < LASTING) {
                return Err(Trouble("it loses the records of its stream".to_owned()));
            }
            self.begin("the stream no longer has the last record that this node has read").await?;
            return Ok(1);
        }
        for Entry { id, record, .. } in new {
            self.obey(id, record);
        }
        if new.iter().any(|entry| entry.record == Record::Newer) {
            self.node.parts.state.note_newer();
            self.node.parts.obey.obey_everything();
        }
        if let Some(entry) = new.last() {
            self.position.last.clone_from(&entry.id);
            self.node.parts.positions.set(self.position.clone());
            if entry.len > LONG {
                // The next looks begin with this mark.
                let mark = add(&PURGES, &self.position.stream, &self.node.me, None);
                self.connection.ask::<Value>(&mark).await?;
            }
        }
        Ok(new.len())
    }

    /// Purges all pages, and goes on at a mark.
    async fn begin(&mut self, why: &str) -> Result<(), Trouble> {
        let position = self.position.clone();
        self.position = begin(self.node, self.connection, position, Some(why)).await?;
        self.marked = Some(Instant::now());
        Ok(())
    }

    fn obey(&self, id: &str, record: &Record) {
        let Node { parts, stream, .. } = self.node;
        match record {
            Record::Nothing => {}
            Record::Content(purge) => match parts.obey.obey(purge) {
                Ok(()) => parts.state.note_obeyed(),
                Err(why) => parts.state.note_broken(stream, &format!("record {id}: {why}")),
            },
            // The caller looks for these.
            Record::Newer => {}
            Record::Broken(why) => parts.state.note_broken(stream, &format!("record {id}: {why}")),
        }
    }
}

/// Marks the end of the stream, and purges all pages: no record before the mark matters then.
/// `why`: the reason why records may be missing; `None`: the node has just started.
async fn begin(
    node: &Node,
    connection: &Connection,
    position: Position,
    why: Option<&str>,
) -> Result<Position, Trouble> {
    let last = connection.ask(&add(&PURGES, &node.stream, &node.me, None)).await?;
    if let Some(why) = why {
        node.parts.state.note_restart(why);
    }
    node.parts.obey.obey_everything();
    let position = Position { last, ..position };
    node.parts.positions.set(position.clone());
    node.parts.positions.save();
    Ok(position)
}

/// The engine's names for its run, and for the history of its data: a primary that was a replica in
/// between keeps its run, and has another history.
async fn run(connection: &Connection) -> Result<String, Trouble> {
    let text: String = connection.ask(&cmd("INFO")).await?;
    let value = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).ok_or_else(|| Trouble::unexpected("INFO"))
    };
    Ok(format!("{} {}", value("run_id")?, value("master_replid")?))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
