//! Wall-clock and monotonic time.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    let [year, month, day, hours, minutes, seconds, ms] = parts(utc);
    format!("{year:04}-{month:02}-{day:02}_{hours:02}_{minutes:02}_{seconds:02}_{ms:03}")
}

/// Formats UTC ms as `yyyy-MM-ddTHH:mm:ss.SSSZ` (RFC 3339).
pub fn iso(utc: i64) -> String {
    let [year, month, day, hours, minutes, seconds, ms] = parts(utc);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

fn parts(utc: i64) -> [i64; 7] {
    let (days, of_day) = (utc.div_euclid(86_400_000), utc.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (seconds, ms) = (of_day / 1000, of_day % 1000);
    [year, month, day, seconds / 3600, seconds / 60 % 60, seconds % 60, ms]
}

/// Formats an interval of UTC ms for people: `2026-11-23 14:03:10–14:03:20 UTC`. Intervals below 2 s include
/// the ms.
pub fn spoken(from: i64, to: i64) -> String {
    let finely = to.saturating_sub(from) < 2000;
    let parts = |utc: i64| {
        let (year, month, day) = civil(utc.div_euclid(86_400_000));
        let of_day = utc.rem_euclid(86_400_000);
        let (seconds, ms) = (of_day / 1000, of_day % 1000);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let ms = if finely { format!(".{ms:03}") } else { String::new() };
        (format!("{year:04}-{month:02}-{day:02}"), format!("{hours:02}:{minutes:02}:{seconds:02}{ms}"))
    };
    let ((day, begin), (last, end)) = (parts(from), parts(to));
    let last = if last == day { String::new() } else { format!(" {last} ") };
    let dash = if last.is_empty() { "–" } else { " –" };
    format!("{day} {begin}{dash}{last}{end} UTC")
}

/// Converts days since 1970 to year, month and day. 400 Gregorian years have 146,097 days; years start in
/// March.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_march = days + 719_468;
    let (era, of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
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
    }

    #[test]
    fn interval_text_omits_repeated_date() {
        let at = 1_795_420_800_000;
        assert_eq!(spoken(at, at + 10_999), "2026-11-23 08:00:00–08:00:10 UTC");
        assert_eq!(spoken(at + 1, at + 2), "2026-11-23 08:00:00.001–08:00:00.002 UTC");
        assert_eq!(spoken(at, at + 86_400_000), "2026-11-23 08:00:00 – 2026-11-24 08:00:00 UTC");
        assert!(spoken(i64::MIN, i64::MAX).ends_with(" UTC"));
    }

    #[test]
    fn utc_follows_monotonic_clock() {
        let start = Moment { utc: 1000, running: Duration::from_millis(50) };
        assert_eq!(start.to_utc(Duration::from_millis(2050)), 3000);
        assert_eq!(start.to_utc(Duration::ZERO), 1000);
    }
}
