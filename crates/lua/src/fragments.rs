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
pub trait FragmentStore: fmt::Debug {
    /// The fragment with this key, or the permit to make it with these tags; `None`: it is made, and
    /// not kept.
    fn ask(&self, key: &[u8], tags: &[&[u8]]) -> Option<FragmentAnswer>;

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
pub enum FragmentAnswer {
    /// Its bytes.
    Kept(Vec<u8>),
    /// The caller makes it.
    Make(Box<dyn FragmentPermit>),
}

/// The permit to make a fragment. Others may wait until it is dropped.
pub trait FragmentPermit: fmt::Debug {
    /// Keeps the fragment for this time. False: it does not fit, or was purged meanwhile.
    fn keep(&self, life: Duration, bytes: &[u8]) -> bool;
}

/// A fragment that a run makes.
#[derive(Debug)]
pub(crate) struct BeingMade {
    number: u64,
    life: Duration,
    begun: Duration,
    /// `None`: it is not kept.
    permit: Option<Box<dyn FragmentPermit>>,
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

/// Maximum length of a key or a tag in bytes.
const MAX_NAME: usize = 4096;

/// Steps that take as long as taking the locks and looking the fragment up.
const ASKED: u64 = 200;

/// Bytes of names that are hashed in the time of one step.
const HASHED_PER_STEP: usize = 4;

/// Bytes of fragments that are copied in the time of one step.
const COPIED_PER_STEP: usize = 16;

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
        let found = with_store(current, &key, |store, key| store.fetch(key))?;
        found.flatten().map_or(Ok(Value::Nil), |bytes| given(lua, current, &bytes))
    })?;
    type Entry = (LuaString, f64, LuaString, Option<Table>);
    functions.add("store", |_, current, (key, seconds, text, tags): Entry| {
        let (life, text) = (life(seconds)?, text.as_bytes());
        current.budget.work(steps(text.len(), COPIED_PER_STEP))?;
        let stored = with_tags(current, tags, |tags| {
            with_store(current, &key, |store, key| {
                !life.is_zero() && store.store(key, tags, life, &text)
            })
        })?;
        Ok(stored.flatten().unwrap_or(false))
    })?;
    functions.add("delete", |_, current, key: LuaString| {
        with_store(current, &key, |store, key| store.delete(key)).map(drop)
    })?;
    functions.add("purge", |_, current, tags: Option<Table>| {
        let Some(tags) = tags else {
            let all = current.with(|exchange| Ok(exchange.fragments.clone()))?;
            all.iter().for_each(|store| store.purge(None));
            return current.budget.work(ASKED);
        };
        for number in 1..=tags.raw_len() {
            let tag: LuaString = tags.raw_get(number)?;
            with_store(current, &tag, |store, tag| store.purge(Some(tag)))?;
        }
        Ok(())
    })?;
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
    let asked = with_tags(current, tags, |tags| {
        let ask = |store: &dyn FragmentStore, key: &[u8]| {
            if life.is_zero() { None } else { store.ask(key, tags) }
        };
        with_store(current, key, ask).map(Option::flatten)
    })?;
    let permit = match asked.flatten() {
        Some(FragmentAnswer::Kept(bytes)) => return Ok((given(lua, current, &bytes)?, Value::Nil)),
        Some(FragmentAnswer::Make(permit)) => Some(permit),
        None => None,
    };
    current.with_running(|running| {
        if running.making.len() == MAX_NESTED {
            return Ok((Value::Nil, Value::Nil));
        }
        running.made += 1;
        let number = running.made;
        running.making.push(BeingMade { number, life, begun: now, permit });
        Ok((Value::Nil, number.into_lua(lua)?))
    })
}

/// Ends the making of a fragment. Nothing is kept unless it is a string.
fn end(current: &Current, now: Duration, number: u64, text: &Value) -> Result<()> {
    current.with_running(|running| {
        let place = running.making.iter().position(|made| made.number == number);
        let Some(place) = place else { return Ok(()) };
        let BeingMade { life, begun, permit, .. } = running.making.swap_remove(place);
        let count = &mut running.exchange.fragment_count;
        count.made += 1;
        count.time += now.saturating_sub(begun);
        if let (Some(permit), Value::String(text)) = (permit, text) {
            permit.keep(life, &text.as_bytes());
        }
        Ok(())
    })
}

/// Calls a function with the store and a key or a tag; `None`: there is no store, or the name is too
/// long for it.
fn with_store<T>(
    current: &Current,
    name: &LuaString,
    act: impl FnOnce(&dyn FragmentStore, &[u8]) -> T,
) -> Result<Option<T>> {
    let name = name.as_bytes();
    if name.len() > MAX_NAME {
        return Ok(None);
    }
    current.budget.work(ASKED + steps(name.len(), HASHED_PER_STEP))?;
    current.with(|exchange| Ok(exchange.fragments.as_deref().map(|store| act(store, &name))))
}

/// Calls a function with the tags of a fragment; `None`: they are too many or too long.
fn with_tags<T>(
    current: &Current,
    tags: Option<Table>,
    act: impl FnOnce(&[&[u8]]) -> Result<T>,
) -> Result<Option<T>> {
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
    let all = bytes.iter().map(|tag| tag.len()).sum();
    current.budget.work(steps(all, HASHED_PER_STEP))?;
    act(&bytes.iter().map(|tag| &**tag).collect::<Vec<_>>()).map(Some)
}

/// A lifetime in seconds. A fragment with none is not kept.
fn life(seconds: f64) -> Result<Duration> {
    if seconds.is_nan() {
        return Err(Error::runtime("the time to keep it is not a number"));
    }
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

fn steps(bytes: usize, per_step: usize) -> u64 {
    (bytes / per_step) as u64
}

/// A kept fragment as a string, which is counted.
fn given(lua: &Lua, current: &Current, bytes: &[u8]) -> Result<Value> {
    current.budget.work(steps(bytes.len(), COPIED_PER_STEP))?;
    current.with(|exchange| {
        exchange.fragment_count.kept += 1;
        Ok(())
    })?;
    lua.create_string(bytes).map(Value::String)
}
