//! Finds processes and recordings on this machine.

pub mod processes;
pub mod targets;
