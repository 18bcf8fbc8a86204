//! Upstreams with several hosts: the choice of a host for a request, the hosts' health, and the
//! resolution of their names.
//!
//! This module knows no protocol. A driver gives [`Hosts`] a value for each address (such as its
//! connections) and asks for an [`AttemptGuard`] per attempt:
//!
//! ```text
//!   let mut tried = Tried::none(request, &hosts);
//!   loop {
//!       let mut attempt = hosts.choose(&mut tried).await?;  // waits for the first look-up only
//!       match ask(attempt.host()).await {
//!           Ok(head) => { attempt.answered(); … }           // at the head of the response
//!           Err(why) => {
//!               attempt.failed(&why);
//!               if !tried.may_try_another(&why, is_idempotent, &hosts) { return Err(why) }
//!           }
//!       }
//!   }
//! ```
//! The guard is dropped when the response has ended: until then the host counts as busy with the
//! request. `choice.rs` chooses, `wish.rs` and `tagged_cookie.rs` know the
//! host that a request is bound to, `names.rs` resolves names again and again, `probe.rs` checks the
//! hosts, and `tend.rs` runs these tasks.

mod choice;
mod group;
mod names;
mod probe;
mod tagged_cookie;
mod tend;
mod wish;

pub use choice::HealthRules;
pub use group::{AttemptGuard, Hosts, Tried};
pub use probe::ProbeKind;
pub use tend::tend;
pub use wish::{HostCookie, Placement};
