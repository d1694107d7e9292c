//! What the cross-crate tests share: real programs recorded by the real command, and their own truth.
//!
//! * [`victim`] builds the programs of `tests/victims` with the system's compilers.
//! * [`run`] runs anything with a time-out.
//! * [`record`] is `flightline record` as a person types it.
//! * [`truth`] is what a victim says of itself (its own clock reads).
//! * [`recording`] reads a recording back, by our reader or by the JDK's; [`canonical`] as lines to compare.
//! * [`malformed`] makes recordings with one thing wrong each.
//! * [`foreign`] runs readers that others wrote; [`print_agreement`] compares what they print, read by [`json_events`].
//! * [`shares`] turns both into shares that can be compared.
//! * [`shared_memory`] looks into a live session's shared memory, independently of the drain.

pub mod canonical;
pub mod foreign;
pub mod json_events;
pub mod malformed;
pub mod print_agreement;
pub mod record;
pub mod recording;
pub mod run;
pub mod shared_memory;
pub mod shares;
pub mod skip;
pub mod truth;
pub mod victim;
