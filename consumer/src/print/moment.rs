//! Formats times and durations like Java, fast.

use jfr_format::read::Chunk;

use super::number;

const SECOND: i64 = 1_000_000_000;

/// A time or duration. The fraction is never negative, as in Java.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seconds {
    pub(super) whole: i64,
    /// 0..10⁹
    pub(super) nanos: u32,
}

impl Seconds {
    pub(super) fn from_nanos(nanos: i64) -> Self {
        Self { whole: nanos.div_euclid(SECOND), nanos: nanos.rem_euclid(SECOND) as u32 }
    }

    pub(super) fn from_millis(millis: i64) -> Self {
        Self { whole: millis.div_euclid(1000), nanos: millis.rem_euclid(1000) as u32 * 1_000_000 }
    }

    fn from_micros(micros: i64) -> Self {
        Self { whole: micros.div_euclid(1_000_000), nanos: micros.rem_euclid(1_000_000) as u32 * 1000 }
    }
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Ticks,
    Nanos,
    Micros,
    Millis,
    Seconds,
}

impl Unit {
    /// Returns the unit for the value of a `Timespan` or `Timestamp` annotation.
    pub(super) fn from_annotation(name: Option<&str>) -> Self {
        match name {
            Some("NANOSECONDS" | "NANOSECONDS_SINCE_EPOCH") => Self::Nanos,
            Some("MICROSECONDS") => Self::Micros,
            Some("MILLISECONDS" | "MILLISECONDS_SINCE_EPOCH") => Self::Millis,
            Some("SECONDS" | "SECONDS_SINCE_EPOCH") => Self::Seconds,
            _ => Self::Ticks,
        }
    }
}

/// The clock of a chunk, its time zone, and the last second that was formatted.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    start_ticks: i64,
    start_nanos: i64,
    ticks_per_nano: f64,
    zone: i64,
    zone_text: Vec<u8>,
    second: i64,
    /// `2026-11-20T21:44:22`
    second_text: Vec<u8>,
}

impl Clock {
    pub(super) fn new(chunk: &Chunk) -> Self {
        let header = &chunk.header;
        let zone = chunk.types.region.as_ref().map_or(0, |r| r.gmt_offset_ms.saturating_add(r.dst_ms) / 1000);
        let zone = if (-18 * 3600..=18 * 3600).contains(&zone) { zone } else { 0 };
        Self {
            start_ticks: header.start_ticks.0,
            start_nanos: header.start_nanos,
            ticks_per_nano: header.ticks_per_second.max(1) as f64 / SECOND as f64,
            zone,
            zone_text: zone_text(zone),
            second: i64::MIN,
            second_text: Vec::new(),
        }
    }

    /// Offset of the recording's local time from UTC, in seconds.
    pub(super) fn zone(&self) -> i64 {
        self.zone
    }

    /// Converts ticks to nanoseconds in floating point like the JDK, to get the same rounding.
    fn nanos(&self, ticks: i64) -> i64 {
        (ticks as f64 / self.ticks_per_nano) as i64
    }

    pub(super) fn time(&self, value: i64, unit: Unit) -> Seconds {
        match unit {
            Unit::Ticks => {
                let since = self.nanos(value.wrapping_sub(self.start_ticks));
                Seconds::from_nanos(self.start_nanos.saturating_add(since))
            }
            unit => self.span(value, unit),
        }
    }

    pub(super) fn span(&self, value: i64, unit: Unit) -> Seconds {
        match unit {
            Unit::Ticks => Seconds::from_nanos(self.nanos(value)),
            Unit::Nanos => Seconds::from_nanos(value),
            Unit::Micros => Seconds::from_micros(value),
            Unit::Millis => Seconds::from_millis(value),
            Unit::Seconds => Seconds { whole: value, nanos: 0 },
        }
    }

