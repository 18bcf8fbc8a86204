//! Lua's patterns (manual §6.4.1), in bounded time.
//!
//! The library's own functions match within one instruction, and no limit applies to them:
//! `("a"):rep(n):find(".-.-.-b")` takes n³ steps. This matcher counts its steps. A test compares it
//! with the library on random patterns.

use mlua::Error;

use crate::budget::Budget;

/// Maximum number of captures in a pattern, as in Lua.
const MAX_CAPTURES: usize = 32;

/// Maximum depth of nested pattern items, as in Lua.
const MAX_DEPTH: u32 = 200;

/// Number of steps that are charged at once, so that a step stays cheap.
const LOT: u64 = 64;

/// The value of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capture {
    /// A part of the subject: its start and its length.
    Part(usize, usize),
    /// A position, counted from 0.
    Position(usize),
    /// An unfinished capture: its end has not been found.
    Open(usize),
}

/// A pattern, and the subject to search.
pub(crate) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; MAX_CAPTURES],
    level: usize,
    depth: u32,
    steps: u64,
    budget: &'a Budget,
}

fn malformed(why: &str) -> Error {
    Error::runtime(why)
}

impl<'a> Matcher<'a> {
    pub(crate) fn new(subject: &'a [u8], pattern: &'a [u8], budget: &'a Budget) -> Self {
        let captures = [Capture::Open(0); MAX_CAPTURES];
        Self { subject, pattern, captures, level: 0, depth: 0, steps: 0, budget }
    }

    /// Matches at this position. Returns the end of the match; `None` if there is none.
    pub(crate) fn at(&mut self, start: usize) -> Result<Option<usize>, Error> {
        (self.level, self.depth) = (0, 0);
        self.rest(start, 0)
    }

    /// The captures of the last match.
    pub(crate) fn captures(&self) -> &[Capture] {
        &self.captures[..self.level]
    }

    /// One capture of the last match; without captures the first one is the whole match.
    pub(crate) fn capture(&self, index: usize, start: usize, end: usize) -> Result<Capture, Error> {
        match self.captures().get(index) {
            Some(Capture::Open(_)) => Err(malformed("unfinished capture")),
            Some(capture) => Ok(*capture),
            None if index == 0 => Ok(Capture::Part(start, end - start)),
            None => Err(malformed(&format!("invalid capture index %{}", index + 1))),
        }
    }

    fn step(&mut self, steps: usize) -> Result<(), Error> {
        self.steps += steps as u64;
        if self.steps >= LOT {
            self.budget.charge(std::mem::take(&mut self.steps))?;
        }
        Ok(())
    }

    /// Matches the rest of the pattern, one level deeper.
    fn rest(&mut self, s: usize, p: usize) -> Result<Option<usize>, Error> {
        if self.depth == MAX_DEPTH {
            return Err(malformed("pattern too complex"));
        }
        self.depth += 1;
        let matched = self.items(s, p);
        self.depth -= 1;
        matched
    }

