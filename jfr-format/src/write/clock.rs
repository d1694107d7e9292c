//! The line between ticks and wall-clock time.

use crate::ids::Ticks;

/// How ticks map to wall-clock time: the start of the **first** chunk of a file.
///
/// All chunks of a file must lie on one line; the JDK applies the first chunk's to all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockLine {
    /// Ticks at the start.
    pub start_ticks: Ticks,
    /// Wall-clock time then, in ns since 1970.
    pub start_epoch_ns: i64,
    /// Unit of all ticks; positive.
    pub ticks_per_second: i64,
}

impl ClockLine {
    /// Nanoseconds from `from` to `to`; saturates.
    pub fn nanos(&self, from: Ticks, to: Ticks) -> i64 {
        let ticks = i128::from(to.0) - i128::from(from.0);
        let nanos = ticks * 1_000_000_000 / i128::from(self.ticks_per_second.max(1));
        i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }

    /// Wall-clock time at `at`, in ns since 1970; saturates.
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
}
