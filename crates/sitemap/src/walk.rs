//! The walk through the pages of a sitemap: which address is next, and when it is enough.

use std::collections::{HashSet, VecDeque};

use crate::document::Document;
use crate::location::Location;

/// Most pages of a walk. More would rarely fit into the page cache.
const MOST_PAGES: usize = 100_000;

/// Most sitemaps of a walk.
const MOST_SITEMAPS: usize = 1_000;

/// Indexes above a sitemap. The protocol allows one; large sites nest a second one.
const MOST_INDEXES: u8 = 2;

/// The next address of a walk.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Request this sitemap, and tell the walk its contents.
    Sitemap(Location),
    /// Request this page.
    Page(Location),
}

/// A walk through the pages of a sitemap, one sitemap after the other: the addresses of only one of
/// them are in memory.
#[derive(Debug)]
pub struct Walk {
    pages: VecDeque<Location>,
    sitemaps: VecDeque<(Location, u8)>,
    /// The sitemaps that the walk has had, or has before it.
    known: HashSet<Location>,
    /// Indexes above the sitemap that was requested last.
    depth: u8,
    listed: usize,
    /// Notes on addresses that are left out, as sentences.
    left_out: Vec<String>,
}

impl Walk {
    /// A walk that begins at this sitemap.
    #[must_use]
    pub fn new(first: Location) -> Self {
        Self {
            pages: VecDeque::new(),
            known: HashSet::from([first.clone()]),
            sitemaps: VecDeque::from([(first, 0)]),
            depth: 0,
            listed: 0,
            left_out: Vec::new(),
        }
    }

    /// The next address; `None`: that was the last one.
    pub fn step(&mut self) -> Option<Step> {
        if let Some(page) = self.pages.pop_front() {
            return Some(Step::Page(page));
        }
        let (sitemap, depth) = self.sitemaps.pop_front()?;
        self.depth = depth;
        Some(Step::Sitemap(sitemap))
    }

    /// Takes the contents of the sitemap that was requested last. `is_own`: the site answers for
    /// this address; others are left out.
    pub fn take(&mut self, document: Document, is_own: impl Fn(&Location) -> bool) {
        let Document { mut pages, mut sitemaps, invalid, cut } = document;
        let count = pages.len() + sitemaps.len();
        pages.retain(&is_own);
        sitemaps.retain(&is_own);
        let foreign = count - pages.len() - sitemaps.len();
        for (number, what) in [(foreign, "of other hosts"), (invalid, "that are not valid")] {
            if number > 0 {
                self.left_out.push(format!("addresses {what}, which are left out: {number}"));
            }
        }
        self.left_out.extend(cut);
        if pages.len() > MOST_PAGES - self.listed {
            pages.truncate(MOST_PAGES - self.listed);
            self.left_out.push(format!("pages above {MOST_PAGES} are left out"));
        }
        self.listed += pages.len();
        self.pages.extend(pages);
        for sitemap in sitemaps {
            self.take_sitemap(sitemap);
        }
    }

    fn take_sitemap(&mut self, sitemap: Location) {
        if self.known.contains(&sitemap) {
            return;
        }
        let too_deep = self.depth >= MOST_INDEXES;
        if too_deep || self.known.len() >= MOST_SITEMAPS {
            let why = match too_deep {
                true => format!("sitemaps beneath more than {MOST_INDEXES} indexes are left out"),
                false => format!("sitemaps above {MOST_SITEMAPS} are left out"),
            };
            if self.left_out.last() != Some(&why) {
                self.left_out.push(why);
            }
            return;
        }
        self.known.insert(sitemap.clone());
        self.sitemaps.push_back((sitemap, self.depth + 1));
    }

    /// Number of pages that the sitemaps so far have listed.
    #[must_use]
    pub fn listed(&self) -> usize {
        self.listed
    }

    /// Notes on addresses of the last sitemap that are left out, as sentences.
    pub fn take_left_out(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Location {
        Location::parse(&format!("http://a.test/{path}")).unwrap()
    }

    fn index(paths: &[&str]) -> Document {
        Document { sitemaps: paths.iter().map(|path| at(path)).collect(), ..Document::default() }
    }

    fn pages(count: usize) -> Document {
        let pages = (0..count).map(|number| at(&format!("p{number}"))).collect();
        Document { pages, ..Document::default() }
    }

    #[test]
    fn sitemaps_are_walked_through_one_after_the_other() {
        let mut walk = Walk::new(at("i"));
        assert_eq!(walk.step(), Some(Step::Sitemap(at("i"))));
        walk.take(index(&["a", "i", "b", "a"]), |_| true);
        assert_eq!(walk.step(), Some(Step::Sitemap(at("a"))));
        walk.take(pages(2), |_| true);
        assert_eq!(walk.step(), Some(Step::Page(at("p0"))));
        assert_eq!(walk.step(), Some(Step::Page(at("p1"))));
        assert_eq!(walk.step(), Some(Step::Sitemap(at("b"))));
        assert_eq!(walk.step(), None);
        assert_eq!((walk.listed(), walk.take_left_out()), (2, vec![]));
    }

    #[test]
    fn other_hosts_are_left_out() {
        let mut walk = Walk::new(at("i"));
        let mut document = pages(1);
        document.pages.push(Location::parse("http://b.test/").unwrap());
        document.invalid = 3;
        walk.take(document, |at| at.authority == "a.test");
        let left_out = walk.take_left_out();
        assert_eq!(walk.listed(), 1);
        assert!(
            left_out[0].contains("other hosts") && left_out[0].ends_with(": 1"),
            "{left_out:?}"
        );
        assert!(left_out[1].contains("not valid") && left_out[1].ends_with(": 3"), "{left_out:?}");
    }

    #[test]
    fn endless_indexes_end() {
        let mut walk = Walk::new(at("0"));
        let mut requested = 0;
        while let Some(Step::Sitemap(_)) = walk.step() {
            requested += 1;
            let new: Vec<_> = (0..100).map(|n| format!("{requested}-{n}")).collect();
            let new: Vec<_> = new.iter().map(String::as_str).collect();
            walk.take(index(&new), |_| true);
        }
        assert_eq!(requested, MOST_SITEMAPS);
        assert!(walk.take_left_out().len() < 2 * MOST_SITEMAPS);
    }

    #[test]
    fn a_walk_has_a_last_page() {
        let mut walk = Walk::new(at("i"));
        for _ in 0..3 {
            walk.take(pages(50_000), |_| true);
        }
        assert_eq!(walk.listed(), MOST_PAGES);
        assert_eq!(walk.take_left_out().len(), 1);
    }
}
