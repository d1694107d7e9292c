//! The interface between the drain and a program that is already running: commands in queued signals, and the
//! mailbox.
//!
//! A command is `SIGPROF` queued with a [`crate::state::cookie::Cookie`] of source [`crate::state::cookie::FROM_CONTROL`],
//! whose slot is the command. The capture crate executes it.

/// Join the session that the mailbox names.
pub const JOIN: u32 = 1;
/// Arm or disarm the threads as the session page says now, then confirm that in the process header.
pub const APPLY: u32 = 2;
/// Leave a session that has ended, and release its memory.
pub const LEAVE: u32 = 3;

/// Record the last sample of this thread. Sent within a process that a signal is about to end.
pub const LAST_SAMPLE: u32 = 4;

/// Directories tried for the mailbox, in this order.
pub const MAILBOX_DIRS: [&str; 2] = ["/dev/shm", "/tmp"];
/// Name of a mailbox before the process id.
pub const MAILBOX_PREFIX: &str = "flightline-join-";
/// Maximum length of a mailbox's contents: the path of a session directory as the program sees it.
pub const MAILBOX_BYTES: usize = 255;
/// Name, of memory or of an anonymous file, by which a listening process is recognised in `/proc/<pid>/maps`.
pub const LISTENING: &str = "flightline listens";
