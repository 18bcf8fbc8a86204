//! Fragments that scripts make and ask for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use super::{Sandbox, looks};
use crate::{
    Exchange, FragmentAnswer, FragmentPermit, FragmentStore, Limits, Phase, ScriptDecision, Step,
};

/// Fragments of one state, without lifetimes and tags.
#[derive(Debug, Default, Clone)]
struct Kept(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: RefCell<HashMap<Vec<u8>, Vec<u8>>>,
    tags: RefCell<Vec<Vec<u8>>>,
    /// Number of fragments that are being made.
    open: Cell<usize>,
    fetched: Cell<usize>,
}

#[derive(Debug)]
struct Open(Kept, Vec<u8>);

impl Drop for Open {
    fn drop(&mut self) {
        let open = &self.0.0.open;
        open.set(open.get() - 1);
    }
}

impl FragmentPermit for Open {
    fn keep(&self, life: Duration, bytes: &[u8]) -> bool {
        assert_eq!(life, Duration::from_secs(60));
        self.0.0.kept.borrow_mut().insert(self.1.clone(), bytes.to_vec());
        true
    }
}

impl FragmentStore for Kept {
    fn ask(&self, key: &[u8], tags: &[&[u8]]) -> Option<FragmentAnswer> {
        if let Some(bytes) = self.fetch(key) {
            return Some(FragmentAnswer::Kept(bytes));
        }
        self.0.tags.borrow_mut().extend(tags.iter().map(|tag| tag.to_vec()));
        self.0.open.set(self.0.open.get() + 1);
        Some(FragmentAnswer::Make(Box::new(Open(self.clone(), key.to_vec()))))
    }

    fn fetch(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.fetched.set(self.0.fetched.get() + 1);
        self.0.kept.borrow().get(key).cloned()
    }

    fn store(&self, key: &[u8], _: &[&[u8]], _: Duration, bytes: &[u8]) -> bool {
        self.0.kept.borrow_mut().insert(key.to_vec(), bytes.to_vec());
        true
    }

    fn delete(&self, key: &[u8]) {
        self.0.kept.borrow_mut().remove(key);
    }

    fn purge(&self, tag: Option<&[u8]>) {
        self.0.tags.borrow_mut().push(tag.unwrap_or(b"all").to_vec());
    }
}

impl Sandbox {
    fn exchange_with(&self, kept: &Kept) -> Exchange {
        Exchange { fragments: Some(Rc::new(kept.clone())), ..self.exchange(Phase::Route) }
    }

    /// The text of a script's answer, or its error.
    fn of(&self, kept: &Kept, source: &str) -> String {
        let source =
            format!("lighty.content = {{ tostring((function() {source} end)()) }} return 200");
        let (exchange, outcome) =
            self.runtime.run(&self.compile(&source), self.exchange_with(kept));
        match outcome {
            ScriptDecision::Answer(200) => super::text(&exchange),
            other => format!("{other:?}"),
        }
    }
}

#[test]
fn a_fragment_is_made_once() {
    let (sandbox, kept) = (Sandbox::new(), Kept::default());
    let source = "n = 0
        local function make() n = n + 1 return 'made ' .. n end
        local both = sendoff.fragment('k', 60, make, { 'a', 'b' }) .. sendoff.fragment('k', 60, make)
        return both .. tostring(sendoff.fragments.fetch('k')) .. tostring(sendoff.fragments.fetch('other'))";
    assert_eq!(sandbox.of(&kept, source), "made 1made 1made 1nil");
    assert_eq!(*kept.0.tags.borrow(), [b"a", b"b"]);
    let source = "local first = sendoff.fragments.store('s', 60, 'stored', { 'c' })
        sendoff.fragments.delete('k') sendoff.fragments.purge({ 'd' }) sendoff.fragments.purge()
        return tostring(first) .. sendoff.fragments.fetch('s') .. tostring(sendoff.fragments.fetch('k'))";
    assert_eq!(sandbox.of(&kept, source), "truestorednil");
    assert_eq!(kept.0.tags.borrow()[2..], [b"d".to_vec(), b"all".to_vec()]);
    assert!(sandbox.of(&kept, "sendoff.fragments.fetch = nil").contains("read-only"));
    // Without memory, or for no time, it is made each time.
    assert_eq!(sandbox.value("sendoff.fragment('k', 60, function() return 'own' end)"), "own");
    assert_eq!(
        sandbox.of(&kept, "return sendoff.fragment('s', 0, function() return 'new' end)"),
        "new"
    );
}