    fn items(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, Error> {
        loop {
            self.step(1)?;
            let Some(&first) = self.pattern.get(p) else { return Ok(Some(s)) };
            match (first, self.pattern.get(p + 1)) {
                (b'(', Some(b')')) => return self.open(s, p + 2, Capture::Position(s)),
                (b'(', _) => return self.open(s, p + 1, Capture::Open(s)),
                (b')', _) => return self.close(s, p + 1),
                (b'$', None) => return Ok((s == self.subject.len()).then_some(s)),
                (b'%', Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(s, p + 2)? {
                    Some(end) => p = end,
                    None => return Ok(None),
                },
                (b'%', Some(digit @ b'0'..=b'9')) => match self.again(s, *digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.end_of_item(p)?;
                    let is_one = self.is_one(s, p, end);
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if is_one && let Some(found) = self.rest(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'+') if !is_one => return Ok(None),
                        Some(b'+') => return self.longest(s + 1, p, end),
                        Some(b'*') => return self.longest(s, p, end),
                        Some(b'-') => return self.shortest(s, p, end),
                        _ if !is_one => return Ok(None),
                        _ => (s, p) = (s + 1, end),
                    }
                }
            }
        }
    }

    fn open(&mut self, s: usize, p: usize, capture: Capture) -> Result<Option<usize>, Error> {
        if self.level == MAX_CAPTURES {
            return Err(malformed("too many captures"));
        }
        self.captures[self.level] = capture;
        self.level += 1;
        let found = self.rest(s, p)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Option<usize>, Error> {
        let is_open = |capture: &Capture| matches!(capture, Capture::Open(_));
        let Some(last) = self.captures().iter().rposition(is_open) else {
            return Err(malformed("invalid pattern capture"));
        };
        let before = self.captures[last];
        if let Capture::Open(start) = before {
            self.captures[last] = Capture::Part(start, s - start);
        }
        let found = self.rest(s, p)?;
        if found.is_none() {
            self.captures[last] = before;
        }
        Ok(found)
    }

    /// Matches `%b()`.
    fn balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>, Error> {
        let (Some(&opens), Some(&closes)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(malformed("malformed pattern (missing arguments to '%b')"));
        };
        if self.subject.get(s) != Some(&opens) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (at, &byte) in self.subject.iter().enumerate().skip(s + 1) {
            if byte == closes {
                depth -= 1;
                if depth == 0 {
                    self.step(at - s)?;
                    return Ok(Some(at + 1));
                }
            } else if byte == opens {
                depth += 1;
            }
        }
        self.step(self.subject.len() - s)?;
        Ok(None)
    }

    /// Matches `%f[set]`. Returns the end of the item in the pattern if the position is such a
    /// border.
    fn frontier(&self, s: usize, p: usize) -> Result<Option<usize>, Error> {
        if self.pattern.get(p) != Some(&b'[') {
            return Err(malformed("missing '[' after '%f' in pattern"));
        }
        let end = self.end_of_item(p)?;
        let before = s.checked_sub(1).map_or(0, |before| self.subject[before]);
        let here = self.subject.get(s).copied().unwrap_or(0);
        let is_border = !self.in_set(before, p, end - 1) && self.in_set(here, p, end - 1);
        Ok(is_border.then_some(end))
    }

    /// Matches `%1`: a capture again.
    fn again(&mut self, s: usize, digit: u8) -> Result<Option<usize>, Error> {
        let index = digit.wrapping_sub(b'1');
        let (start, len) = match self.captures().get(usize::from(index)) {
            Some(Capture::Part(start, len)) => (*start, *len),
            Some(Capture::Position(_)) => return Ok(None),
            Some(Capture::Open(_)) | None => {
                let shown = i16::from(digit) - i16::from(b'0');
                return Err(malformed(&format!("invalid capture index %{shown}")));
            }
        };
        self.step(len)?;
        let is_same = self.subject[s..].starts_with(&self.subject[start..start + len]);
        Ok(is_same.then_some(s + len))
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Result<Option<usize>, Error> {
        let mut count = 0;
        while self.is_one(s + count, p, end) {
            count += 1;
        }
        self.step(count)?;
        for count in (0..=count).rev() {
            if let Some(found) = self.rest(s + count, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Result<Option<usize>, Error> {
        loop {
            if let Some(found) = self.rest(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_one(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    /// End of the single-character item that begins here.
    fn end_of_item(&self, p: usize) -> Result<usize, Error> {
        let at = |p: usize| self.pattern.get(p).copied();
        match at(p) {
            Some(b'%') if p + 1 == self.pattern.len() => {
                Err(malformed("malformed pattern (ends with '%')"))
            }
            Some(b'%') => Ok(p + 2),
            Some(b'[') => {
                let mut p = if at(p + 1) == Some(b'^') { p + 2 } else { p + 1 };
                loop {
                    let Some(byte) = at(p) else {
                        return Err(malformed("malformed pattern (missing ']')"));
                    };
                    p += 1;
                    if byte == b'%' && p < self.pattern.len() {
                        p += 1;
                    }
                    if at(p) == Some(b']') {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// True if the subject's character at this position matches the item.
    fn is_one(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.subject.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => is_in_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, end - 1),
            other => other == byte,
        }
    }

    /// True if a set, from its `[` to its `]`, contains a character.
    fn in_set(&self, byte: u8, from: usize, to: usize) -> bool {
        let is_negated = self.pattern.get(from + 1) == Some(&b'^');
        let mut p = if is_negated { from + 2 } else { from + 1 };
        while p < to {
            let has = if self.pattern[p] == b'%' {
                p += 1;
                is_in_class(byte, self.pattern[p])
            } else if self.pattern[p + 1] == b'-' && p + 2 < to {
                p += 2;
                (self.pattern[p - 2]..=self.pattern[p]).contains(&byte)
            } else {
                self.pattern[p] == byte
            };
            if has {
                return !is_negated;
            }
            p += 1;
        }
        is_negated
    }
}

/// True if `%x` matches a character.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_member = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        // Same as C's isspace; Rust's function lacks the vertical tab.
        b's' => matches!(byte, b' ' | 9..=13),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        // The manual no longer lists this class.
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_member != class.is_ascii_uppercase()
}
