//! Commands for off-CPU time, slow calls and latencies.

pub mod graph;
pub mod latency;
pub mod options;
pub mod slower;
