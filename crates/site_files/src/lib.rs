//! The files and scripts of a site's folders.
//!
//! [`router`] finds the file or the script for a path; [`sendable`] opens the files that
//! applications may name, and `opened` accepts files that a worker has opened.
#![forbid(unsafe_code)]

mod mounts;
mod never_served;
mod opened;
pub mod router;
pub mod sendable;
