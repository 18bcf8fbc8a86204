//! `sendoff.fragment` and `sendoff.fragments`: parts of pages that one script makes and all scripts of
//! the site send (`docs/fragments.md`).
//!
//! A fragment that is being made belongs to its run, so that the permit is given back even if the
//! script never goes on: when its client leaves while it waits, or when its time is over.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use mlua::{Error, IntoLua, Lua, LuaString, Result, Table, Value};

use crate::current::{Current, Functions};
use crate::machine::Machine;

/// The fragments of a site's scripts.
pub trait Fragments: fmt::Debug {
    /// The fragment with this key, or the permit to make it with these tags; `None`: it is made, and
    /// not kept.
    fn ask(&self, key: &[u8], tags: &[&[u8]]) -> Option<Asked>;

    /// The kept fragment, if its time is not over.
    fn fetch(&self, key: &[u8]) -> Option<Vec<u8>>;

    /// Keeps a fragment. False: it does not fit.
    fn store(&self, key: &[u8], tags: &[&[u8]], life: Duration, bytes: &[u8]) -> bool;

    /// Purges one fragment.
    fn delete(&self, key: &[u8]);

    /// Purges the fragments with this tag, or all.
    fn purge(&self, tag: Option<&[u8]>);
}

/// The answer to a request for a fragment.
#[derive(Debug)]
pub enum Asked {
    /// Its bytes.
    Kept(Vec<u8>),
    /// The caller makes it.
    Make(Box<dyn Making>),
}

/// A fragment that is being made. Dropping this ends the making.
pub trait Making: fmt::Debug {
    /// Keeps it for this time. False: it does not fit, or was purged meanwhile.
    fn keep(&self, life: Duration, bytes: &[u8]) -> bool;
}

/// A fragment that a run makes.
#[derive(Debug)]
pub(crate) struct BeingMade {
    number: u64,
    life: Duration,
    begun: Duration,
    /// `None`: it is not kept.
    making: Option<Box<dyn Making>>,
}

/// Counts the fragments of a response, for `sendoff explain`.
#[derive(Debug, Clone, Copy, Default)]
pub struct FragmentCount {
    kept: u32,
    made: u32,
    time: Duration,
}

impl FragmentCount {
    /// A sentence about the fragments; `None`: there are none.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let Self { kept, made, time } = self;
        let (all, millis) = (kept.saturating_add(*made), time.as_millis());
        (all > 0)
            .then(|| format!("made of {all} fragments, {kept} kept, {made} made in {millis} ms"))
    }
}

/// Maximum number of fragments that a run makes within one another with others waiting for them.
const MAX_NESTED: usize = 16;

/// Maximum number of tags of a fragment.
const MAX_TAGS: usize = 64;

/// Maximum length of a tag in bytes, and of a key that is worth asking for.
const MAX_NAME: usize = 4096;

/// Steps that take as long as asking for a fragment: locks, hashes and, for 64 tags, counters.
const ASKED: u64 = 200;

/// Bytes that are copied in the time of one step.
const BYTES_PER_STEP: usize = 16;

/// Adds the functions: to the table `sendoff` and, for the prelude, to `rust`.
pub(crate) fn add(sendoff: &Table, rust: &Functions<'_>, machine: &Rc<dyn Machine>) -> Result<()> {
    let clock = Rc::clone(machine);
    type Wanted = (LuaString, f64, Option<Table>);
    // The bytes; or nil and the number of the fragment that the caller makes; or nothing.
    rust.add("ask_fragment", move |lua, current, (key, seconds, tags): Wanted| {
        ask(lua, current, clock.now(), &key, life(seconds)?, tags)
    })?;
    let clock = Rc::clone(machine);
    rust.add("end_fragment", move |_, current, (number, text): (u64, Value)| {
        end(current, clock.now(), number, &text)
    })?;
    let functions = Functions::new(rust.lua, rust.current)?;
    functions.add("fetch", |lua, current, key: LuaString| {
        current.budget.work(ASKED)?;
        let found = current.with(|exchange| {
            let fragments = exchange.fragments.as_ref();
            let found = fragments.and_then(|fragments| fragments.fetch(&key.as_bytes()));
            exchange.fragment_count.kept += u32::from(found.is_some());
            Ok(found)
        })?;
        found.map_or(Ok(Value::Nil), |bytes| given(lua, current, &bytes))
    })?;
    type Entry = (LuaString, f64, LuaString, Option<Table>);
    functions.add("store", |_, current, (key, seconds, text, tags): Entry| {
        let life = life(seconds)?;
        let text = text.as_bytes();
        current.budget.work(ASKED + steps(text.len()))?;
        with_tags(tags, |tags| {
            current.with(|exchange| {
                let fragments = exchange.fragments.as_ref().filter(|_| !life.is_zero());
                Ok(fragments.is_some_and(|kept| kept.store(&key.as_bytes(), tags, life, &text)))
            })
        })
        .map(|stored| stored.unwrap_or(false))
    })?;
    functions.add("delete", |_, current, key: LuaString| {
        current.with(|exchange| {
            exchange.fragments.iter().for_each(|fragments| fragments.delete(&key.as_bytes()));
            Ok(())
        })
    })?;
    functions.add("purge", |_, current, tags: Option<Table>| purge(current, tags))?;
    sendoff.raw_set("fragments", functions.table)
}

