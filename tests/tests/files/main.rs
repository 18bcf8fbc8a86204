//! Bodies from files and from shared memory: the bytes, their way, and files that change meanwhile.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod blobs;
mod changing_files;
mod conformance;
mod direct;
mod dying;
mod filesystems;
mod lazy;
mod region;
mod sendfile;
mod static_files;
mod stopped;
mod tricks;
mod writers;
