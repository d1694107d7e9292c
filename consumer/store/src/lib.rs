//! The profile store: samples of many recordings with their labels, in Parquet files that any engine can
//! read.
//!
//! ```text
//! recordings, streams ─► write ─► TABLE/day=…/service=…/*.parquet ─► query ─► rows, flame graphs
//!                                       ▲ maintain: compaction, sums by time, retention
//! ```

#![forbid(unsafe_code)]

pub mod footer;
pub mod layout;
pub mod maintain;
pub mod query;
pub mod schema;
pub mod storage;
pub mod write;
