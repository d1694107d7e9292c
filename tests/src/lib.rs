//! Helpers shared by the cross-crate tests. They record real programs with the real command and compare the
//! recordings with the programs' own counts (ground truth).
//!
//! * [`agents`]: tests of `flightline agent`.
//! * [`allocations`]: allocation events of a recording.
//! * [`canonical`]: a recording as lines to compare.
//! * [`cgroup`]: control groups with little memory.
//! * [`controlled`]: a test program that works on command, and `flightline ctl` for it.
//! * [`crashes`]: a program to be killed, with every allocation known.
//! * [`examples`]: checks the calls of `flightline` in documents against the command's help.
//! * [`folded`]: folds a recording with our own command.
//! * [`foreign`]: runs readers of other projects.
//! * [`guest`]: runs a program alone and recorded, and compares the results.
//! * [`java_reader`]: builds and runs the Java reader of `consumer/java`.
//! * [`jfr_tool`]: runs the JDK's `jfr` on many files in one process.
//! * [`json_events`]: reads the JSON of `print`.
//! * [`malformed`]: generates recordings with one defect each.
//! * [`print_agreement`]: compares the JSON of our `print` and the JDK's.
//! * [`private_shm`]: gives one run of the tests a `/dev/shm` of its own.
//! * [`record`]: runs `flightline record` as a user would.
//! * [`recording`]: reads a recording with our reader or with the JDK's.
//! * [`run`]: runs any command with a time-out.
//! * [`served`]: a profiling service and its log.
//! * [`shared_memory`]: reads the shared memory of a live session, independently of the drain.
//! * [`shares`]: turns ground truth and recordings into shares that can be compared.
//! * [`documents`]: links of documents.
//! * [`span_truth`]: the ground truth of `span_load`, and the same figures from a recording.
//! * [`spans`]: events of the engines other than CPU time.
//! * `stepping`: stops a process between instructions.
//! * [`stolen`]: measures the time that the hypervisor took.
//! * [`stream`]: checks the bytes that a reader of a stream received.
//! * [`stub_service`]: a profiling service that a test controls.
//! * [`truth`]: the ground truth that a test program writes from its own clock.
//! * [`victim`]: builds the programs of `tests/victims` with the system's compilers.
//! * [`walls`]: wall-clock time and metrics of a recording.
//! * [`whole`]: the CPU time on stacks that reach the root.

/// Returns true if `FLIGHTLINE_LONG` is set: tests then use more rounds and larger inputs.
pub fn long() -> bool {
    std::env::var_os("FLIGHTLINE_LONG").is_some()
}

pub mod agents;
pub mod allocations;
pub mod canonical;
pub mod cgroup;
pub mod contexts;
pub mod controlled;
pub mod crashes;
pub mod documents;
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
pub mod own_events;
pub mod print_agreement;
pub mod private_shm;
pub mod record;
pub mod recording;
pub mod repository;
pub mod run;
pub mod served;
pub mod shared_memory;
pub mod shares;
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
