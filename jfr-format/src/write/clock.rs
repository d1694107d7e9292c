//! The relation between ticks and wall-clock time.

use crate::ids::Ticks;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The relation of ticks to wall-clock time, given by the start of the **first** chunk of a file.
///
/// All chunks of a file must lie on one line; the JDK applies the first chunk's line to all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockLine {
    /// Ticks at the start.
    pub start_ticks: Ticks,
    /// Wall-clock time at the start, in ns since 1970.
    pub start_epoch_ns: i64,
    /// Unit of all ticks; positive.
    pub ticks_per_second: i64,
}

impl ClockLine {
    /// Returns a clock whose ticks are nanoseconds since `start`.
    pub fn nanoseconds_since(start: SystemTime) -> ClockLine {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        let start_epoch_ns = match start.duration_since(UNIX_EPOCH) {
            Ok(since) => nanos(since),
            Err(before) => -nanos(before.duration()),
        };
        ClockLine { start_ticks: Ticks(0), start_epoch_ns, ticks_per_second: 1_000_000_000 }
    }

    /// Returns a duration in ticks; saturates.
    pub fn ticks(&self, duration: Duration) -> Ticks {
        let nanos = duration.as_nanos();
        let per_second = u128::try_from(self.ticks_per_second.max(1)).unwrap_or(1);
        // The product exceeds 128 bits only beyond any duration that ticks can express.
        let ticks = nanos.checked_mul(per_second).map_or(u128::MAX, |product| product / 1_000_000_000);
        Ticks(i64::try_from(ticks).unwrap_or(i64::MAX))
    }

    /// Returns the nanoseconds from `from` to `to`; saturates.
    pub fn nanos(&self, from: Ticks, to: Ticks) -> i64 {
        let ticks = i128::from(to.0) - i128::from(from.0);
        let nanos = ticks * 1_000_000_000 / i128::from(self.ticks_per_second.max(1));
        i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns the wall-clock time at `at`, in ns since 1970; saturates.
    pub fn epoch_nanos(&self, at: Ticks) -> i64 {
        self.start_epoch_ns.saturating_add(self.nanos(self.start_ticks, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_converted_to_nanoseconds() {
        let line =
            ClockLine { start_ticks: Ticks(500), start_epoch_ns: 1_000_000, ticks_per_second: 1_000_000 };
        assert_eq!(line.epoch_nanos(Ticks(500)), 1_000_000);
        assert_eq!(line.epoch_nanos(Ticks(502)), 1_002_000);
        assert_eq!(line.epoch_nanos(Ticks(499)), 999_000);
        assert_eq!(line.nanos(Ticks(i64::MIN), Ticks(i64::MAX)), i64::MAX);
        assert_eq!(line.nanos(Ticks(i64::MAX), Ticks(i64::MIN)), i64::MIN);
    }

    #[test]
    fn durations_are_converted_to_ticks() {
        let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 0, ticks_per_second: 1_000_000 };
        assert_eq!(line.ticks(Duration::from_millis(3)), Ticks(3000));
        assert_eq!(line.ticks(Duration::MAX), Ticks(i64::MAX));
        let start = UNIX_EPOCH + Duration::from_secs(5);
        let line = ClockLine::nanoseconds_since(start);
        assert_eq!(line.epoch_nanos(line.ticks(Duration::from_secs(1))), 6_000_000_000);
        assert_eq!(
            ClockLine::nanoseconds_since(UNIX_EPOCH - Duration::from_nanos(7)).epoch_nanos(Ticks(0)),
            -7
        );
    }
}
