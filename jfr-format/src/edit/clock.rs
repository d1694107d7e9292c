//! Converts ticks of one clock to ticks of another clock for the same time.
//!
//! JDK 25 applies the clock of the first chunk to all chunks of a file. If recordings with different clocks
//! are joined, their ticks are therefore converted to the clock of the first one.

use crate::header::ChunkHeader;
use crate::ids::Ticks;

const NANOS: i128 = 1_000_000_000;
/// Maximum time in nanoseconds: 146 years, which can be multiplied by any frequency.
const LONGEST: i128 = 1 << 62;

/// The position of a clock at some time, and its frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    ticks: i64,
    nanos: i64,
    frequency: i64,
}

impl Line {
    pub(super) fn new(header: &ChunkHeader) -> Self {
        Self { ticks: header.start_ticks.0, nanos: header.start_nanos, frequency: header.frequency() }
    }

    /// Nanoseconds since 1970, rounded as by readers: towards the line's start.
    fn time(&self, ticks: i64) -> i128 {
        i128::from(self.nanos) + self.span(i128::from(ticks) - i128::from(self.ticks))
    }

    fn span(&self, ticks: i128) -> i128 {
        ticks * NANOS / i128::from(self.frequency)
    }

    /// The inverse of [`Self::span`]: ticks that all readers convert to `nanos`, including those that use
    /// floating point. So it selects the middle of that nanosecond if possible; the nearest tick if ticks are
    /// longer than a nanosecond.
    fn ticks_in(&self, nanos: i128) -> i128 {
        let (nanos, frequency) = (nanos.clamp(-LONGEST, LONGEST), i128::from(self.frequency));
        match frequency / NANOS {
            0 => self.nearest(nanos),
            1 => nanos.signum() * ((nanos.abs() * frequency + NANOS - 1) / NANOS),
            _ => nanos.signum() * (((2 * nanos.abs() + 1) * frequency + NANOS) / (2 * NANOS)),
        }
    }

    fn nearest(&self, nanos: i128) -> i128 {
        let nanos = nanos.clamp(-LONGEST, LONGEST);
        nanos.signum() * ((2 * nanos.abs() * i128::from(self.frequency) + NANOS) / (2 * NANOS))
    }
}

/// A conversion from one line to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    from: Line,
    to: Line,
}

impl Clock {
    /// Returns `None` if the lines are equal.
    pub(super) fn new(from: Line, to: Line) -> Option<Self> {
        let at = i128::from(from.ticks) - i128::from(to.ticks);
        let same = from.frequency == to.frequency && to.time(from.ticks) == i128::from(from.nanos);
        let exact = at * NANOS % i128::from(to.frequency) == 0;
        (!same || !exact).then_some(Self { from, to })
    }

    /// Converts a point in time.
    pub(super) fn stamp(&self, ticks: i64) -> i64 {
        let since = self.from.time(ticks) - i128::from(self.to.nanos);
        narrow(ticks, i128::from(self.to.ticks) + self.to.ticks_in(since))
    }

    /// Converts a duration. Clocks of the same frequency leave it unchanged.
    pub(super) fn span(&self, ticks: i64) -> i64 {
        if self.from.frequency == self.to.frequency {
            return ticks;
        }
        narrow(ticks, self.to.ticks_in(self.from.span(i128::from(ticks))))
    }

    /// Converts a chunk's header from one clock to the other. Most readers use the header alone, so it is as
    /// close to the line as possible. If ticks are longer than a nanosecond, it lies on the line: then all
    /// times are whole ticks of the line for all readers.
    pub(super) fn header(&self, header: &ChunkHeader) -> ChunkHeader {
        let since = self.from.time(header.start_ticks.0) - i128::from(self.to.nanos);
        let ticks = i128::from(self.to.ticks) + self.to.nearest(since);
        let start_ticks = Ticks(narrow(header.start_ticks.0, ticks));
        let on_line = (i128::from(self.to.frequency) < NANOS).then(|| self.to.time(start_ticks.0));
        let start_nanos = on_line.map_or(header.start_nanos, |nanos| narrow(header.start_nanos, nanos));
        ChunkHeader { start_ticks, start_nanos, ticks_per_second: self.to.frequency, ..*header }
    }
}

