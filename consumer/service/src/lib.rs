//! The profiling service.

#![forbid(unsafe_code)]

pub mod pictures;
pub mod window;
pub mod wire;
