//! Wall-clock and monotonic time.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// A source of time.
pub trait Clock: Debug + Send + Sync {
    /// UTC in ms since 1970. It jumps if the clock is set.
    fn utc(&self) -> i64;
    /// Monotonic time since an arbitrary start.
    fn running(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug)]
pub struct Machine(Instant);

impl Default for Machine {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Machine {
    fn utc(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn running(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// UTC ms.
    pub utc: i64,
    /// Monotonic time.
    pub running: Duration,
}

impl Moment {
    /// Returns the current time.
    pub fn now(clock: &dyn Clock) -> Self {
        Self { utc: clock.utc(), running: clock.running() }
    }

    /// Converts a later monotonic time to UTC, ignoring changes of the wall clock since this moment. Never
    /// earlier than this moment.
    pub fn to_utc(self, later: Duration) -> i64 {
        self.utc.saturating_add(ms(later.saturating_sub(self.running)))
    }
}

/// Converts a duration to ms.
pub fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Formats UTC ms as `yyyy-MM-dd_HH_mm_ss_SSS`, for file names.
pub fn stamp(utc: i64) -> String {
    timestamp(utc).strftime("%F_%H_%M_%S_%3f").to_string()
}

/// Formats UTC ms as `yyyy-MM-ddTHH:mm:ss.SSSZ` (RFC 3339).
pub fn iso(utc: i64) -> String {
    timestamp(utc).strftime("%FT%T%.3fZ").to_string()
}

/// Formats an interval of UTC ms for people: `2026-11-23 14:03:10–14:03:20 UTC`. Intervals below 2 s include
/// the ms.
pub fn interval(from: i64, to: i64) -> String {
    let time_of_day = if to.saturating_sub(from) < 2000 { "%T%.3f" } else { "%T" };
    let [from, to] = [from, to].map(timestamp);
    let [(first_day, begin), (last_day, end)] =
        [from, to].map(|time| (time.strftime("%F").to_string(), time.strftime(time_of_day).to_string()));
    match first_day == last_day {
        true => format!("{first_day} {begin}–{end} UTC"),
        false => format!("{first_day} {begin} – {last_day} {end} UTC"),
    }
}

/// Times beyond the years -9999 to 9999 become the first or last one.
fn timestamp(utc: i64) -> Timestamp {
    let limit = if utc < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(utc).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_the_calendar() {
        assert_eq!(stamp(0), "1970-01-01_00_00_00_000");
        assert_eq!(stamp(951_782_399_999), "2000-02-28_23_59_59_999");
        assert_eq!(stamp(951_782_400_000), "2000-02-29_00_00_00_000");
        assert_eq!(stamp(1_795_420_800_001), "2026-11-23_08_00_00_001");
        assert_eq!(stamp(-1), "1969-12-31_23_59_59_999");
        assert_eq!(iso(951_782_400_000), "2000-02-29T00:00:00.000Z");
    }

    #[test]
    fn interval_text_omits_repeated_date() {
        let at = 1_795_420_800_000;
        assert_eq!(interval(at, at + 10_999), "2026-11-23 08:00:00–08:00:10 UTC");
        assert_eq!(interval(at + 1, at + 2), "2026-11-23 08:00:00.001–08:00:00.002 UTC");
        assert_eq!(interval(at, at + 86_400_000), "2026-11-23 08:00:00 – 2026-11-24 08:00:00 UTC");
        assert!(interval(i64::MIN, i64::MAX).ends_with(" UTC"));
    }

    #[test]
    fn utc_follows_monotonic_clock() {
        let start = Moment { utc: 1000, running: Duration::from_millis(50) };
        assert_eq!(start.to_utc(Duration::from_millis(2050)), 3000);
        assert_eq!(start.to_utc(Duration::ZERO), 1000);
    }
}
