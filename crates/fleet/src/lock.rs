//! A lock in the engine, whose life its owner prolongs, and changes that only its owner makes.
//!
//! The engine carries out each script as a whole. Each compares the random token of the owner, so
//! an owner that has lost the lock without knowing it neither gives it back nor changes anything.

use std::time::{Duration, Instant};

use redis::{Cmd, cmd};

/// The life of a lock, unless its owner prolongs it: the time for which other nodes wait for an
/// owner that has died.
pub(crate) const LIFE: Duration = Duration::from_secs(30);

/// Takes the lock: 0, another node has it; 1, it was free; 2, there was something that does not
/// end as a lock does.
const TAKE: &str = "local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left <= tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if left == -2 then return 1 end
return 2";

/// Prolongs the lock of its owner.
const PROLONG: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// Gives the lock of its owner back, or deletes something else.
const DELETE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
return 1";

/// Sets a value.
const PUT: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1";

/// The lock of this node.
#[derive(Debug)]
pub struct FleetLock {
    /// The name of its key.
    pub(crate) key: String,
    token: String,
    /// A time before the one at which the engine began to count its life.
    pub(crate) asked: Instant,
}

/// The outcome of an attempt to take the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Held,
    Free,
    Foreign,
}

impl Taken {
    /// The engine's answer to [`FleetLock::take`].
    pub(crate) fn of(answer: i64) -> Self {
        match answer {
            0 => Self::Held,
            1 => Self::Free,
            _ => Self::Foreign,
        }
    }
}

impl FleetLock {
    /// A lock that has not been taken yet.
    pub(crate) fn new(key: String, token: String) -> Self {
        Self { key, token, asked: Instant::now() }
    }

    pub(crate) fn take(&self) -> Cmd {
        script(TAKE, &[&self.key], &[self.token.as_bytes(), &millis(LIFE)])
    }

    pub(crate) fn prolong(&self) -> Cmd {
        script(PROLONG, &[&self.key], &[self.token.as_bytes(), &millis(LIFE)])
    }

    pub(crate) fn give_back(&self) -> Cmd {
        self.delete(&self.key)
    }

    pub(crate) fn delete(&self, key: &str) -> Cmd {
        script(DELETE, &[&self.key, key], &[self.token.as_bytes()])
    }

    pub(crate) fn put(&self, key: &str, value: &[u8], life: Duration) -> Cmd {
        script(PUT, &[&self.key, key], &[self.token.as_bytes(), value, &millis(life)])
    }
}

/// A number of milliseconds that the engine takes as a life.
fn millis(life: Duration) -> Vec<u8> {
    u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1).to_string().into_bytes()
}

fn script(text: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    let mut eval = cmd("EVAL");
    eval.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    eval
}
