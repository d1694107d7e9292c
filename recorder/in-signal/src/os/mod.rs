//! The operating system as a handler may use it, without libc: system calls, clocks, the thread-local word.

pub mod clock;
pub mod sys;
pub mod tls;
pub mod vdso;
