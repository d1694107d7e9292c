//! Commands that send recordings to other systems, and that receive and forward streams.

pub mod collect;
#[cfg(feature = "export")]
pub mod export;
pub mod relay;
