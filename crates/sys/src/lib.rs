//! System calls that `rustix` lacks, as safe functions on owned and borrowed descriptors, and the
//! code that the masters of pools share.
#![allow(unsafe_code, reason = "system calls are made by hand")]

pub mod blocks;
pub mod bounded;
pub mod credentials;
pub mod epoch;
pub mod fdpass;
pub mod file;
pub mod fork;
pub mod fragments;
pub mod ktls;
pub mod lease;
pub mod mapping;
pub mod master;
pub mod memfd;
pub mod output;
pub mod outq;
pub mod process;
pub mod purges;
pub mod ring;
pub mod shared;
pub mod tcp;
pub mod thread_timer;
pub mod title;
