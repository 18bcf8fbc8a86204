//! The journal of purges: a file in the folder of pages. Each front appends its purges, and the
//! others read them.
//!
//! During an upgrade two fronts share the folder, and each answers requests that change pages.
//! Before a front uses or keeps a page, it checks with fstat(2) whether the file has grown. A front
//! that starts reads the whole file, because the folder may contain pages that were unknown to the
//! front that was asked to forget them.
//!
//! A long file is replaced by one with its last lines. A front that still has the old file open
//! sees that its link count is 0.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::lscache::PurgeSubject;
use super::purge::Purge;

const NAME: &str = "purges";
/// Name of the next file while it is being written.
const NEXT: &str = "purges.next";

/// Size in bytes above which the file is replaced by one with at most half of it: some 10,000
/// purges.
const MOST: u64 = 1 << 20;

/// Longest wait for the lock, which another front holds while it writes a line.
const PATIENCE: Duration = Duration::from_millis(200);
/// Pause between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(1);

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct JournalLine {
    /// Number of the line. A new file continues the numbers of the previous one.
    number: u64,
    at: SystemTime,
    /// The front that purged.
    by: u64,
    purge: Purge,
}

/// The file.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    file: File,
    /// Random number that identifies this front.
    by: u64,
    /// Bytes of the file that this front has read.
    known: u64,
    /// Number of the last line that this front has read.
    last: u64,
}

impl Journal {
    /// Opens the journal of a folder. Also returns all purges in it.
    ///
    /// # Errors
    /// The file can be neither read nor created.
    pub(super) fn open(folder: &Path) -> io::Result<(Self, Past)> {
        let by = RandomState::new().hash_one(std::process::id());
        let file = open(folder)?;
        let mut journal = Self { folder: folder.to_owned(), file, by, known: 0, last: 0 };
        let entries = journal.read()?;
        // A first number above 1 shows that earlier lines are gone.
        let since = entries.first().filter(|first| first.number > 1).map(|first| first.at);
        let mut past = Past { since, ..Past::default() };
        for JournalLine { at, purge, .. } in entries {
            past.note(at, purge);
        }
        Ok((journal, past))
    }

    /// Returns the purges of other fronts since the last look; `Everything` if lines are missing.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn news(&mut self) -> io::Result<Vec<Purge>> {
        let data = self.file.metadata()?;
        if data.len() == self.known && data.nlink() > 0 {
            return Ok(Vec::new());
        }
        let last = self.last;
        let mut entries = if data.len() < self.known { Vec::new() } else { self.read()? };
        if data.nlink() == 0 || data.len() < self.known {
            // The next file continues the numbers. If it does not, the file was removed or emptied.
            let before = std::mem::take(&mut self.last);
            (self.file, self.known) = (open(&self.folder)?, 0);
            let new = self.read()?;
            let goes_on = new.first().is_some_and(|first| first.number <= before + 1);
            if !goes_on || self.last < before {
                return Ok(vec![Purge::Everything]);
            }
            entries.extend(new.into_iter().filter(|entry| entry.number > before));
        }
        let is_gapless = entries.first().is_none_or(|first| first.number == last + 1)
            && entries.windows(2).all(|pair| pair[1].number == pair[0].number + 1);
        if !is_gapless {
            // More lines than the file keeps, or a line that was torn when a front died.
            return Ok(vec![Purge::Everything]);
        }
        let others = entries.into_iter().filter(|entry| entry.by != self.by);
        Ok(others.map(|entry| entry.purge).collect())
    }

    /// Tells other fronts of a purge. Returns their purges since the last look.
    ///
    /// # Errors
    /// The file cannot be read or written: the other fronts do not hear of the purge.
    pub(super) fn note(&mut self, purge: &Purge) -> io::Result<Vec<Purge>> {
        let mut news = Vec::new();
        let lock = loop {
            let lock = Lock::of(&self.file)?;
            news.extend(self.news()?);
            // Another front may have replaced the file while this one waited.
            if is_same(&lock.0, &self.file)? {
                break lock;
            }
        };
        let number = self.last + 1;
        let entry =
            JournalLine { number, at: SystemTime::now(), by: self.by, purge: purge.clone() };
        let end = self.file.metadata()?.len();
        let mut line = Vec::new();
        if end > self.known {
            // Ends a line that a front began and did not finish before it died.
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, &entry)?;
        line.push(b'\n');
        (&self.file).write_all(&line)?;
        (self.known, self.last) = (end + line.len() as u64, number);
        if self.known > MOST {
            self.shorten()?;
        }
        drop(lock);
        Ok(news)
    }

    /// Reads the complete lines after the known ones whose numbers are higher.
    fn read(&mut self) -> io::Result<Vec<JournalLine>> {
        let len = self.file.metadata()?.len();
        let mut text = vec![0; usize::try_from(len.saturating_sub(self.known)).unwrap_or(0)];
        self.file.read_exact_at(&mut text, self.known)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.known += whole as u64;
        let lines = text[..whole].split(|byte| *byte == b'\n');
        let mut entries: Vec<JournalLine> =
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        entries.retain(|entry| entry.number > self.last);
        self.last = entries.last().map_or(self.last, |entry| entry.number);
        Ok(entries)
    }

    /// Replaces the file by one with its last lines.
    fn shorten(&mut self) -> io::Result<()> {
        let mut text = vec![0; usize::try_from(self.known).unwrap_or(0)];
        self.file.read_exact_at(&mut text, 0)?;
        let half = text.len() - text.len() / 2;
        let begins = |from: usize| {
            text[from..].iter().position(|byte| *byte == b'\n').map(|at| from + at + 1)
        };
        let ends = text.len().saturating_sub(1);
        let last = text[..ends].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // The last line stays even if it is long: the next number follows from it.
        let from = begins(half).unwrap_or(last).min(last);
        let next = self.folder.join(NEXT);
        let mut file = options().write(true).truncate(true).open(&next)?;
        file.write_all(&text[from..])?;
        fs::rename(next, self.folder.join(NAME))?;
        (self.file, self.known) = (open(&self.folder)?, (text.len() - from) as u64);
        Ok(())
    }
}

