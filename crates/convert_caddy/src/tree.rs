//! The grammar of Caddyfiles: lines with blocks, imports and snippets.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sendoff_convert_document::sources::{MAX_DEPTH, Sources};
use sendoff_convert_document::{Directive, Files, Place, Unreadable};

use super::tokens::{Token, tokens};

/// A line, with the words in braces behind it.
#[derive(Debug, Clone)]
struct Line {
    /// Its words; none in front of the block of global options.
    words: Vec<Token>,
    block: Option<Vec<Self>>,
    place: Place,
}

/// A block of directives with the addresses that it is for.
#[derive(Debug)]
pub(super) struct SiteBlock {
    pub(super) addresses: Vec<(String, Place)>,
    pub(super) directives: Vec<Directive>,
}

/// A Caddyfile with its imports.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) global: Vec<Directive>,
    pub(super) sites: Vec<SiteBlock>,
    /// The files that it consists of.
    pub(super) files: Vec<PathBuf>,
    /// The first line.
    pub(super) place: Option<Place>,
}

/// Reads a file and all files that it imports.
pub(super) fn read(path: &Path, files: &dyn Files) -> Result<Tree, Unreadable> {
    let mut reader = Reader { sources: Sources::new(files), snippets: HashMap::new() };
    let lines = reader.file(path, None, 0)?;
    let mut tree = Tree::default();
    reader.top(lines, &mut tree, 0)?;
    reader.sources.all().clone_into(&mut tree.files);
    Ok(tree)
}

struct Reader<'f> {
    sources: Sources<'f>,
    snippets: HashMap<String, Vec<Line>>,
}

impl Reader<'_> {
    fn file(
        &mut self,
        path: &Path,
        from: Option<&Place>,
        depth: usize,
    ) -> Result<Vec<Line>, Unreadable> {
        let source = self.sources.open(path, from, depth)?;
        self.sources.close();
        let tokens = tokens(&source)?;
        let mut rest = tokens.into_iter().peekable();
        lines(&mut rest, None, depth)
    }

    /// The lines of the outermost level: global options, snippets, and blocks with addresses.
    fn top(&mut self, lines: Vec<Line>, tree: &mut Tree, depth: usize) -> Result<(), Unreadable> {
        let mut rest = lines.into_iter();
        let mut addresses: Vec<Token> = Vec::new();
        while let Some(line) = rest.next() {
            tree.place.get_or_insert_with(|| line.place.clone());
            self.sources.count(&line.place)?;
            let first = line.words.first().map(|word| word.text.as_str());
            match (first, &line.block) {
                (None, Some(block)) if addresses.is_empty() && tree.sites.is_empty() => {
                    let directives = self.block(block, depth + 1)?;
                    tree.global.extend(directives);
                    continue;
                }
                (Some("import"), None) if addresses.is_empty() => {
                    let imported = self.import(&line.words, depth)?;
                    self.top(imported, tree, depth + 1)?;
                    continue;
                }
                (Some(name), Some(block)) if name.starts_with('(') && addresses.is_empty() => {
                    let name = name.trim_matches(['(', ')']).to_owned();
                    self.snippets.insert(name, block.clone());
                    continue;
                }
                _ => {}
            }
            let goes_on = line.words.last().is_some_and(|word| word.text.ends_with(','));
            addresses.extend(line.words);
            let directives = match line.block {
                Some(block) => self.block(&block, depth + 1)?,
                None if goes_on => continue,
                // The rest of the file belongs to the only site.
                None => {
                    let lines: Vec<_> = rest.by_ref().collect();
                    self.block(&lines, depth + 1)?
                }
            };
            let addresses = addresses.drain(..).flat_map(|word| {
                let place = word.place;
                let words: Vec<_> = word.text.split(',').map(str::to_owned).collect();
                words.into_iter().filter(|text| !text.is_empty()).map(move |t| (t, place.clone()))
            });
            tree.sites.push(SiteBlock { addresses: addresses.collect(), directives });
        }
        Ok(())
    }

    /// The directives of a block, with what it imports.
    fn block(&mut self, lines: &[Line], depth: usize) -> Result<Vec<Directive>, Unreadable> {
        let mut directives = Vec::new();
        for line in lines {
            self.sources.count(&line.place)?;
            let Some((name, words)) = line.words.split_first() else {
                let says = "this { belongs to no directive".to_owned();
                return Err(Unreadable { place: Some(line.place.clone()), says });
            };
            if name.text == "import" && line.block.is_none() {
                let imported = self.import(&line.words, depth)?;
                directives.extend(self.block(&imported, depth + 1)?);
                continue;
            }
            let words = words.iter().map(|word| word.text.clone()).collect();
            let block =
                line.block.as_ref().map(|block| self.block(block, depth + 1)).transpose()?;
            directives.push(Directive::new(name.text.clone(), words, block, line.place.clone()));
        }
        Ok(directives)
    }

    /// The lines of a snippet or of files.
    fn import(&mut self, words: &[Token], depth: usize) -> Result<Vec<Line>, Unreadable> {
        let [import, name, arguments @ ..] = words else {
            let place = words.first().map(|word| word.place.clone());
            return Err(Unreadable { place, says: "import names nothing".to_owned() });
        };
        let place = &import.place;
        if depth > MAX_DEPTH {
            let says = "imports are nested too deeply".to_owned();
            return Err(Unreadable { place: Some(place.clone()), says });
        }
        let arguments: Vec<&str> = arguments.iter().map(|word| word.text.as_str()).collect();
        if let Some(lines) = self.snippets.get(&name.text) {
            return Ok(lines.iter().map(|line| with_arguments(line, &arguments)).collect());
        }
        let folder = Path::new(&*place.file).parent().unwrap_or(Path::new(""));
        let pattern: PathBuf = folder.join(&name.text);
        let mut imported = Vec::new();
        for path in self.sources.named(&pattern) {
            let lines = self.file(&path, Some(place), depth + 1)?;
            imported.extend(lines.iter().map(|line| with_arguments(line, &arguments)));
        }
        Ok(imported)
    }
}

