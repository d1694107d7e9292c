//! Commands that print tables and events.

pub mod annotate;
pub mod metadata;
pub mod print;
pub mod report;
pub mod summary;
pub mod symbolize;
pub mod view;
