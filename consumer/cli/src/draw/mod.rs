//! Commands that draw, fold, compare and convert profiles.

pub mod convert;
pub mod diff;
pub mod flame;
pub mod fold;
