//! What the cross-crate tests share: real programs recorded by the real command, and their own truth.
//!
//! * [`victim`] builds the programs of `tests/victims` with the system's compilers.
//! * [`run`] runs anything with a time-out.
//! * [`record`] is `flightline record` as a person types it.
//! * [`guest`] runs a program alone and recorded, and compares.
//! * [`truth`] is what a victim says of itself (its own clock reads).
//! * [`recording`] reads a recording back, by our reader or by the JDK's; [`canonical`] as lines to compare.
//! * [`agents`] is what tests of `flightline agent` look at.
//! * [`allocations`] reads what a recording says of them.
//! * [`shown`] finds the tests and files that a document names; [`checklists`] are such documents.
//! * [`examples`] checks the calls of `flightline` in documents against the command's help.
//! * [`folded`] folds a recording by our own command.
//! * [`walls`] reads what it says of wall-clock time and of metrics.
//! * [`malformed`] makes recordings with one thing wrong each.
//! * [`cgroup`] makes control groups with little memory.
//! * [`controlled`] is a victim that works when told to, and `flightline ctl` for it.
//! * [`crashes`] is a program of which every allocation is known, to be killed; `stepping` stops it between instructions.
//! * [`foreign`] runs readers that others wrote; [`print_agreement`] compares what they print, read by [`json_events`];
//!   [`jfr_tool`] runs the JDK's for many files.
//! * [`private_shm`] gives one run of the tests a `/dev/shm` of its own.
//! * [`served`] is a profiling service, and what it tells.
//! * [`span_truth`] is what `span_load` says of its spans, and what a recording says.
//! * [`spans`] reads what engines beside CPU time record.
//! * [`stolen`] tells what the machine below took of the time.
//! * [`stub_service`] is a profiling service that does what a test tells it to.
//! * [`stream`] looks at what a reader of a stream got.
//! * [`whole`] says how much CPU time is on stacks that reach the root.
//! * [`shares`] turns both into shares that can be compared.
//! * [`java_reader`] builds and runs the Java reader of `consumer/java`.
//! * [`shared_memory`] looks into a live session's shared memory, independently of the drain.

/// Returns true if `FLIGHTLINE_LONG` is set: tests then use more rounds and larger inputs.
pub fn long() -> bool {
    std::env::var_os("FLIGHTLINE_LONG").is_some()
}

pub mod agents;
pub mod allocations;
pub mod canonical;
pub mod cgroup;
pub mod checklists;
pub mod contexts;
pub mod controlled;
pub mod crashes;
pub mod examples;
pub mod folded;
pub mod follower;
pub mod foreign;
pub mod guest;
pub mod http;
pub mod java_reader;
pub mod jfr_tool;
pub mod json_events;
pub mod machine;
pub mod malformed;
pub mod print_agreement;
pub mod private_shm;
pub mod record;
pub mod recording;
pub mod repository;
pub mod run;
pub mod served;
pub mod shared_memory;
pub mod shares;
pub mod shown;
pub mod skip;
pub mod span_truth;
pub mod spans;
pub mod stepping;
pub mod stolen;
pub mod stream;
pub mod stub_service;
pub mod truth;
pub mod victim;
pub mod walls;
pub mod whole;
