//! Regular expressions: PCRE2, with limits on the cost of a match.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use pcre2::bytes::{Regex, RegexBuilder};

use crate::budget::{MatchBudget, TooCostly};
use crate::limits;

/// The number of groups that texts may refer to, the whole match included.
const GROUPS: usize = 10;

/// An expression.
pub struct Pattern {
    /// Machine code with a small stack that costs no allocation. It is compiled at the first match.
    fast: OnceLock<Option<Regex>>,
    text: String,
    has_groups: bool,
    ignore_case: bool,
}

/// The groups of a match: `$0` to `$9`.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    subject: Vec<u8>,
    ranges: Vec<Option<Range<usize>>>,
}

impl Groups {
    /// The text of a group; empty if it took no part in the match.
    pub fn get(&self, number: usize) -> &[u8] {
        let range = self.ranges.get(number).cloned().flatten();
        range.and_then(|range| self.subject.get(range)).unwrap_or_default()
    }
}

impl Pattern {
    /// Compiles an expression as Apache does: `.` matches line ends, `$` only the end of the text.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the expression.
    pub fn new(text: &[u8], ignore_case: bool) -> Result<Self, String> {
        let text = std::str::from_utf8(text)
            .map_err(|_| "the expression is not UTF-8".to_owned())?
            .to_owned();
        let regex = compile(&text, ignore_case, false)
            .map_err(|error| format!("the expression {text:?} does not compile: {error}"))?;
        let has_groups = regex.capture_names().len() > 1;
        Ok(Self { fast: OnceLock::new(), text, has_groups, ignore_case })
    }

    /// The approximate size of the compiled expression, in bytes.
    pub fn weight(&self) -> usize {
        weight(self.text.as_bytes())
    }

    /// True if the expression has groups.
    pub fn has_groups(&self) -> bool {
        self.has_groups
    }

    /// True if the expression matches anywhere.
    pub fn matches(&self, subject: &[u8], budget: &impl MatchBudget) -> Result<bool, TooCostly> {
        budget.time()?;
        if let Ok(matches) = self.fast()?.is_match(subject) {
            return Ok(matches);
        }
        self.slow()?.is_match(subject).map_err(|_| TooCostly)
    }

    /// The groups of the first match.
    pub fn groups(
        &self,
        subject: &[u8],
        budget: &impl MatchBudget,
    ) -> Result<Option<Groups>, TooCostly> {
        let found = self.find_at(subject, 0, budget)?;
        Ok(found.map(|ranges| Groups { subject: subject.to_vec(), ranges }))
    }

    fn fast(&self) -> Result<&Regex, TooCostly> {
        let fast = self.fast.get_or_init(|| compile(&self.text, self.ignore_case, true).ok());
        fast.as_ref().ok_or(TooCostly)
    }

    /// The same expression, interpreted, for a match that needs more stack. It is not kept, because
    /// PCRE2 keeps up to 8 MB that a match needed.
    fn slow(&self) -> Result<Regex, TooCostly> {
        compile(&self.text, self.ignore_case, false).map_err(|_| TooCostly)
    }

    fn find_at(
        &self,
        subject: &[u8],
        start: usize,
        budget: &impl MatchBudget,
    ) -> Result<Option<Vec<Option<Range<usize>>>>, TooCostly> {
        budget.time()?;
        // Without groups the range of the match suffices, which needs no allocation.
        if !self.has_groups
            && let Ok(found) = self.fast()?.find_at(subject, start)
        {
            return Ok(found.map(|found| vec![Some(found.start()..found.end())]));
        }
        let groups_by = |regex: &Regex| {
            let mut places = regex.capture_locations();
            let found = regex.captures_read_at(&mut places, subject, start)?;
            let group = |number| places.get(number).map(|(start, end)| start..end);
            Ok::<_, pcre2::Error>(found.map(|_| (0..GROUPS.min(places.len())).map(group).collect()))
        };
        groups_by(self.fast()?).or_else(|_| groups_by(&self.slow()?).map_err(|_| TooCostly))
    }

