//! Reading and writing JDK Flight Recorder files (format 2.x). Knows nothing of profiling or processes.

pub mod constants;
pub mod error;
pub mod header;
pub mod ids;
pub mod metadata;
pub mod schema;
pub mod strings;
pub mod varint;
pub mod write;