/// The ends of the range mean that there is no value, or no end.
fn narrow(old: i64, new: i128) -> i64 {
    if matches!(old, i64::MIN | i64::MAX) { old } else { i64::try_from(new).unwrap_or(old) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ticks: i64, nanos: i64, frequency: i64) -> Line {
        Line { ticks, nanos, frequency }
    }

    #[test]
    fn converted_ticks_match_manual_calculation() {
        // 3 GHz from 900 ticks at 5 µs, to 1 GHz from 70 ticks at 2 µs.
        let clock = Clock::new(line(900, 5_000, 3_000_000_000), line(70, 2_000, 1_000_000_000)).unwrap();
        assert_eq!(clock.stamp(900), 3_070);
        assert_eq!(clock.stamp(930), 3_080);
        assert_eq!(clock.stamp(932), 3_080);
        assert_eq!(clock.stamp(933), 3_081);
        // 300 ns before the line.
        assert_eq!(clock.stamp(0), 2_770);
        assert_eq!((clock.span(3), clock.span(0), clock.span(2)), (1, 0, 0));
        // Back: the middle of a nanosecond, 1.5 ticks rounded up.
        let clock = Clock::new(line(70, 2_000, 1_000_000_000), line(900, 5_000, 3_000_000_000)).unwrap();
        assert_eq!(clock.stamp(3_071), 905);
        // To a clock with a tick of 100 ns: the nearest one.
        let clock = Clock::new(line(0, 1_000, 1_000_000_000), line(0, 0, 10_000_000)).unwrap();
        assert_eq!((clock.stamp(49), clock.stamp(50), clock.span(151)), (10, 11, 2));
        // Readers that use the header of each chunk read the same times as those that use the first.
        let mut bytes = [0; crate::header::LEN];
        bytes[..8].copy_from_slice(b"FLR\0\0\x02\0\x01");
        let mut header = ChunkHeader::decode(&bytes).unwrap();
        (header.start_nanos, header.start_ticks, header.ticks_per_second) = (1_049, Ticks(49), 1_000_000_000);
        let header = clock.header(&header);
        assert_eq!(
            (header.start_ticks.0, header.start_nanos, header.ticks_per_second),
            (10, 1_000, 10_000_000)
        );
        for none in [i64::MIN, i64::MAX] {
            assert_eq!((clock.stamp(none), clock.span(none)), (none, none));
        }
    }

    #[test]
    fn extreme_values_do_not_panic() {
        for (from, to) in [(i64::MAX, 1), (1, i64::MAX), (i64::MAX, i64::MAX)] {
            for (ticks, nanos) in [(i64::MIN, i64::MAX), (i64::MAX, 0)] {
                let clock = Clock::new(line(ticks, nanos, from), line(!ticks / 2, 0, to)).unwrap();
                for value in [i64::MIN, -1, 0, 1, i64::MAX - 1] {
                    clock.stamp(value);
                    clock.span(value);
                }
            }
        }
    }

    #[test]
    fn equal_clock_lines_need_no_conversion() {
        let a = line(1_000, 50_000, 2_000_000_000);
        assert!(Clock::new(a, a).is_none());
        assert!(Clock::new(line(3_000, 51_000, 2_000_000_000), a).is_none());
        assert!(Clock::new(line(3_000, 51_001, 2_000_000_000), a).is_some());
        assert!(Clock::new(line(3_001, 51_000, 2_000_000_000), a).is_some());
        assert!(Clock::new(line(1_000, 50_000, 2_000_000_001), a).is_some());
    }

    /// The JDK's conversion, in floating point.
    #[test]
    fn conversion_preserves_nanoseconds() {
        let jdk = |line: Line, ticks: i64| {
            line.nanos + ((ticks - line.ticks) as f64 / (line.frequency as f64 / 1e9)) as i64
        };
        let from = line(4_990_381_555_689, 1_795_217_449_009_529_000, 2_596_119_086);
        for frequency in [1_000_000_000, 1_500_000_000, 2_596_123_124, 3_000_000_001] {
            let to = line(4_989_051_847_180, 1_795_217_448_497_339_000, frequency);
            let clock = Clock::new(from, to).unwrap();
            for i in 0..100_000 {
                let ticks = from.ticks + i * 10_007 + i % 13;
                assert_eq!(jdk(to, clock.stamp(ticks)), jdk(from, ticks), "{ticks} at {frequency}");
            }
        }
    }
}
