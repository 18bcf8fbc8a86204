//! The front: speaks HTTP to clients and hands requests to workers.
#![forbid(unsafe_code)]

pub mod segment;
pub mod static_files;