/// Earlier purges, with their times.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Purges of single pages, by the hash of the address, or of the site and the address.
    pages: HashMap<[u8; 20], SystemTime>,
    /// Purges of several pages each.
    wider: Vec<(SystemTime, Purge)>,
    /// Purges before this time are unknown; `None`: all are known.
    since: Option<SystemTime>,
}

impl Past {
    fn note(&mut self, at: SystemTime, purge: Purge) {
        let only_page = match &purge {
            Purge::Page(address) => Some(address.hash()),
            Purge::Named(named) => named.only_page(),
            Purge::Everything | Purge::Beneath(_) => None,
        };
        match only_page {
            Some(hash) => {
                let last = self.pages.entry(hash).or_insert(at);
                *last = at.max(*last);
            }
            None => self.wider.push((at, purge)),
        }
    }

    /// True if a page that was made at this time has been purged since.
    pub(super) fn concerns(&self, page: &PurgeSubject, made: SystemTime) -> bool {
        self.since.is_some_and(|since| made <= since)
            || [page.address.hash(), page.page_hash()]
                .iter()
                .any(|hash| self.pages.get(hash).is_some_and(|at| *at >= made))
            || self.wider.iter().any(|(at, purge)| *at >= made && purge.concerns(page))
    }
}

/// The lock on the file: one front writes at a time.
struct Lock(File);

impl Lock {
    /// Waits for the lock, at most `PATIENCE`: the event loop stands still meanwhile, and the front
    /// that holds the lock may have been stopped.
    fn of(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let end = Instant::now() + PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let why = format!("another server has had {NAME} locked for {PATIENCE:?}");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If unlocking fails, the file stays locked until this front closes it.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn open(folder: &Path) -> io::Result<File> {
    options().read(true).append(true).open(folder.join(NAME))
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::PageAddress;
    use crate::lscache::Labels;

    fn page(uri: &str) -> Purge {
        Purge::page("", "a.test", uri.as_bytes())
    }

    fn address(uri: &str) -> PurgeSubject {
        let address = PageAddress::new("a.test", uri.as_bytes());
        PurgeSubject { site: Vec::new(), address, labels: Labels::default() }
    }

    fn text(folder: &Path) -> String {
        fs::read_to_string(folder.join(NAME)).unwrap()
    }

    #[test]
    fn each_front_hears_what_others_purge_and_nothing_twice() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, _) = Journal::open(folder.path()).unwrap();
        assert!(one.note(&page("/1")).unwrap().is_empty());
        let (mut two, past) = Journal::open(folder.path()).unwrap();
        assert!(two.news().unwrap().is_empty(), "it was read at the start");
        let before = SystemTime::UNIX_EPOCH;
        assert!(past.concerns(&address("/1"), before) && !past.concerns(&address("/2"), before));
        assert!(!past.concerns(&address("/1"), SystemTime::now() + Duration::from_secs(1)));
        assert!(two.note(&page("/2")).unwrap().is_empty());
        assert_eq!(one.note(&page("/3")).unwrap(), [page("/2")]);
        assert_eq!(two.news().unwrap(), [page("/3")]);
        assert!(one.news().unwrap().is_empty() && two.news().unwrap().is_empty());
    }