    /// Replaces the first match, or all, by a text that may refer to groups (`$0` to `$9`).
    pub fn replace(
        &self,
        subject: &[u8],
        by: &[u8],
        all: bool,
        budget: &impl MatchBudget,
    ) -> Result<Vec<u8>, TooCostly> {
        let (mut result, mut at) = (Vec::new(), 0);
        while let Some(ranges) = self.find_at(subject, at, budget)? {
            let Some(whole) = ranges.first().cloned().flatten() else { break };
            result.extend_from_slice(&subject[at..whole.start]);
            let groups = Groups { subject: subject.to_vec(), ranges };
            result.extend_from_slice(&fill(by, &groups));
            at = whole.end;
            if whole.is_empty() {
                let Some(&byte) = subject.get(at) else { break };
                result.push(byte);
                at += 1;
            }
            if !all || result.len() > limits::VALUE {
                break;
            }
        }
        result.extend_from_slice(subject.get(at..).unwrap_or_default());
        Ok(result)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

fn compile(text: &str, ignore_case: bool, jit: bool) -> Result<Regex, pcre2::Error> {
    let source = format!("{}{}", limits::PATTERN, only_at_the_end(text));
    let mut builder = RegexBuilder::new();
    builder.caseless(ignore_case).dotall(true).jit_if_available(jit).build(&source)
}

/// The approximate size in memory of a line with this text, its compiled expressions included, in
/// bytes.
pub fn weight(text: &[u8]) -> usize {
    let expanded = text.len().saturating_mul(repetitions(text));
    2048 + expanded.saturating_mul(32).min(limits::EXPRESSION)
}

/// The factor by which repetitions (`{2,30}`) enlarge a compiled expression: the product of all,
/// which nested repetitions reach.
fn repetitions(text: &[u8]) -> usize {
    let counts = text.split(|byte| *byte == b'{').skip(1).filter_map(|rest| {
        let end = rest.iter().position(|byte| *byte == b'}')?;
        let count = std::str::from_utf8(&rest[..end]).ok()?;
        count.split(',').filter_map(|number| number.trim().parse().ok()).max()
    });
    counts.fold(1, |product: usize, count: usize| product.saturating_mul(count.max(1)))
}

/// Fills groups into a text: `$1`; a backslash keeps the dollar sign.
pub fn fill(text: &[u8], groups: &Groups) -> Vec<u8> {
    let (mut filled, mut at) = (Vec::new(), 0);
    while let Some(&byte) = text.get(at).filter(|_| filled.len() <= limits::VALUE) {
        let next = text.get(at + 1);
        match (byte, next) {
            (b'$', Some(digit)) if digit.is_ascii_digit() => {
                filled.extend_from_slice(groups.get(usize::from(digit - b'0')));
                at += 1;
            }
            (b'\\', Some(b'$')) => {
                filled.push(text[at + 1]);
                at += 1;
            }
            _ => filled.push(byte),
        }
        at += 1;
    }
    filled
}

/// The expression with `\z` for `$`. PCRE2's `$` also matches before a line end at the end of the
/// text, which a path may have; the option against this (`DOLLAR_ENDONLY`) is missing in the
/// library's interface.
fn only_at_the_end(text: &str) -> String {
    if text.contains("(?m") || text.contains("\\Q") {
        return text.to_owned();
    }
    let mut result = String::with_capacity(text.len() + 8);
    let (mut chars, mut class, mut at_start) = (text.chars().peekable(), false, false);
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                result.push(char);
                result.extend(chars.next());
                at_start = false;
                continue;
            }
            '[' if !class => {
                class = true;
                result.push(char);
                if chars.peek() == Some(&'^') {
                    result.extend(chars.next());
                }
                at_start = true;
                continue;
            }
            // A named class within a class.
            '[' if class && matches!(chars.peek(), Some(':' | '.' | '=')) => {
                result.push(char);
                for char in chars.by_ref() {
                    result.push(char);
                    if char == ']' {
                        break;
                    }
                }
                at_start = false;
                continue;
            }
            // A bracket at the start of a class is a member.
            ']' if class && !at_start => class = false,
            '$' if !class => {
                result.push_str("\\z");
                continue;
            }
            _ => {}
        }
        at_start = false;
        result.push(char);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unlimited;

    impl MatchBudget for Unlimited {
        fn time(&self) -> Result<(), TooCostly> {
            Ok(())
        }
    }

    #[test]
    fn the_end_is_the_end() {
        let pattern = Pattern::new(b"\\.php$", false).unwrap();
        assert!(pattern.matches(b"a.php", &Unlimited).unwrap());
        assert!(!pattern.matches(b"a.php\n", &Unlimited).unwrap());
        assert_eq!(only_at_the_end("[$]$|\\$[]$]"), "[$]\\z|\\$[]$]");
        assert_eq!(only_at_the_end("[[:alpha:]$]$"), "[[:alpha:]$]\\z");
    }

    #[test]
    fn a_hostile_expression_ends() {
        let pattern = Pattern::new(b"^(a+)+(?=b)$", false).unwrap();
        assert!(pattern.groups(&[b'a'; 2000], &Unlimited).is_err());
    }

    #[test]
    fn groups_and_replacing() {
        let pattern = Pattern::new(b"(b)(x)?", false).unwrap();
        let groups = pattern.groups(b"abc", &Unlimited).unwrap().unwrap();
        assert_eq!((groups.get(0), groups.get(1), groups.get(2)), (&b"b"[..], &b"b"[..], &b""[..]));
        assert_eq!(pattern.replace(b"abab", b"<$1>", true, &Unlimited).unwrap(), b"a<b>a<b>");
        assert_eq!(pattern.replace(b"abab", b"<$1>", false, &Unlimited).unwrap(), b"a<b>ab");
        let empty = Pattern::new(b"x*", false).unwrap();
        assert_eq!(empty.replace(b"ab", b"-", true, &Unlimited).unwrap(), b"-a-b-");
    }
}
