//! Commands for many processes: the profiling service and the profile store.

#[cfg(feature = "service")]
pub mod agent;
#[cfg(feature = "service")]
pub mod remote;
#[cfg(feature = "service")]
pub mod serve;
pub mod store;