#[test]
fn an_error_keeps_nothing_and_reaches_the_script() {
    let (sandbox, kept) = (Sandbox::new(), Kept::default());
    for (source, error) in [
        ("return sendoff.fragment('k', 60, function() error('why') end)", "test.lua:1: why"),
        (
            "return sendoff.fragment('k', 60, function() return 5 end)",
            "must return a string, not a number",
        ),
        ("return sendoff.fragment('k', 60)", "function expected, got nil"),
        ("return sendoff.fragment('k', 0/0, function() end)", "not a number"),
        ("return sendoff.fragment({}, 60, function() end)", "string"),
    ] {
        let said = sandbox.of(&kept, source);
        assert!(said.contains("Failed") && said.contains(error), "{source}: {said}");
        let caught = format!("return select(2, pcall(function() {source} end))");
        let said = sandbox.of(&kept, &caught);
        assert!(!said.contains("Failed") && said.contains(error), "{caught}: {said}");
        // The permit is given back when the function has failed, not when the script ends.
        let again = format!(
            "pcall(function() {source} end) return sendoff.fragment('k', 60, function() return 'good' end)"
        );
        assert_eq!(sandbox.of(&kept, &again), "good", "{source}");
        assert_eq!(kept.0.open.get(), 0);
        kept.0.kept.borrow_mut().clear();
    }
}

#[test]
fn fragments_lie_in_one_another_within_a_bound() {
    let (sandbox, kept) = (Sandbox::new(), Kept::default());
    let source = "local function f(n)
            if n == 0 then return '' end
            return sendoff.fragment('k' .. n, 60, function() return n .. ' ' .. f(n - 1) end)
        end
        return f(20)";
    let all = sandbox.of(&kept, source);
    assert!(all.starts_with("20 19 ") && all.ends_with(" 1 "), "{all}");
    assert_eq!((kept.0.kept.borrow().len(), kept.0.open.get()), (16, 0));
    // In coroutines that end in another order, or never.
    let source = "local function make() coroutine.yield() return 'x' end
        local a = coroutine.wrap(function() return sendoff.fragment('a', 60, make) end)
        local b = coroutine.wrap(function() return sendoff.fragment('b', 60, make) end)
        a() b() a()
        return sendoff.fragments.fetch('a')";
    assert_eq!(sandbox.of(&kept, source), "x");
    assert_eq!(kept.0.open.get(), 0);
    assert_eq!(sandbox.of(&kept, "return sendoff.fragments.fetch('b')"), "nil");
}

#[test]
fn a_run_that_ends_gives_its_permits_back() {
    let kept = Kept::default();
    let sandbox = Sandbox::with(Limits { instructions: 100_000, ..Limits::default() });
    for endless in
        ["while true do end", "local t = {} while true do t[#t + 1] = ('x'):rep(9999) end"]
    {
        let source = format!("return sendoff.fragment('k', 60, function() {endless} end)");
        assert!(sandbox.of(&kept, &source).contains("Failed"));
        assert_eq!(kept.0.open.get(), 0, "{endless}");
    }
    // A client that leaves while the script waits.
    let source = "lighty.content = { sendoff.fragment('k', 60, function()
            return sendoff.subrequest('/a').body end) } return 200";
    let step = sandbox.runtime.start(&sandbox.compile(source), sandbox.exchange_with(&kept));
    assert!(matches!(step, Step::Waits(_)));
    assert_eq!(kept.0.open.get(), 1);
    drop(step);
    assert_eq!((kept.0.open.get(), kept.0.kept.borrow().len()), (0, 0));
}

/// Copying takes time, and few instructions.
#[test]
fn copies_of_fragments_take_time() {
    let kept = Kept::default();
    let sandbox =
        Sandbox::with_clock(Limits { time: Duration::from_millis(5), ..Limits::default() }, looks);
    kept.0.kept.borrow_mut().insert(b"k".to_vec(), vec![b'x'; 1 << 20]);
    let said = sandbox.of(&kept, "for i = 1, 1000 do sendoff.fragments.fetch('k') end");
    assert!(said.contains("takes more than 5 ms"), "{said}");
    assert!(kept.0.fetched.get() < 10);
}

#[test]
fn fragments_are_counted() {
    let (sandbox, kept) = (Sandbox::new(), Kept::default());
    let source = "for _, key in ipairs { 'a', 'b', 'a' } do sendoff.fragment(key, 60, function() return key end) end";
    let note = |source: &str| {
        let (exchange, _) =
            sandbox.runtime.run(&sandbox.compile(source), sandbox.exchange_with(&kept));
        exchange.fragment_count.note()
    };
    assert_eq!(note(source).as_deref(), Some("made of 3 fragments, 1 kept, 2 made in 0 ms"));
    assert_eq!(note("return 0"), None);
}
