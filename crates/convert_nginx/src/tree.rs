//! The grammar of nginx: directives with their words, blocks and includes.

use std::path::Path;
use std::rc::Rc;

pub(super) use sendoff_convert_document::Directive;
use sendoff_convert_document::sources::{MAX_DEPTH, Sources};
use sendoff_convert_document::{Files, Part, Place, Unreadable};

/// Reads a file and all files that it includes.
pub(super) fn read(path: &Path, files: &dyn Files) -> Result<Vec<Directive>, Unreadable> {
    let folder = main_folder(path);
    let mut reader = Reader { sources: Sources::new(files), folder };
    reader.file(path, None, 0)
}

/// The folder of `nginx.conf`, where relative paths begin: the parent of `sites-available`.
fn main_folder(path: &Path) -> &Path {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name {
        "sites-available" | "sites-enabled" | "conf.d" | "snippets" => {
            folder.parent().unwrap_or(folder)
        }
        _ => folder,
    }
}

struct Reader<'f> {
    sources: Sources<'f>,
    folder: &'f Path,
}

impl Reader<'_> {
    fn file(
        &mut self,
        path: &Path,
        from: Option<&Place>,
        depth: usize,
    ) -> Result<Vec<Directive>, Unreadable> {
        let source = self.sources.open(path, from, depth)?;
        let mut tokens = Tokens { text: &source.text, line: 1, file: source.file };
        let directives = self.block(&mut tokens, None, depth);
        self.sources.close();
        directives
    }

    /// Reads directives up to the closing brace of the block that began at `begun`, or up to the
    /// end of the file.
    fn block(
        &mut self,
        tokens: &mut Tokens<'_>,
        begun: Option<&Place>,
        depth: usize,
    ) -> Result<Vec<Directive>, Unreadable> {
        if depth > MAX_DEPTH {
            return Err(tokens.wrong("blocks are nested too deeply"));
        }
        let mut directives = Vec::new();
        loop {
            let token = tokens.next()?;
            let place = tokens.place();
            match token {
                Token::Word(name) => {
                    let directive = self.directive(name, place, tokens, depth)?;
                    if directive.name == "include" && directive.block.is_none() {
                        directives.extend(self.include(&directive, depth)?);
                    } else {
                        directives.push(directive);
                    }
                }
                Token::Close if begun.is_some() => return Ok(directives),
                Token::End if begun.is_none() => return Ok(directives),
                Token::End => {
                    return Err(Unreadable {
                        place: begun.cloned(),
                        says: "the block that begins here has no end: a } is missing".to_owned(),
                    });
                }
                Token::Close => return Err(tokens.wrong("this } closes no block")),
                Token::Open => return Err(tokens.wrong("this { belongs to no directive")),
                Token::Semicolon => return Err(tokens.wrong("this ; belongs to no directive")),
            }
        }
    }

    fn directive(
        &mut self,
        name: String,
        place: Place,
        tokens: &mut Tokens<'_>,
        depth: usize,
    ) -> Result<Directive, Unreadable> {
        let mut words = Vec::new();
        let block = loop {
            match tokens.next()? {
                Token::Word(word) => words.push(word),
                Token::Semicolon => break None,
                Token::Open if name.ends_with("_by_lua_block") => {
                    tokens.skip_script()?;
                    break Some(Vec::new());
                }
                Token::Open => break Some(self.block(tokens, Some(&place), depth + 1)?),
                Token::Close | Token::End => {
                    let says = format!("a ; is missing behind {name}");
                    return Err(Unreadable { place: Some(place), says });
                }
            }
        };
        self.sources.count(&place)?;
        Ok(Directive::new(name, words, block, place))
    }

    fn include(
        &mut self,
        directive: &Directive,
        depth: usize,
    ) -> Result<Vec<Directive>, Unreadable> {
        let pattern = self.folder.join(directive.word());
        let mut included = Vec::new();
        for path in self.sources.named(&pattern) {
            included.extend(self.file(&path, Some(&directive.place), depth + 1)?);
        }
        Ok(included)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    Semicolon,
    End,
}

