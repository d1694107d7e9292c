//! The life of the recorded process: the recording starts, joins a session, follows fork and exec, executes the
//! drain's commands, and ends with the process.

pub(crate) mod control;
pub mod exec;
pub mod exit;
pub mod fork;
pub mod join;
pub(crate) mod start;
