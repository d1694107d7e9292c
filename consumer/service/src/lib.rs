//! The profiling service.

#![forbid(unsafe_code)]

pub mod page;
pub mod wire;
