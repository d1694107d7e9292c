//! Files in shared memory: a program's own file (`proc_file`), the unwind tables for its handlers (`rows`),
//! and data that is not in the output yet (`journal`).

#[cfg(not(feature = "fuzzing"))]
pub(crate) mod journal;
#[cfg(feature = "fuzzing")]
pub mod journal;
pub(crate) mod proc_file;
pub mod rows;
