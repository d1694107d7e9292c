//! Reading and writing JDK Flight Recorder files (format 2.x). Knows nothing of profiling or processes.

#![deny(unsafe_code)] // but for read/map.rs

pub mod constants;
pub mod error;
pub mod event;
pub mod header;
pub mod ids;
pub mod metadata;
pub mod pool;
pub mod read;
pub mod schema;
pub mod strings;
pub mod varint;
pub mod write;
