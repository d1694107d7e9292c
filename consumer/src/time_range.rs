//! Syntax of times on the command line: seconds from the start or before the end, a share of the
//! duration, a clock time, or a date.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::Offset;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nanoseconds after the start of the recording.
    FromStart(i64),
    /// Nanoseconds before its end.
    FromEnd(i64),
    /// Nanoseconds since 1970.
    Absolute(i64),
    /// Nanoseconds after midnight UTC, on the last day of the recording that contains this time.
    Clock(i64),
    /// Thousandths of a percent of the recording's duration after its start.
    Part(u32),
}

/// The text is not a [`Bound`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATime(String);

impl fmt::Display for NotATime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a time: give 12.5, 90s, 2m or 1h (from the start), -30 (before the end), 25% (of the length), 21:44:22 (a \
             clock time of the recording's day, UTC) or 2026-11-20T21:44:22.5Z",
            self.0
        )
    }
}

impl std::error::Error for NotATime {}

impl FromStr for Bound {
    type Err = NotATime;

    /// Parses:
    ///
    /// * `12.5`, `90s`, `250ms`, `2m`, `1h`: from the start; with a minus sign: before the end
    /// * `25%`: of the duration
    /// * `21:44` or `21:44:22.5`: a clock time
    /// * `2026-11-20T21:44:22.5Z`, also with `+01:00` for `Z`: a date. Without a zone it is in UTC, and
    ///   without a time it is midnight.
    fn from_str(text: &str) -> Result<Self, NotATime> {
        let fail = || NotATime(text.to_owned());
        if text.len() > 64 || !text.is_ascii() {
            return Err(fail());
        }
        if let Some(percent) = text.strip_suffix('%') {
            return part(percent).map(Self::Part).ok_or_else(fail);
        }
        let is_day = || text.bytes().filter(|&b| b == b'-').count() == 2;
        if text.contains('T') || is_day() {
            return date(text).map(Self::Absolute).ok_or_else(fail);
        }
        if text.contains(':') {
            return clock(text).map(Self::Clock).ok_or_else(fail);
        }
        let (end, span) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let nanos = span_nanos(span).ok_or_else(fail)?;
        Ok(if end { Self::FromEnd(nanos) } else { Self::FromStart(nanos) })
    }
}

impl Bound {
    /// Returns the time in nanoseconds since 1970, given the recording's time range.
    pub fn at(self, start: i64, end: i64) -> i64 {
        match self {
            Self::FromStart(nanos) => start.saturating_add(nanos),
            Self::FromEnd(nanos) => end.saturating_sub(nanos),
            Self::Absolute(nanos) => nanos,
            Self::Clock(nanos) => clock_at(nanos, start, end),
            // Includes everything: events may be later than the header states, as in files of agents that
            // write it first.
            Self::Part(100_000) => i64::MAX,
            Self::Part(part) => {
                let length = i128::from(end) - i128::from(start);
                let after = length.max(0) * i128::from(part) / 100_000;
                i64::try_from(i128::from(start) + after).unwrap_or(i64::MAX)
            }
        }
    }

    /// Returns true if the end of the recording is needed.
    pub fn needs_end(self) -> bool {
        matches!(self, Self::FromEnd(_) | Self::Part(_) | Self::Clock(_))
    }
}

/// Returns a clock time on the days of the recording: the last one within the recording or, if there is
/// none, the nearest one.
fn clock_at(nanos: i64, start: i64, end: i64) -> i64 {
    let last_day = end.div_euclid(DAY).saturating_mul(DAY).saturating_add(nanos);
    let outside = |moment: i64| start.saturating_sub(moment).max(moment.saturating_sub(end)).max(0);
    let day_before = last_day.saturating_sub(DAY);
    let has_two_days = start.div_euclid(DAY) < end.div_euclid(DAY);
    if has_two_days && outside(day_before) < outside(last_day) { day_before } else { last_day }
}

