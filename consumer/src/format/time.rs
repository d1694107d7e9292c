//! Formats times and durations. Times are in UTC, so the output does not depend on the local time zone.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Seconds in 400 years of the Gregorian calendar.
const ERA: i128 = 146_097 * 86_400;

/// Returns the year, and the date and time of day in UTC, of a number of seconds after 1970. Java has later
/// years than `jiff`, so the date is that of an equal year from 1970 to 2369.
pub(crate) fn utc(seconds: i128) -> (i64, DateTime) {
    let (eras, second) = (seconds.div_euclid(ERA), seconds.rem_euclid(ERA));
    let timestamp = Timestamp::from_second(second as i64).unwrap_or_default();
    let time = Offset::UTC.to_datetime(timestamp);
    (i64::from(time.year()) + 400 * eras as i64, time)
}

fn timestamp(epoch_nanos: i64) -> Timestamp {
    // All 64-bit numbers of nanoseconds are valid.
    Timestamp::from_nanosecond(epoch_nanos.into()).unwrap_or_default()
}

/// `2026-11-20T21:44:22.020153111Z`
pub fn iso(epoch_nanos: i64) -> String {
    let fraction = match epoch_nanos.rem_euclid(1_000_000_000) {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => format!(".{:06}", n / 1_000),
        n => format!(".{n:09}"),
    };
    format!("{}{fraction}Z", timestamp(epoch_nanos).strftime("%FT%T"))
}

/// `21:44:22.020 (2026-11-20)`
pub fn time_and_date(epoch_nanos: i64) -> String {
    timestamp(epoch_nanos).strftime("%T%.3f (%F)").to_string()
}

/// `45.1 ms`: at least three digits, in a suitable unit.
pub fn span(nanos: i64) -> String {
    let size = nanos.unsigned_abs() as f64;
    let (scale, unit) = match size {
        s if s < 1e3 => return format!("{nanos} ns"),
        s if s < 1e6 => (1e3, "us"),
        s if s < 1e9 => (1e6, "ms"),
        s if s < 6e10 => (1e9, "s"),
        _ => return long_span(nanos),
    };
    let value = nanos as f64 / scale;
    let digits = if value.abs() < 10.0 { 2 } else { 1 };
    format!("{value:.digits$} {unit}")
}

fn long_span(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let seconds = nanos.unsigned_abs() / 1_000_000_000;
    let (d, h, m, s) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (d, h) {
        (0, 0) => format!("{sign}{m} min {s} s"),
        (0, _) => format!("{sign}{h} h {m} min"),
        _ => format!("{sign}{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_formatted_as_iso_8601() {
        let check = |nanos: i64, want: &str| assert_eq!(iso(nanos), want);
        check(0, "1970-01-01T00:00:00Z");
        check(-1, "1969-12-31T23:59:59.999999999Z");
        check(951_782_400_000_000_000, "2000-02-29T00:00:00Z");
        check(1_709_164_799_500_000_000, "2024-02-28T23:59:59.500Z");
        check(4_107_542_400_000_000_000, "2100-03-01T00:00:00Z");
        check(1_795_211_062_020_153_111, "2026-11-20T21:44:22.020153111Z");
        assert_eq!(time_and_date(1_795_211_062_020_153_111), "21:44:22.020 (2026-11-20)");
        // The limits of a time in a header.
        assert!(iso(i64::MAX).starts_with("2262-04-11") && iso(i64::MIN).starts_with("1677-09-21"));
    }

    #[test]
    fn durations_are_formatted_with_units() {
        assert_eq!(span(0), "0 ns");
        assert_eq!(span(45_100_000), "45.1 ms");
        assert_eq!(span(1_234), "1.23 us");
        assert_eq!(span(-5_000_000_000), "-5.00 s");
        assert_eq!(span(3_600_000_000_000), "1 h 0 min");
        assert!(span(i64::MIN).starts_with("-106751 d"));
    }
}