/// The words and signs of a file.
struct Tokens<'t> {
    text: &'t str,
    line: usize,
    file: Rc<str>,
}

impl Tokens<'_> {
    fn place(&self) -> Place {
        Place { file: Rc::clone(&self.file), part: Part::Line(self.line) }
    }

    fn wrong(&self, says: &str) -> Unreadable {
        Unreadable { place: Some(self.place()), says: says.to_owned() }
    }

    fn take(&mut self) -> Option<char> {
        let taken = self.text.chars().next()?;
        self.text = &self.text[taken.len_utf8()..];
        self.line += usize::from(taken == '\n');
        Some(taken)
    }

    fn next(&mut self) -> Result<Token, Unreadable> {
        loop {
            match self.text.chars().next() {
                None => return Ok(Token::End),
                Some(blank) if blank.is_ascii_whitespace() => {
                    self.take();
                }
                Some('#') => while !matches!(self.take(), None | Some('\n')) {},
                Some(';') => return Ok(self.sign(Token::Semicolon)),
                Some('{') => return Ok(self.sign(Token::Open)),
                Some('}') => return Ok(self.sign(Token::Close)),
                Some(quote @ ('"' | '\'')) => return self.quoted(quote),
                Some(_) => return Ok(self.bare()),
            }
        }
    }

    fn sign(&mut self, token: Token) -> Token {
        self.take();
        token
    }

    /// A word in quotation marks.
    fn quoted(&mut self, quote: char) -> Result<Token, Unreadable> {
        let begun = self.place();
        self.take();
        let mut word = String::new();
        while let Some(taken) = self.take() {
            match taken {
                taken if taken == quote => return Ok(Token::Word(word)),
                '\\' => self.escaped(&mut word),
                taken => word.push(taken),
            }
        }
        Err(Unreadable { place: Some(begun), says: "a quotation mark is not closed".to_owned() })
    }

    /// A word that ends at a blank or a sign. `${` begins a variable, not a block; `$;` ends the
    /// word.
    fn bare(&mut self) -> Token {
        let mut word = String::new();
        let mut begins_variable = false;
        while let Some(next) = self.text.chars().next() {
            let is_end = next.is_ascii_whitespace() || next == ';';
            if is_end || next == '{' && !begins_variable {
                break;
            }
            self.take();
            begins_variable = next == '$';
            match next {
                '\\' => self.escaped(&mut word),
                next => word.push(next),
            }
        }
        Token::Word(word)
    }

    /// The character behind a backslash. As in nginx the backslash stays, except in front of
    /// quotation marks and another backslash.
    fn escaped(&mut self, word: &mut String) {
        match self.take() {
            Some(taken @ ('"' | '\'' | '\\')) => word.push(taken),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(taken) => word.extend(['\\', taken]),
            None => word.push('\\'),
        }
    }

    /// Skips a Lua script up to its closing brace. Braces within its texts and comments close
    /// nothing.
    fn skip_script(&mut self) -> Result<(), Unreadable> {
        let mut depth = 1;
        while let Some(taken) = self.take() {
            match taken {
                '{' => depth += 1,
                '}' => depth -= 1,
                '"' | '\'' => self.skip_text(taken),
                '-' if self.text.starts_with("-[[") => self.skip_to("]]"),
                '-' if self.text.starts_with('-') => self.skip_to("\n"),
                '[' if self.text.starts_with('[') => self.skip_to("]]"),
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.wrong("the script has no end: a } is missing"))
    }

    /// Skips a text of a Lua script, behind its quotation mark.
    fn skip_text(&mut self, quote: char) {
        while let Some(taken) = self.take() {
            match taken {
                '\\' => {
                    self.take();
                }
                taken if taken == quote => return,
                _ => {}
            }
        }
    }

    fn skip_to(&mut self, end: &str) {
        while !self.text.is_empty() && !self.text.starts_with(end) {
            self.take();
        }
        end.chars().for_each(|_| {
            self.take();
        });
    }
}