/// The line with the arguments of `import` in place of `{args[0]}` and `{args.0}`.
fn with_arguments(line: &Line, arguments: &[&str]) -> Line {
    let mut words = Vec::new();
    for word in &line.words {
        if matches!(word.text.as_str(), "{args[:]}" | "{args.*}") {
            let all = arguments.iter().map(|text| word.with((*text).to_owned()));
            words.extend(all);
            continue;
        }
        let mut text = word.text.clone();
        if text.contains("{args") {
            for (number, argument) in arguments.iter().enumerate() {
                text = text.replace(&format!("{{args[{number}]}}"), argument);
                text = text.replace(&format!("{{args.{number}}}"), argument);
            }
        }
        words.push(word.with(text));
    }
    let block = line.block.as_ref();
    let block =
        block.map(|block| block.iter().map(|line| with_arguments(line, arguments)).collect());
    Line { words, block, place: line.place.clone() }
}

/// Reads lines up to the brace that closes the block that began at `begun`, or up to the end.
fn lines(
    tokens: &mut std::iter::Peekable<std::vec::IntoIter<Token>>,
    begun: Option<&Place>,
    depth: usize,
) -> Result<Vec<Line>, Unreadable> {
    let wrong = |place: &Place, says: &str| {
        Err(Unreadable { place: Some(place.clone()), says: says.to_owned() })
    };
    let mut lines = Vec::new();
    while let Some(first) = tokens.next() {
        let place = first.place.clone();
        if first.is_brace("}") {
            return match begun {
                Some(_) => Ok(lines),
                None => wrong(&place, "this } closes no block"),
            };
        }
        let mut words = vec![first];
        while let Some(word) = tokens.next_if(|word| !word.begins_line) {
            words.push(word);
        }
        let has_block = words.last().is_some_and(|word| word.is_brace("{"));
        let block = match has_block {
            true if depth > MAX_DEPTH => return wrong(&place, "blocks are nested too deeply"),
            true => {
                words.pop();
                Some(self::lines(tokens, Some(&place), depth + 1)?)
            }
            false => None,
        };
        lines.push(Line { words, block, place });
    }
    match begun {
        Some(place) => wrong(place, "the block that begins here has no end: a } is missing"),
        None => Ok(lines),
    }
}
