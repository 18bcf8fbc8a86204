//! Comparisons of the paths of URLs.

/// True if a folder contains a path or is the path itself.
#[must_use]
pub fn contains(folder: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// True if `path` has this ending, in upper or lower case.
#[must_use]
pub fn has_ending(path: &[u8], ending: &[u8]) -> bool {
    path.len() >= ending.len() && path[path.len() - ending.len()..].eq_ignore_ascii_case(ending)
}