/// Returns both bounds in nanoseconds since 1970, given the recording's time range. A clock time as upper
/// bound is the first one after the lower bound.
pub fn moments(from: Option<Bound>, to: Option<Bound>, start: i64, end: i64) -> (Option<i64>, Option<i64>) {
    let from = from.map(|bound| bound.at(start, end));
    let to = to.map(|bound| match (bound, from) {
        (Bound::Clock(nanos), Some(from)) => {
            let same_day = from.div_euclid(DAY).saturating_mul(DAY).saturating_add(nanos);
            if same_day < from { same_day.saturating_add(DAY) } else { same_day }
        }
        _ => bound.at(start, end),
    });
    (from, to)
}

/// Parses a percentage up to 100 into thousandths of a percent.
fn part(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() {
        return None;
    }
    let part = digits(whole)?.checked_mul(1000)?.checked_add(scaled(fraction, 1000)?)?;
    u32::try_from(part).ok().filter(|part| *part <= 100_000)
}

fn span_nanos(text: &str) -> Option<i64> {
    let units = [("ms", SECOND / 1000), ("s", SECOND), ("m", 60 * SECOND), ("h", 3600 * SECOND)];
    let (number, unit) = units
        .iter()
        .find_map(|&(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))
        .unwrap_or((text, SECOND));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = digits(whole)?.checked_mul(unit)?;
    whole.checked_add(scaled(fraction, unit)?)
}

