//! Files in shared memory: a program's own (`proc_file`), the unwind rows for its handlers (`rows`), and what is not in the output yet (`journal`).

#[cfg(not(feature = "fuzzing"))]
pub(crate) mod journal;
#[cfg(feature = "fuzzing")]
pub mod journal;
pub(crate) mod proc_file;
pub mod rows;
