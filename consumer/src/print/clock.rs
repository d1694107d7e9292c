//! Formats times and durations. Times are in UTC, so the output does not depend on the local time zone.

/// The parts of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    second_of_day: i64,
    nanos: i64,
}

const DAY: i64 = 86_400;
/// Days in 400 years of the Gregorian calendar.
const ERA: i64 = 146_097;
/// Days from the first of March of year 0 to 1970.
const EPOCH: i64 = 719_468;

fn civil(epoch_nanos: i64) -> Civil {
    let seconds = epoch_nanos.div_euclid(1_000_000_000);
    let (year, month, day) = date(seconds.div_euclid(DAY));
    Civil {
        year,
        month: month as i64,
        day: day as i64,
        second_of_day: seconds.rem_euclid(DAY),
        nanos: epoch_nanos.rem_euclid(1_000_000_000),
    }
}

/// Returns year, month and day for a number of days after 1970-01-01.
pub(super) fn date(days: i64) -> (i64, u64, u64) {
    let days = days + EPOCH;
    let era = days.div_euclid(ERA);
    let day_of_era = days.rem_euclid(ERA);
    // Years start in March, so that the leap day is the last of a year.
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month as u64, day as u64)
}

/// `2026-11-20T21:44:22.020153111Z`
pub fn iso(epoch_nanos: i64) -> String {
    let Civil { year, month, day, second_of_day: s, nanos } = civil(epoch_nanos);
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    let fraction = match nanos {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => format!(".{:06}", n / 1_000),
        n => format!(".{n:09}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}{fraction}Z")
}

/// `21:44:22.020 (2026-11-20)`
pub fn time_and_date(epoch_nanos: i64) -> String {
    let Civil { year, month, day, second_of_day: s, nanos } = civil(epoch_nanos);
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    format!("{h:02}:{m:02}:{s:02}.{:03} ({year:04}-{month:02}-{day:02})", nanos / 1_000_000)
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

/// `PT0.0451S`, the form of the JDK's JSON.
pub fn iso_span(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let all = nanos.unsigned_abs();
    let seconds = all / 1_000_000_000;
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::from("PT");
    if h > 0 {
        text.push_str(&format!("{sign}{h}H"));
    }
    if m > 0 {
        text.push_str(&format!("{sign}{m}M"));
    }
    let fraction = all % 1_000_000_000;
    if s > 0 || fraction > 0 || text.len() == 2 {
        let fraction = format!("{fraction:09}");
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        text.push_str(&format!("{sign}{s}{dot}{fraction}S"));
    }
    text
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
    fn durations_are_formatted_with_units_and_as_iso_8601() {
        assert_eq!(span(0), "0 ns");
        assert_eq!(span(45_100_000), "45.1 ms");
        assert_eq!(span(1_234), "1.23 us");
        assert_eq!(span(-5_000_000_000), "-5.00 s");
        assert_eq!(span(3_600_000_000_000), "1 h 0 min");
        assert_eq!(iso_span(0), "PT0S");
        assert_eq!(iso_span(45_100_000), "PT0.0451S");
        assert_eq!(iso_span(3_661_000_000_000), "PT1H1M1S");
        assert!(span(i64::MIN).starts_with("-106751 d"));
    }
}
