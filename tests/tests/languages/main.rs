//! Applications in C, Go, Java, Lua, Python, Ruby: programs that the server starts or reaches over
//! FastCGI.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]
#![allow(unreachable_pub, reason = "modules of a test program")]

mod at_once;
mod delivery;
mod java;
mod libfcgi;
mod lua_program;
mod multiplexing;
mod outdated_library;
mod program_pools;
mod python;
mod ruby;
mod stops;
mod valgrind;
