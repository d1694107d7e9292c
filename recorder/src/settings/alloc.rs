//! Settings of allocation samples.

use std::time::Duration;

use super::hold;
use crate::error::Error;

/// Shortest interval between summaries of live memory.
const MIN_LIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The allocations to sample.
#[derive(Clone, Debug)]
pub struct AllocSettings {
    /// One sample per this number of bytes on average. `None`: allocations are not sampled.
    pub interval_bytes: Option<u64>,
    /// Frees of sampled allocations too. Allocations that are never freed are recorded at the end.
    pub live: bool,
    /// With [`AllocSettings::live`]: interval between summaries of live memory by stack.
    pub live_interval: Duration,
}

impl Default for AllocSettings {
    fn default() -> AllocSettings {
        AllocSettings { interval_bytes: None, live: false, live_interval: Duration::from_secs(60) }
    }
}

impl AllocSettings {
    /// Returns an error for values out of range.
    pub(super) fn check(&self) -> Result<(), Error> {
        hold(self.live_interval >= MIN_LIVE_INTERVAL, "live-interval", || {
            format!("{:?} is shorter than the minimum of one second", self.live_interval)
        })
    }
}