/// Parses a number that has only digits; an empty text is 0.
fn digits(text: &str) -> Option<i64> {
    match text {
        "" => Some(0),
        _ if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// `0.fraction` of `unit`, rounded down.
fn scaled(fraction: &str, unit: i64) -> Option<i64> {
    let kept = &fraction[..fraction.len().min(12)];
    digits(fraction.get(12..).unwrap_or(""))?;
    let value = i128::from(digits(kept)?) * i128::from(unit) / 10i128.pow(kept.len() as u32);
    i64::try_from(value).ok()
}

fn date(text: &str) -> Option<i64> {
    let (day, rest) = text.split_once('T').unwrap_or((text, "00:00"));
    let [year, month, day] = three(day, '-', [4, 2, 2])?;
    let (time, zone) = match rest.find(['Z', '+', '-']) {
        Some(at) => (&rest[..at], &rest[at..]),
        None => (rest, "Z"),
    };
    let offset = match zone.split_at(1) {
        ("Z", "") => 0,
        (sign, clock) => {
            let (h, m) = clock.split_once(':')?;
            let [h, m] = [two(h, 23)?, two(m, 59)?];
            (h * 3600 + m * 60) * if sign == "-" { -1 } else { 1 }
        }
    };
    let time = clock(time)?;
    let day = Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?).ok()?;
    let midnight = Offset::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok()?.as_second();
    i64::try_from(i128::from(midnight - offset) * i128::from(SECOND) + i128::from(time)).ok()
}

/// Parses `21:44` or `21:44:22.5` into nanoseconds after midnight.
fn clock(text: &str) -> Option<i64> {
    let (time, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = time.split(':');
    let [hours, minutes] = [two(parts.next()?, 23)?, two(parts.next()?, 59)?];
    let seconds = parts.next().map_or(Some(0), |seconds| two(seconds, 60))?;
    if parts.next().is_some() {
        return None;
    }
    Some((hours * 3600 + minutes * 60 + seconds) * SECOND + scaled(fraction, SECOND)?)
}

fn three(text: &str, between: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut out = [0; 3];
    let mut parts = text.split(between);
    for (out, width) in out.iter_mut().zip(widths) {
        *out = parts.next().filter(|p| p.len() == width).and_then(digits)?;
    }
    parts.next().is_none().then_some(out)
}

fn two(text: &str, most: i64) -> Option<i64> {
    digits(text).filter(|&n| text.len() == 2 && n <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_bounds_are_parsed() {
        let check = |text: &str, want| assert_eq!(text.parse(), Ok(want), "{text}");
        check("12.5", Bound::FromStart(12_500_000_000));
        check("0", Bound::FromStart(0));
        check("250ms", Bound::FromStart(250_000_000));
        check("1.5h", Bound::FromStart(5_400_000_000_000));
        check("-2m", Bound::FromEnd(120_000_000_000));
        check("-.25", Bound::FromEnd(250_000_000));
        // date -u -d 2026-11-20T21:44:22Z +%s
        check("2026-11-20T21:44:22Z", Bound::Absolute(1_795_211_062_000_000_000));
        check("2026-11-20T21:44:22.020153111", Bound::Absolute(1_795_211_062_020_153_111));
        check("2026-11-20T22:44:22+01:00", Bound::Absolute(1_795_211_062_000_000_000));
        check("2000-02-29T00:00Z", Bound::Absolute(951_782_400_000_000_000));
        check("25%", Bound::Part(25_000));
        check("99.95%", Bound::Part(99_950));
        assert_eq!(Bound::Part(25_000).at(1_000, 5_000), 2_000);
        assert_eq!(Bound::Part(100_000).at(i64::MIN, i64::MAX), i64::MAX);
        check("21:44", Bound::Clock((21 * 3600 + 44 * 60) * SECOND));
        check("00:00:01.5", Bound::Clock(1_500_000_000));
        check("2026-11-20", Bound::Absolute(1_795_132_800_000_000_000));
        check("1969-12-31T23:59:59.5Z", Bound::Absolute(-500_000_000));
    }

    #[test]
    fn clock_times_use_recording_days() {
        let moment = |text: &str| text.parse::<Bound>().expect("a time").at(0, 0);
        let clock = |text: &str, start: &str, end: &str| {
            let bound = text.parse::<Bound>().expect("a time");
            assert!(matches!(bound, Bound::Clock(_)), "{text}");
            bound.at(moment(start), moment(end))
        };
        let (start, end) = ("2026-11-20T21:44:00Z", "2026-11-20T21:54:00Z");
        assert_eq!(clock("21:45:10", start, end), moment("2026-11-20T21:45:10Z"));
        assert_eq!(clock("09:00", start, end), moment("2026-11-20T09:00Z"));
        // A recording over midnight has two days.
        let (start, end) = ("2026-11-20T23:50:00Z", "2026-11-21T00:10:00Z");
        assert_eq!(clock("23:55", start, end), moment("2026-11-20T23:55Z"));
        assert_eq!(clock("00:05", start, end), moment("2026-11-21T00:05Z"));
        assert_eq!(clock("00:30", start, end), moment("2026-11-21T00:30Z"));
        assert_eq!(clock("23:40", start, end), moment("2026-11-20T23:40Z"));
        // A single day, although midnight is near.
        let (start, end) = ("2026-11-21T00:01:00Z", "2026-11-21T00:10:00Z");
        assert_eq!(clock("23:59", start, end), moment("2026-11-21T23:59Z"));
        // The last of several days.
        assert_eq!(clock("12:00", "2026-11-20T11:00Z", "2026-11-25T08:00Z"), moment("2026-11-24T12:00Z"));
        assert_eq!(Bound::Clock(DAY).at(i64::MIN, i64::MAX), i64::MAX);
        assert_eq!(Bound::Clock(0).at(i64::MIN, i64::MIN), i64::MIN);
    }

    #[test]
    fn end_clock_time_follows_start() {
        let moment = |text: &str| text.parse::<Bound>().expect("a time").at(0, 0);
        let (start, end) = (moment("2026-11-20T10:02Z"), moment("2026-11-22T10:02Z"));
        let check = |from: &str, to: &str, want: (&str, &str)| {
            let range = moments(from.parse().ok(), to.parse().ok(), start, end);
            assert_eq!(range, (Some(moment(want.0)), Some(moment(want.1))), "{from} to {to}");
        };
        check("10:00", "10:05", ("2026-11-22T10:00Z", "2026-11-22T10:05Z"));
        check("23:50", "00:10", ("2026-11-21T23:50Z", "2026-11-22T00:10Z"));
        check("0", "10:05", ("2026-11-20T10:02Z", "2026-11-20T10:05Z"));
        check("12:00", "10%", ("2026-11-21T12:00Z", "2026-11-20T14:50Z"));
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "-",
            ".",
            "1x",
            "--1",
            "1e3",
            "inf",
            "99999999999",
            "2026-11",
            "2026-11-31",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T21:44:22+1",
            "2026-1-20T21:44:22Z",
            "Tä",
            "%",
            "101%",
            "-5%",
            "24:00",
            "1:00",
            "21:44:61",
            "21:44:22:10",
            "-21:44",
            "21:44Z",
        ] {
            assert!(text.parse::<Bound>().is_err(), "{text}");
        }
    }
}