    /// `2026-11-20T21:44:22.020153111+01:00`; the smallest number is Java's earliest time.
    pub(super) fn write_time(&mut self, value: i64, unit: Unit, out: &mut Vec<u8>) {
        if value == i64::MIN {
            return out.extend_from_slice(b"-999999999-01-01T00:00+18:00");
        }
        let time = self.time(value, unit);
        if self.second != time.whole || self.second_text.is_empty() {
            self.second = time.whole;
            self.second_text.clear();
            write_second(i128::from(time.whole) + i128::from(self.zone), &mut self.second_text);
        }
        let text = match time.nanos {
            // Java omits seconds that are zero.
            0 if self.second_text.ends_with(b":00") => &self.second_text[..self.second_text.len() - 3],
            _ => &self.second_text,
        };
        out.extend_from_slice(text);
        if time.nanos > 0 {
            out.push(b'.');
            let shorter = match time.nanos {
                n if n % 1_000_000 == 0 => 6,
                n if n % 1000 == 0 => 3,
                _ => 0,
            };
            number::nanos(time.nanos, shorter, out);
        }
        out.extend_from_slice(&self.zone_text);
    }

    /// `PT0.0451S`; the smallest and largest numbers represent infinite durations.
    pub(super) fn write_span(&self, value: i64, unit: Unit, out: &mut Vec<u8>) {
        match value {
            i64::MIN => duration(Seconds { whole: i64::MIN, nanos: 0 }, out),
            i64::MAX => duration(Seconds { whole: i64::MAX, nanos: 999_999_999 }, out),
            _ => duration(self.span(value, unit), out),
        }
    }
}

fn zone_text(zone: i64) -> Vec<u8> {
    let mut out = Vec::new();
    if zone == 0 {
        return b"Z".to_vec();
    }
    let size = zone.unsigned_abs();
    out.push(if zone < 0 { b'-' } else { b'+' });
    number::pair(size / 3600, &mut out);
    out.push(b':');
    number::pair(size / 60 % 60, &mut out);
    if !size.is_multiple_of(60) {
        out.push(b':');
        number::pair(size % 60, &mut out);
    }
    out
}

/// Days in 400 years of the Gregorian calendar.
const ERA: i128 = 146_097;
/// Days from the first of March of year 0 to 1970.
const EPOCH: i128 = 719_468;

