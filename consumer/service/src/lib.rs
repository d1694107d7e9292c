//! The profiling service.

#![forbid(unsafe_code)]

pub mod wire;
