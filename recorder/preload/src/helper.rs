//! Starts the drain for a program that was not started by `flightline record`.
use core::ffi::CStr;

/// Starts a recording to `output` with the settings of the environment.
pub fn start_from_environment(_output: &CStr) {}