fn ask(
    lua: &Lua,
    current: &Current,
    now: Duration,
    key: &LuaString,
    life: Duration,
    tags: Option<Table>,
) -> Result<(Value, Value)> {
    current.budget.work(ASKED)?;
    let asked = with_tags(tags, |tags| {
        current.with(|exchange| {
            let fragments = exchange.fragments.as_ref().filter(|_| !life.is_zero());
            Ok(fragments.and_then(|fragments| fragments.ask(&key.as_bytes(), tags)))
        })
    })?;
    let making = match asked.flatten() {
        Some(Asked::Kept(bytes)) => {
            current.with(|exchange| {
                exchange.fragment_count.kept += 1;
                Ok(())
            })?;
            return Ok((given(lua, current, &bytes)?, Value::Nil));
        }
        Some(Asked::Make(making)) => Some(making),
        None => None,
    };
    current.with_running(|running| {
        if running.making.len() == MAX_NESTED {
            return Ok((Value::Nil, Value::Nil));
        }
        running.made += 1;
        let number = running.made;
        running.making.push(BeingMade { number, life, begun: now, making });
        Ok((Value::Nil, number.into_lua(lua)?))
    })
}

/// Ends the making of a fragment. Nothing is kept unless it is a string.
fn end(current: &Current, now: Duration, number: u64, text: &Value) -> Result<()> {
    current.with_running(|running| {
        let place = running.making.iter().position(|made| made.number == number);
        let Some(place) = place else { return Ok(()) };
        let BeingMade { life, begun, making, .. } = running.making.swap_remove(place);
        let count = &mut running.exchange.fragment_count;
        count.made += 1;
        count.time += now.saturating_sub(begun);
        if let (Some(making), Value::String(text)) = (making, text) {
            making.keep(life, &text.as_bytes());
        }
        Ok(())
    })
}

fn purge(current: &Current, tags: Option<Table>) -> Result<()> {
    let purge = |tag: Option<&[u8]>| {
        current.with(|exchange| {
            exchange.fragments.iter().for_each(|fragments| fragments.purge(tag));
            Ok(())
        })
    };
    let Some(tags) = tags else { return purge(None) };
    for number in 1..=tags.raw_len() {
        let tag: LuaString = tags.raw_get(number)?;
        let tag = tag.as_bytes();
        current.budget.work(ASKED)?;
        // No fragment has a longer tag.
        if tag.len() <= MAX_NAME {
            purge(Some(&tag))?;
        }
    }
    Ok(())
}

/// Calls a function with the tags of a fragment; `None`: they are too many or too long.
fn with_tags<T>(tags: Option<Table>, act: impl FnOnce(&[&[u8]]) -> Result<T>) -> Result<Option<T>> {
    let count = tags.as_ref().map_or(0, Table::raw_len);
    if count > MAX_TAGS {
        return Ok(None);
    }
    let texts = tags.iter().flat_map(|tags| (1..=count).map(|number| tags.raw_get(number)));
    let texts = texts.collect::<Result<Vec<LuaString>>>()?;
    let bytes: Vec<_> = texts.iter().map(LuaString::as_bytes).collect();
    if bytes.iter().any(|tag| tag.len() > MAX_NAME) {
        return Ok(None);
    }
    act(&bytes.iter().map(|tag| &**tag).collect::<Vec<_>>()).map(Some)
}

/// A lifetime in seconds; none is not kept.
fn life(seconds: f64) -> Result<Duration> {
    if seconds.is_nan() {
        return Err(Error::runtime("the time to keep it is not a number"));
    }
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

fn steps(bytes: usize) -> u64 {
    (bytes / BYTES_PER_STEP) as u64
}

/// A kept fragment as a string.
fn given(lua: &Lua, current: &Current, bytes: &[u8]) -> Result<Value> {
    current.budget.work(steps(bytes.len()))?;
    lua.create_string(bytes).map(Value::String)
}
