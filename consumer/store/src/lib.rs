//! The store: samples of many recordings with their labels, as Parquet that any engine reads.

#![forbid(unsafe_code)]

#[cfg(feature = "sql")]
pub mod query;
