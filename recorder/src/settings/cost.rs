//! Settings of the cost of recording.

use super::hold;
use crate::error::Error;

/// Smallest and largest budget, as a share.
const BUDGETS: [f64; 2] = [0.0001, 0.5];
/// Smallest and largest ring of a process, in bytes.
pub const RING_BYTES: [u64; 2] = [64 << 10, 256 << 20];

/// The limits of CPU time and memory for recording.
#[derive(Clone, Debug, Default)]
pub struct CostSettings {
    /// Limit of the cost of recording, as a share of the programs' CPU time, or of one processor if they use
    /// less. Intervals are stretched while the cost is higher.
    pub budget: Option<f64>,
    /// Bytes of each process's ring, a power of two; `None` derives it from rate and processors.
    pub ring_bytes: Option<u64>,
    /// Count the cost of the signal handler (for measurements of Flightline itself).
    pub measure: bool,
}

impl CostSettings {
    /// Returns an error for values out of range.
    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(share) = self.budget {
            let range = BUDGETS[0]..=BUDGETS[1];
            hold(range.contains(&share), "budget", || {
                format!("{} % is not between 0.01 % and 50 %", share * 100.0)
            })?;
        }
        if let Some(bytes) = self.ring_bytes {
            let [least, most] = RING_BYTES;
            hold(bytes.is_power_of_two() && (least..=most).contains(&bytes), "ring-size", || {
                format!("{bytes} is not a power of two between {least} and {most} bytes")
            })?;
        }
        Ok(())
    }
}
