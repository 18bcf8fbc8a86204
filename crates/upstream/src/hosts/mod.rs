//! Upstreams with several hosts: which of them gets a request, what is known of their health, and where their names lead.
//!
//! Nothing here knows a protocol. A driver gives [`Hosts`] a value for each address (its connections to it, say) and asks
//! for a [`Turn`] per attempt:
//!
//! ```text
//!   let mut tried = Tried::default();
//!   loop {
//!       let mut turn = hosts.choose(&mut tried).await?;        // waits only until a name is resolved for the first time
//!       match attempt(turn.host()).await {
//!           Ok(head) => { turn.answered(); … }                 // at the head, not at the end of the response
//!           Err(why) => {
//!               turn.failed(&why);
//!               if !tried.may_go_on(&why, is_idempotent, &hosts) { return Err(why) }
//!           }
//!       }
//!   }
//! ```
//! The turn is dropped when the response has ended: until then the host counts as busy with it. `choice.rs` is the machine
//! that chooses, `names.rs` looks names up again, `probe.rs` looks after hosts that have no requests, `tend.rs`
//! keeps both at work.

mod choice;
mod group;
mod names;
mod probe;
mod tend;

pub use choice::Rules;
pub use group::{Hosts, Tried, Turn};
pub use tend::tend;
