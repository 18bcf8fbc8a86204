//! A parsed file.

use std::fmt;
use std::sync::Arc;

use sendoff_apache_expression::{Pattern, weight};

use crate::access::{Counting, Group, Methods, Requirement};
use crate::cache_lines::CacheLines;
use crate::directives::{self, DirectiveContext};
use crate::expression::Expression;
use crate::limits;
use crate::modules;
use crate::problem::{Problem, Remark, Severity};
use crate::reason::Reason;
use crate::scope::{Covers, Scope, Section};
use crate::syntax::{self, Line};
use crate::text::lossy;

/// The rules of a folder: its `.htaccess`, parsed and compiled.
pub struct File {
    name: Arc<str>,
    scope: Scope,
    remarks: Vec<Remark>,
    broken: Option<Broken>,
    weight: usize,
    cache_lines: CacheLines,
}

/// A file that refuses its folder: the status, and the number of the remark that says why.
#[derive(Debug, Clone, Copy)]
struct Broken {
    status: u16,
    remark: usize,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("name", &self.name).finish_non_exhaustive()
    }
}

impl File {
    /// Parses a file. `name` is its path, for remarks and reasons. If a line cannot be parsed,
    /// requests to the folder are refused.
    #[must_use]
    pub fn parse(bytes: &[u8], name: &str, cache_lines: CacheLines) -> Self {
        let mut parser = Parser { cache_lines, ..Parser::default() };
        let mut scope = Scope::default();
        let parsed = parser.file(bytes, &mut scope);
        let broken = parsed.err().map(|BrokenFile { line, text }| {
            let index = parser.remarks.len();
            parser.remarks.push(Remark { line, severity: Severity::Broken, text });
            Broken { status: 500, remark: index }
        });
        if broken.is_some() {
            scope = Scope::default();
        }
        let weight = if broken.is_some() { 0 } else { parser.weight };
        let weight = 1024 + weight;
        let remarks = parser.remarks;
        Self { name: name.into(), scope, remarks, broken, weight, cache_lines }
    }

    /// A file that cannot be read, or whose folder the server may not enter: requests to the folder
    /// are refused with 403, as in Apache.
    #[must_use]
    pub fn unreadable(name: &str, why: &str) -> Self {
        let remark = Remark { line: 0, severity: Severity::Refused, text: why.to_owned() };
        let (name, scope) = (name.into(), Scope::default());
        let (remarks, cache_lines) = (vec![remark], CacheLines::default());
        let broken = Some(Broken { status: 403, remark: 0 });
        Self { name, scope, remarks, broken, weight: 1024, cache_lines }
    }

    /// Remarks for the operator about the file.
    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// The status with which requests to the folder are refused, and why; `None` if the file is not
    /// broken.
    #[must_use]
    pub fn broken(&self) -> Option<(u16, Reason)> {
        let Broken { status, remark } = self.broken?;
        let Remark { line, text, .. } = self.remarks.get(remark)?.clone();
        Some((status, Reason { file: self.name.to_string(), line, text }))
    }

    /// True if the file is about access: a server that ignores it may show protected files. An
    /// unreadable file counts as one.
    #[must_use]
    pub fn protects(&self) -> bool {
        self.broken.is_some() || self.scope.protects()
    }

    /// The treatment of its lines for LiteSpeed's page cache.
    #[must_use]
    pub fn cache_lines(&self) -> CacheLines {
        self.cache_lines
    }

    /// The approximate size of the parsed file in memory, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The file's path.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }
}

/// The whole file is refused.
struct BrokenFile {
    line: usize,
    text: String,
}

#[derive(Default)]
struct Parser {
    lines: Vec<Line>,
    at: usize,
    depth: usize,
    remarks: Vec<Remark>,
    /// The approximate size of the parsed directives, in bytes.
    weight: usize,
    cache_lines: CacheLines,
}

/// The target of the directives of a section.
struct SectionTarget<'a> {
    scope: &'a mut Scope,
    methods: Methods,
    /// Groups of requirements that are open; directives other than `Require` are not allowed in
    /// them.
    groups: Vec<Group>,
}

