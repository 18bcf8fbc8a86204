//! Comparisons of paths.

/// True if a folder contains a path or is the path itself.
pub fn contains(folder: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// True if `path` has this ending, in upper or lower case.
pub fn has_ending(path: &[u8], ending: &[u8]) -> bool {
    path.len() >= ending.len() && path[path.len() - ending.len()..].eq_ignore_ascii_case(ending)
}