    #[test]
    fn a_front_that_stopped_with_the_lock_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, _) = Journal::open(folder.path()).unwrap();
        let (two, _) = Journal::open(folder.path()).unwrap();
        let lock = Lock::of(&two.file).unwrap();
        assert_eq!(one.note(&page("/")).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(lock);
        assert!(one.note(&page("/")).unwrap().is_empty());
    }

    #[test]
    fn a_long_journal_is_replaced_and_still_tells_everything() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, _) = Journal::open(folder.path()).unwrap();
        let (mut two, _) = Journal::open(folder.path()).unwrap();
        let long = page(&format!("/{}", "x".repeat(10_000)));
        let (mut told, mut longest) = (0, 0);
        for _ in 0..200 {
            one.note(&long).unwrap();
            longest = longest.max(text(folder.path()).len() as u64);
            for news in two.news().unwrap() {
                assert_eq!(news, long);
                told += 1;
            }
        }
        assert_eq!(told, 200);
        assert!(longest < MOST + 100_000, "{longest}");
        assert!(two.note(&page("/")).unwrap().is_empty());
        assert_eq!(one.news().unwrap(), [page("/")]);
        // A front that has missed more purges than the file keeps forgets all pages.
        (0..200).for_each(|_| drop(one.note(&long).unwrap()));
        assert_eq!(two.news().unwrap(), [Purge::Everything]);
        assert!(two.news().unwrap().is_empty());
    }

    #[test]
    fn a_file_that_somebody_has_removed_or_emptied_may_have_had_anything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let (mut one, _) = Journal::open(folder.path()).unwrap();
        for lose in [|path: &Path| fs::remove_file(path), |path: &Path| fs::write(path, "")] {
            (0..5).for_each(|_| drop(one.note(&page("/1")).unwrap()));
            lose(&path).unwrap();
            let (mut two, _) = Journal::open(folder.path()).unwrap();
            two.note(&page("/2")).unwrap();
            assert_eq!(one.news().unwrap(), [Purge::Everything]);
            two.note(&page("/3")).unwrap();
            assert_eq!(one.news().unwrap(), [page("/3")]);
            assert!(one.news().unwrap().is_empty());
        }
    }

    #[test]
    fn pages_from_before_the_first_line_may_have_been_purged() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, _) = Journal::open(folder.path()).unwrap();
        one.note(&page("/1")).unwrap();
        let begun = SystemTime::now();
        let (_, past) = Journal::open(folder.path()).unwrap();
        assert!(!past.concerns(&address("/other"), SystemTime::UNIX_EPOCH));
        let long = page(&format!("/{}", "x".repeat(10_000)));
        (0..50).for_each(|_| drop(one.note(&long).unwrap()));
        assert!(!text(folder.path()).contains("\"number\":1,"));
        let (_, past) = Journal::open(folder.path()).unwrap();
        assert!(past.concerns(&address("/other"), begun));
        assert!(!past.concerns(&address("/other"), SystemTime::now()));
    }

    #[test]
    fn a_line_that_was_torn_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, _) = Journal::open(folder.path()).unwrap();
        let (mut two, _) = Journal::open(folder.path()).unwrap();
        one.note(&page("/1")).unwrap();
        open(folder.path()).unwrap().write_all(b"{\"number\":2,\"at\":").unwrap();
        assert_eq!(two.news().unwrap(), [page("/1")]);
        assert!(two.news().unwrap().is_empty());
        one.note(&page("/2")).unwrap();
        assert_eq!(two.news().unwrap(), [page("/2")]);
        let (_, past) = Journal::open(folder.path()).unwrap();
        assert!(past.concerns(&address("/2"), SystemTime::UNIX_EPOCH));
    }
}