impl Parser {
    fn file(&mut self, bytes: &[u8], scope: &mut Scope) -> Result<(), BrokenFile> {
        if bytes.len() > limits::FILE {
            let text = format!("the file is larger than {} bytes", limits::FILE);
            return Err(BrokenFile { line: 1, text });
        }
        self.lines = syntax::lines(bytes).map_err(|error| BrokenFile {
            line: error.number,
            text: format!("the line is longer than {} bytes", limits::LINE),
        })?;
        if let Some(line) = self.lines.get(limits::DIRECTIVES) {
            let text = format!("the file has more than {} directives", limits::DIRECTIVES);
            return Err(BrokenFile { line: line.number, text });
        }
        for line in &self.lines {
            self.weight += weight(&line.rest);
            if self.weight > limits::WEIGHT {
                let text = "the expressions up to this line would take too much memory".to_owned();
                return Err(BrokenFile { line: line.number, text });
            }
        }
        let mut target = SectionTarget { scope, methods: Methods::All, groups: Vec::new() };
        self.block(&mut target, None)
    }

    /// Parses up to the end of a section, or of the file.
    fn block(
        &mut self,
        target: &mut SectionTarget<'_>,
        section: Option<&Line>,
    ) -> Result<(), BrokenFile> {
        self.depth += 1;
        if self.depth > limits::NESTING {
            let line = section.map_or(0, |line| line.number);
            return Err(BrokenFile { line, text: "sections are nested too deeply".to_owned() });
        }
        while let Some(line) = self.lines.get(self.at).cloned() {
            self.at += 1;
            if line.name.starts_with(b"</") {
                check_end(section, &line)?;
                self.depth -= 1;
                return Ok(());
            }
            if line.name.starts_with(b"<") {
                self.section(target, &line)?;
            } else {
                self.directive(target, &line)?;
            }
        }
        self.depth -= 1;
        match section {
            None => Ok(()),
            Some(line) => {
                let text = format!("{} is not closed", lossy(&line.name));
                Err(BrokenFile { line: line.number, text })
            }
        }
    }

    fn directive(&mut self, target: &mut SectionTarget<'_>, line: &Line) -> Result<(), BrokenFile> {
        if let Some(parsed) = self.cache_lines.parse(target.scope, &line.name, &line.rest) {
            return self.settle(target.scope, line, parsed);
        }
        let Some(directive) = directives::find(&line.name) else {
            return Err(unknown(line));
        };
        let in_group = !target.groups.is_empty();
        if in_group && !line.name.eq_ignore_ascii_case(b"Require") {
            let text = format!("{} is not allowed among requirements", lossy(&line.name));
            return Err(BrokenFile { line: line.number, text });
        }
        let mut place = DirectiveContext {
            scope: target.scope,
            methods: &target.methods,
            group: target.groups.last_mut(),
            line: line.number,
        };
        let rest = self.cache_lines.arguments(&line.name, &line.rest);
        let parsed = (directive.parse)(&mut place, &rest);
        self.settle(target.scope, line, parsed)
    }

    /// Records the problem with a line.
    fn settle(
        &mut self,
        scope: &mut Scope,
        line: &Line,
        parsed: Result<(), Problem>,
    ) -> Result<(), BrokenFile> {
        let Err(problem) = parsed else { return Ok(()) };
        let named = |text: String| format!("{}: {text}", lossy(&line.name));
        let (severity, text) = match problem {
            Problem::Broken(text) => {
                return Err(BrokenFile { line: line.number, text: named(text) });
            }
            Problem::Refused(text) => {
                let text = named(text);
                scope.refusals.push((line.number, text.clone()));
                (Severity::Refused, text)
            }
            Problem::Ignored(text) => (Severity::Ignored, named(text)),
        };
        self.remarks.push(Remark { line: line.number, severity, text });
        Ok(())
    }