/// Writes date and time of day to the second.
fn write_second(second: i128, out: &mut Vec<u8>) {
    let days = second.div_euclid(86_400) + EPOCH;
    let (era, day_of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    // Years start in March, so that the leap day is the last of a year.
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let size = year.unsigned_abs() as u64;
    match year {
        ..0 => out.push(b'-'),
        0..=9999 => {}
        _ => out.push(b'+'),
    }
    if size < 10_000 {
        number::pair(size / 100, out);
        number::pair(size, out);
    } else {
        number::unsigned(size, out);
    }
    let second = second.rem_euclid(86_400) as u64;
    let parts = [
        (b'-', month as u64),
        (b'-', day as u64),
        (b'T', second / 3600),
        (b':', second / 60 % 60),
        (b':', second % 60),
    ];
    for (before, part) in parts {
        out.push(before);
        number::pair(part, out);
    }
}

/// Formats a duration like `java.time.Duration`.
fn duration(span: Seconds, out: &mut Vec<u8>) {
    let Seconds { whole, nanos } = span;
    let start = out.len();
    out.extend_from_slice(b"PT");
    // All parts have the same sign.
    let towards_zero = whole + i64::from(whole < 0 && nanos > 0);
    let (hours, minutes, seconds) = (towards_zero / 3600, towards_zero / 60 % 60, towards_zero % 60);
    if hours != 0 {
        number::signed(hours, out);
        out.push(b'H');
    }
    if minutes != 0 {
        number::signed(minutes, out);
        out.push(b'M');
    }
    if seconds == 0 && nanos == 0 && out.len() > start + 2 {
        return;
    }
    if whole < 0 && nanos > 0 && seconds == 0 {
        out.push(b'-');
    }
    number::signed(seconds, out);
    if nanos > 0 {
        out.push(b'.');
        number::nanos(if whole < 0 { SECOND as u32 - nanos } else { nanos }, 0, out);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
    out.push(b'S');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(zone: i64) -> Clock {
        Clock {
            start_ticks: 1000,
            start_nanos: 1_795_211_062_020_153_111,
            ticks_per_nano: 1.0,
            zone,
            zone_text: zone_text(zone),
            second: i64::MIN,
            second_text: Vec::new(),
        }
    }

    // Expected: the output of `OffsetDateTime.ofInstant(…).toString()` in JDK 25.
    #[test]
    fn times_match_java_offset_date_time() {
        let check = |zone: i64, value: i64, unit: Unit, want: &str| {
            let mut out = Vec::new();
            clock(zone).write_time(value, unit, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        };
        check(0, 1000, Unit::Ticks, "2026-11-20T21:44:22.020153111Z");
        check(3600, 999, Unit::Ticks, "2026-11-20T22:44:22.020153110+01:00");
        check(0, 0, Unit::Millis, "1970-01-01T00:00Z");
        check(0, 1, Unit::Millis, "1970-01-01T00:00:00.001Z");
        check(0, -1, Unit::Millis, "1969-12-31T23:59:59.999Z");
        check(0, 61_000, Unit::Millis, "1970-01-01T00:01:01Z");
        check(-12_600, 0, Unit::Nanos, "1969-12-31T20:30-03:30");
        check(0, 12_345_000, Unit::Nanos, "1970-01-01T00:00:00.012345Z");
        check(19_800, 951_782_400, Unit::Seconds, "2000-02-29T05:30+05:30");
        check(0, i64::MAX, Unit::Millis, "+292278994-08-17T07:12:55.807Z");
        check(0, i64::MIN + 1, Unit::Millis, "-292275055-05-16T16:47:04.193Z");
        check(0, i64::MIN, Unit::Millis, "-999999999-01-01T00:00+18:00");
        // Later than any Java date.
        check(0, i64::MAX, Unit::Seconds, "+292277026596-12-04T15:30:07Z");
        check(0, i64::MIN + 1, Unit::Seconds, "-292277022657-01-27T08:29:53Z");
    }

    #[test]
    fn repeated_seconds_are_formatted_correctly() {
        let (mut clock, mut out) = (clock(0), Vec::new());
        for value in [59_999, 60_000, 60_001, 0, 60_000] {
            clock.write_time(value, Unit::Millis, &mut out);
            out.push(b' ');
        }
        let want = "1970-01-01T00:00:59.999Z 1970-01-01T00:01Z 1970-01-01T00:01:00.001Z 1970-01-01T00:00Z \
                    1970-01-01T00:01Z ";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    // Expected: the output of `Duration.toString()` in JDK 25.
    #[test]
    fn durations_match_java_duration() {
        let check = |value: i64, unit: Unit, want: &str| {
            let mut out = Vec::new();
            clock(0).write_span(value, unit, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        };
        check(0, Unit::Nanos, "PT0S");
        check(45_100_000, Unit::Nanos, "PT0.0451S");
        check(8252, Unit::Ticks, "PT0.000008252S");
        check(3_661_000, Unit::Millis, "PT1H1M1S");
        check(60, Unit::Seconds, "PT1M");
        check(3600, Unit::Seconds, "PT1H");
        check(-1, Unit::Nanos, "PT-0.000000001S");
        check(-1_500, Unit::Millis, "PT-1.5S");
        check(-61_500, Unit::Millis, "PT-1M-1.5S");
        check(-3600, Unit::Seconds, "PT-1H");
        check(1_500, Unit::Micros, "PT0.0015S");
        check(i64::MIN, Unit::Ticks, "PT-2562047788015215H-30M-8S");
        check(i64::MAX, Unit::Millis, "PT2562047788015215H30M7.999999999S");
    }
}
