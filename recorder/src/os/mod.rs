//! The operating system: clocks, memory, processes, control groups.

pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod memory;
pub(crate) mod process_info;
pub(crate) mod sigbus;
pub(crate) mod system;
#[cfg(test)]
pub(crate) mod test_isolation;