    fn section(&mut self, target: &mut SectionTarget<'_>, line: &Line) -> Result<(), BrokenFile> {
        let broken = |text: &str| BrokenFile { line: line.number, text: text.to_owned() };
        let (name, rest) =
            section_head(line).ok_or_else(|| broken("the section's > is missing"))?;
        let words = syntax::words(rest);
        let first = words.first().map_or(&b""[..], Vec::as_slice);
        if !target.groups.is_empty() && !name.starts_with(b"require") {
            return Err(broken("only requirements are allowed here"));
        }
        if !matches!(target.methods, Methods::All) && NOT_IN_LIMIT.contains(&name.as_slice()) {
            let text =
                format!("{} is not allowed within <Limit> or <LimitExcept>", lossy(&line.name));
            return Err(broken(&text));
        }
        match name.as_slice() {
            b"ifmodule" | b"ifdefine" | b"iffile" | b"ifdirective" | b"ifsection"
            | b"ifversion" => {
                let holds = self.holds(&name, &words).map_err(|text| broken(&text))?;
                if holds { self.block(target, Some(line)) } else { self.skip(line) }
            }
            b"files" | b"filesmatch" => {
                let is_pattern = name == b"filesmatch" || first == b"~";
                let text = words.get(usize::from(first == b"~"));
                let text = text.ok_or_else(|| broken("the section wants a name"))?;
                let covers = if is_pattern {
                    let pattern = Pattern::new(text, false).map_err(|text| broken(&text))?;
                    Covers::Matching(pattern)
                } else {
                    Covers::Name(text.clone())
                };
                self.covered(target, line, covers)
            }
            b"if" => self.conditional(target, line, first, Covers::If),
            b"elseif" => {
                self.follows_if(target, line)?;
                self.conditional(target, line, first, Covers::ElseIf)
            }
            b"else" => {
                self.follows_if(target, line)?;
                self.covered(target, line, Covers::Else)
            }
            b"limit" | b"limitexcept" => {
                let methods = match name.as_slice() {
                    b"limit" => target.methods.limit(&words),
                    _ => target.methods.limit_except(&words),
                };
                let methods = methods.map_err(broken)?;
                let before = std::mem::replace(&mut target.methods, methods);
                let parsed = self.block(target, Some(line));
                target.methods = before;
                parsed
            }
            b"requireall" => self.group(target, line, Counting::All),
            b"requireany" => self.group(target, line, Counting::Any),
            b"requirenone" => self.group(target, line, Counting::None),
            _ => Err(unknown(line)),
        }
    }

    /// Decides a section that depends on the server alone. True if the section applies.
    fn holds(&self, name: &[u8], words: &[Vec<u8>]) -> Result<bool, String> {
        if name == b"ifversion" {
            return modules::version(words);
        }
        let word = words.first().ok_or("the section wants a name")?;
        let (negated, word) = match word.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, word.as_slice()),
        };
        let holds = match name {
            b"ifmodule" => modules::is_loaded(word) || self.cache_lines.is_loaded(word),
            b"ifdirective" => directives::find(word).is_some(),
            b"ifsection" => SECTIONS.iter().any(|s| s.as_bytes().eq_ignore_ascii_case(word)),
            // Nothing is defined, and files of the system do not count.
            _ => false,
        };
        Ok(holds != negated)
    }

    /// Skips a section that does not apply.
    fn skip(&mut self, section: &Line) -> Result<(), BrokenFile> {
        let mut open = vec![section.clone()];
        while let Some(line) = self.lines.get(self.at).cloned() {
            self.at += 1;
            if line.name.starts_with(b"</") {
                check_end(open.last(), &line)?;
                open.pop();
                if open.is_empty() {
                    return Ok(());
                }
            } else if line.name.starts_with(b"<") {
                open.push(line);
            }
        }
        let text = format!("{} is not closed", lossy(&section.name));
        Err(BrokenFile { line: section.number, text })
    }

    fn covered(
        &mut self,
        target: &mut SectionTarget<'_>,
        line: &Line,
        covers: Covers,
    ) -> Result<(), BrokenFile> {
        let mut scope = Scope::default();
        let methods = target.methods.clone();
        let mut inner = SectionTarget { scope: &mut scope, methods, groups: Vec::new() };
        self.block(&mut inner, Some(line))?;
        target.scope.sections.push(Section { line: line.number, covers, scope });
        Ok(())
    }

    fn conditional(
        &mut self,
        target: &mut SectionTarget<'_>,
        line: &Line,
        expression: &[u8],
        covers: fn(Option<Expression>) -> Covers,
    ) -> Result<(), BrokenFile> {
        match Expression::parse(expression) {
            Ok(expression) => self.covered(target, line, covers(Some(expression))),
            Err(text) => {
                self.covered(target, line, covers(None))?;
                if let Some(section) = target.scope.sections.last_mut() {
                    self.settle(&mut section.scope, line, Err(Problem::Refused(text)))?;
                }
                Ok(())
            }
        }
    }

    fn follows_if(&self, target: &SectionTarget<'_>, line: &Line) -> Result<(), BrokenFile> {
        let before = target.scope.sections.last();
        match before.map(|section| &section.covers) {
            Some(Covers::If(_) | Covers::ElseIf(_)) => Ok(()),
            _ => {
                let text = format!("{} does not follow an <If>", lossy(&line.name));
                Err(BrokenFile { line: line.number, text })
            }
        }
    }

    fn group(
        &mut self,
        target: &mut SectionTarget<'_>,
        line: &Line,
        counting: Counting,
    ) -> Result<(), BrokenFile> {
        target.groups.push(Group { line: line.number, counting, parts: Vec::new() });
        self.block(target, Some(line))?;
        let Some(group) = target.groups.pop() else { return Ok(()) };
        if group.parts.is_empty() {
            let text = "the group has no requirement".to_owned();
            return Err(BrokenFile { line: line.number, text });
        }
        let takes_negative = target.groups.last().is_some_and(Group::takes_negative);
        if counting == Counting::None && !takes_negative {
            let text = "<RequireNone> never grants anything; put it into <RequireAll>".to_owned();
            return Err(BrokenFile { line: line.number, text });
        }
        let outer = match target.groups.last_mut() {
            Some(group) => group,
            None => target.scope.require.get_or_insert_with(|| Group::any(line.number)),
        };
        outer.parts.push(Requirement::Group(group));
        Ok(())
    }
}

