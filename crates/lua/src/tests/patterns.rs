//! Compares the matcher with the library's own.

use mlua::{Lua, MultiValue, Value};

use super::cpu_time;
use crate::Limits;
use crate::budget::Budget;
use crate::strings;

/// Pseudo-random numbers, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn text(&mut self, parts: &[&str], most: usize) -> String {
        (0..self.below(most + 1)).map(|_| parts[self.below(parts.len())]).collect()
    }
}

const PARTS: &[&str] = &[
    "a", "b", ".", "%a", "%d", "%s", "%W", "%z", "%", "[", "]", "[ab]", "[^a]", "[a-c]", "[%a-]",
    "[]]", "[^]", "*", "+", "-", "?", "(", ")", "()", "(a*)", "%1", "%2", "%0", "%b()", "%bab",
    "%b", "%f[%w]", "%f", "^", "$", "%%", "%.", "\0",
];
const SUBJECT: &[&str] = &["a", "b", "ab", "(", ")", "1", " ", "-", "]", "é", "\0", "%", "\u{b}"];
const BY: &[&str] = &["x", "%0", "%1", "%2", "%%", "%", "%a", ""];

fn shown(results: mlua::Result<MultiValue>) -> Result<Vec<String>, String> {
    let text = |value: Value| match value {
        Value::String(text) => format!("{:?}", text.as_bytes().escape_ascii().to_string()),
        other => format!("{other:?}"),
    };
    match results {
        Ok(values) => Ok(values.into_iter().map(text).collect()),
        // The library's message contains the place of the call.
        Err(error) => {
            let error = error.to_string();
            let line = error.lines().next().unwrap_or_default();
            let line = line.trim_start_matches("runtime error: ");
            Err(line.rsplit_once(":1: ").map_or(line, |(_, rest)| rest).to_owned())
        }
    }
}

#[test]
fn patterns_match_as_in_the_library() {
    let (theirs, ours) = (Lua::new(), Lua::new());
    let (instructions, time) = (u64::MAX, std::time::Duration::MAX);
    let limits = Limits { instructions, time, ..Limits::default() };
    let budget = Budget::new(limits, cpu_time);
    budget.begin();
    strings::replace(&ours, &ours.globals().get("string").unwrap(), &budget).unwrap();
    let calls = [
        "return string.find(s, p)",
        "return string.find(s, p, i)",
        "return string.find(s, p, i, true)",
        "return string.match(s, p, i)",
        "return string.gsub(s, p, by)",
        "return string.gsub(s, p, by, 2)",
        "return string.gsub(s, p, function(a, b) return b end)",
        "return string.gsub(s, p, { a = 'A', [1] = 'one' })",
        "local t = {} for a, b in string.gmatch(s, p) do t[#t + 1] = tostring(a) .. tostring(b) end return table.concat(t, ';')",
    ];
    let mut chance = Chance(0x5eed);
    let mut matched = 0;
    for number in 0..60_000 {
        let (s, p) = (chance.text(SUBJECT, 8), chance.text(PARTS, 5));
        let (by, i) = (chance.text(BY, 3), i64::try_from(chance.below(15)).unwrap() - 7);
        let call = calls[number % calls.len()];
        let run = |lua: &Lua| {
            let chunk = format!("local s, p, by, i = ... {call}");
            let arguments =
                (lua.create_string(&s).unwrap(), lua.create_string(&p).unwrap(), by.clone(), i);
            shown(lua.load(chunk).set_name("=c").call(arguments))
        };
        let (theirs, ours) = (run(&theirs), run(&ours));
        matched += usize::from(ours.as_ref().is_ok_and(|values| values[0] != "Nil"));
        assert_eq!(ours, theirs, "{call} with s {s:?}, p {p:?}, by {by:?}, i {i}");
    }
    assert!(matched > 10_000, "{matched}");
}
