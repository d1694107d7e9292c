//! Queries: SQL on the tables of a store, and flame graphs of selected samples.
//!
//! ```text
//! folders (pruned by day and service) ─► files (from the listing) ─► table (pruned by statistics) ─► session: SQL
//!     └─► weights by stack ─► paths ─► tree ─► prune ─► flame graphs of flightline-consumer
//! ```

mod deduplication;
pub mod dialect;
pub mod files;
pub mod function_share;
pub mod hdps;
mod partition_pruning;
pub mod paths;
pub mod prune;
pub mod session;
pub mod table;
pub mod tree;
pub mod weights;

pub use session::{OpenOptions, Session};