/// The known sections, as the documentation lists them.
pub(crate) const SECTIONS: [&str; 16] = [
    "IfModule",
    "IfDefine",
    "IfFile",
    "IfDirective",
    "IfSection",
    "IfVersion",
    "Files",
    "FilesMatch",
    "If",
    "ElseIf",
    "Else",
    "Limit",
    "LimitExcept",
    "RequireAll",
    "RequireAny",
    "RequireNone",
];

/// Sections that Apache refuses within `<Limit>` and `<LimitExcept>`.
const NOT_IN_LIMIT: [&[u8]; 5] = [b"files", b"filesmatch", b"if", b"elseif", b"else"];

/// A section's name in lower case, and the text behind it up to its `>`.
fn section_head(line: &Line) -> Option<(Vec<u8>, &[u8])> {
    let name = line.name.strip_prefix(b"<")?;
    if let Some(name) = name.strip_suffix(b">") {
        return Some((name.to_ascii_lowercase(), b""));
    }
    let end = line.rest.iter().rposition(|byte| *byte == b'>')?;
    Some((name.to_ascii_lowercase(), &line.rest[..end]))
}

fn check_end(section: Option<&Line>, end: &Line) -> Result<(), BrokenFile> {
    let closed = end.name.strip_prefix(b"</").unwrap_or_default();
    let closed = closed.strip_suffix(b">").unwrap_or(closed);
    let open = section.map(|line| {
        let name = line.name.strip_prefix(b"<").unwrap_or_default();
        name.strip_suffix(b">").unwrap_or(name)
    });
    match open {
        Some(open) if open.eq_ignore_ascii_case(closed) => Ok(()),
        Some(open) => {
            let text = format!("<{}> is expected to end, not <{}>", lossy(open), lossy(closed));
            Err(BrokenFile { line: end.number, text })
        }
        None => {
            let text = format!("</{}> ends nothing", lossy(closed));
            Err(BrokenFile { line: end.number, text })
        }
    }
}

fn unknown(line: &Line) -> BrokenFile {
    let name = lossy(&line.name);
    let text =
        format!("{name} is unknown, or not allowed in .htaccess files; put it into <IfModule>");
    BrokenFile { line: line.number, text }
}
