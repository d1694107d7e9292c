//! Engines that record processes from outside, by events of the kernel: CPU time and waits (`attach`), switches, wake-ups and system calls
//! (`off_cpu`). They write to [`outputs`].

pub(crate) mod attach;
pub(crate) mod off_cpu;
pub(crate) mod outputs;
