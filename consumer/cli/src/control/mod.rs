//! Commands for recordings in progress and for data that recorders left.

pub mod ctl;
pub mod dump;
pub mod recover;
pub mod repositories;
pub mod status;
pub mod tail;
