//! Perf events of one thread: [`perf_event`] opens them, [`perf_ring`] reads the memory that the kernel writes.

pub mod perf_event;
pub mod perf_ring;
