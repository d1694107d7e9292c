//! Numbers with units by the annotations of their field, in the format of the JDK's tool.

use jfr_format::event::Value;
use jfr_format::read::Field;

use super::moment::{Clock, Seconds, Unit};
use super::{java, number};

const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

/// The meaning of a field's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Plain,
    /// A time.
    Stamp(Unit),
    Span(Unit),
    Percentage,
    Data {
        bits: bool,
        per_second: bool,
    },
    Address,
    Hertz,
}

/// How to write the numbers of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    meaning: Meaning,
    unsigned: bool,
}

impl Units {
    pub fn from_field(field: &Field) -> Self {
        let has = |name: &str| field.annotation(name).is_some();
        let unit = |name: &str| field.annotation(name).map(|a| Unit::from_annotation(a.value()));
        let meaning = if let Some(unit) = unit("jdk.jfr.Timestamp") {
            Meaning::Stamp(unit)
        } else if let Some(unit) = unit("jdk.jfr.Timespan") {
            Meaning::Span(unit)
        } else if has("jdk.jfr.Percentage") {
            Meaning::Percentage
        } else if let Some(amount) = field.annotation("jdk.jfr.DataAmount") {
            Meaning::Data { bits: amount.value() == Some("BITS"), per_second: has("jdk.jfr.Frequency") }
        } else if has("jdk.jfr.MemoryAddress") {
            Meaning::Address
        } else if has("jdk.jfr.Frequency") {
            Meaning::Hertz
        } else {
            Meaning::Plain
        };
        Self { meaning, unsigned: has("jdk.jfr.Unsigned") }
    }

    /// Appends a number, boolean or character; nothing for other values.
    pub fn write(self, clock: &Clock, exact: bool, value: Value<'_>, out: &mut Vec<u8>) {
        match value {
            Value::Boolean(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
            Value::Char(unit) => {
                let c = char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Value::Float(v) => self.real(exact, f64::from(v), |out| number::float(v, out), out),
            Value::Double(v) => self.real(exact, v, |out| number::double(v, out), out),
            Value::Byte(v) => self.integer(clock, exact, v.into(), (v as u8).into(), false, out),
            Value::Short(v) => {
                self.integer(clock, exact, v.into(), (v as u16).into(), false, out);
            }
            Value::Int(v) => {
                self.integer(clock, exact, v.into(), (v as u32).into(), v == i32::MIN, out);
            }
            Value::Long(v) => self.integer(clock, exact, v, v as u64, v == i64::MIN, out),
            _ => {}
        }
    }

    fn integer(self, clock: &Clock, exact: bool, raw: i64, unsigned: u64, least: bool, out: &mut Vec<u8>) {
        match self.meaning {
            Meaning::Stamp(_) | Meaning::Span(_) if raw == i64::MIN => none(out),
            Meaning::Span(_) if raw == i64::MAX => out.extend_from_slice(b"Forever"),
            Meaning::Stamp(unit) => moment(clock.time(raw, unit), clock.zone(), exact, out),
            Meaning::Span(unit) => {
                let Seconds { whole, nanos } = clock.span(raw, unit);
                span(i128::from(whole) * SECOND + i128::from(nanos), exact, out);
            }
            _ if least && !self.unsigned => none(out),
            meaning => self.amount(meaning, exact, if self.unsigned { unsigned as i64 } else { raw }, out),
        }
    }

    fn amount(self, meaning: Meaning, exact: bool, raw: i64, out: &mut Vec<u8>) {
        match meaning {
            Meaning::Percentage => percentage(raw as f64, exact, out),
            Meaning::Data { bits, per_second } => data(raw, bits, per_second, exact, out),
            Meaning::Address => address(raw, out),
            Meaning::Hertz => {
                decimal(raw.into(), out);
                out.extend_from_slice(b" Hz");
            }
            Meaning::Plain if self.unsigned => decimal((raw as u64).into(), out),
            Meaning::Plain | Meaning::Stamp(_) | Meaning::Span(_) => decimal(raw.into(), out),
        }
    }

    fn real(self, exact: bool, value: f64, finite: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        let plain = |out: &mut Vec<u8>| match value {
            f64::INFINITY => out.extend_from_slice(b"Infinity"),
            _ => finite(out),
        };
        match self.meaning {
            _ if value.is_nan() || value == f64::NEG_INFINITY => none(out),
            Meaning::Percentage => percentage(value, exact, out),
            Meaning::Data { bits, per_second } => data(value as i64, bits, per_second, exact, out),
            Meaning::Address => address(value as i64, out),
            Meaning::Hertz => {
                plain(out);
                out.extend_from_slice(b" Hz");
            }
            Meaning::Plain | Meaning::Stamp(_) | Meaning::Span(_) => plain(out),
        }
    }

    /// Returns true if a duration of this field is zero.
    pub fn is_no_time(self, value: Value<'_>) -> bool {
        matches!((self.meaning, value), (Meaning::Span(_), Value::Long(0) | Value::Int(0)))
    }
}

fn none(out: &mut Vec<u8>) {
    out.extend_from_slice(b"N/A");
}

/// Appends an integer.
pub(super) fn decimal(value: i128, out: &mut Vec<u8>) {
    match u64::try_from(value) {
        Ok(value) => padded(value, 1, out),
        Err(_) => out.extend_from_slice(value.to_string().as_bytes()),
    }
}

/// Appends a number with at least `width` digits.
fn padded(mut value: u64, width: usize, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while value > 0 {
        at -= 1;
        digits[at] += (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits[at.min(digits.len() - width)..]);
}

fn percentage(value: f64, exact: bool, out: &mut Vec<u8>) {
    java::fixed(value * 100.0, if exact { 9 } else { 2 }, out);
    out.push(b'%');
}

fn address(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("0x{value:08X}").as_bytes());
}

fn data(amount: i64, bits: bool, per_second: bool, exact: bool, out: &mut Vec<u8>) {
    let (word, letter) = if bits { ("bit", "bit") } else { ("byte", "B") };
    let rate = if per_second { "/s" } else { "" };
    if exact {
        let plural = if amount > 1 { "s" } else { "" };
        out.extend_from_slice(format!("{amount} {word}{plural}{rate}").as_bytes());
        return;
    }
    if amount == i64::MIN {
        return none(out);
    }
    let mut value = amount as f64;
    if value.abs() < 1024.0 {
        decimal(amount.into(), out);
        let plural = if amount.unsigned_abs() == 1 || per_second { "" } else { "s" };
        let text = if bits && per_second { " bps".into() } else { format!(" {word}{plural}{rate}") };
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut step = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        if value.abs() < 1024.0 {
            break;
        }
        value /= 1024.0;
        step = next;
    }
    java::fixed(value, 1, out);
    let text = if bits && per_second { format!(" {step}bps") } else { format!(" {step}{letter}{rate}") };
    out.extend_from_slice(text.as_bytes());
}

/// `21:44:22.020 (2026-11-20)`, in the recording's local time.
fn moment(time: Seconds, zone: i64, exact: bool, out: &mut Vec<u8>) {
    let seconds = i128::from(time.whole) + i128::from(zone);
    let day = seconds.div_euclid(86_400) as i64;
    let second = seconds.rem_euclid(86_400) as u64;
    for (at, part) in [second / 3600, second / 60 % 60, second % 60].into_iter().enumerate() {
        if at > 0 {
            out.push(b':');
        }
        padded(part, 2, out);
    }
    out.push(b'.');
    let nanos = u64::from(time.nanos);
    if exact {
        padded(nanos, 9, out)
    } else {
        padded(nanos / 1_000_000, 3, out)
    }
    let (year, month, day) = super::clock::date(day);
    out.extend_from_slice(b" (");
    match year {
        10_000.. => out.push(b'+'),
        ..0 => out.push(b'-'),
        _ => {}
    }
    padded(year.unsigned_abs(), 4, out);
    out.push(b'-');
    padded(month, 2, out);
    out.push(b'-');
    padded(day, 2, out);
    out.push(b')');
}

/// `45.1 ms` with three digits, or two units from one minute.
fn span(nanos: i128, exact: bool, out: &mut Vec<u8>) {
    if nanos < 0 {
        out.push(b'-');
    }
    let size = nanos.abs();
    if exact {
        decimal(size / SECOND, out);
        out.push(b'.');
        padded((size % SECOND) as u64, 9, out);
        out.extend_from_slice(b" s");
        return;
    }
    let rounded = rounded(size);
    let two = |out: &mut Vec<u8>, first: i128, name: &str, second: i128, last: &str| {
        decimal(first, out);
        out.extend_from_slice(name.as_bytes());
        decimal(second, out);
        out.extend_from_slice(last.as_bytes());
    };
    match rounded {
        0 => out.extend_from_slice(b"0 s"),
        1..SECOND => {
            // Six decimals below a microsecond, three significant digits above.
            let places = if rounded < 1000 { 6 } else { 9 - digits(rounded) };
            let unit = 10_i128.pow(6 - places as u32);
            point(rounded / unit, places, out);
            out.extend_from_slice(b" ms");
        }
        SECOND..MINUTE => {
            let places = 3 - digits(rounded / SECOND);
            point(rounded / 10_i128.pow(9 - places as u32), places, out);
            out.extend_from_slice(b" s");
        }
        MINUTE..HOUR => two(out, rounded / MINUTE, " m ", rounded / SECOND % 60, " s"),
        HOUR..DAY => two(out, rounded / HOUR, " h ", rounded / MINUTE % 60, " m"),
        _ => two(out, rounded / DAY, " d ", rounded / HOUR % 24, " h"),
    }
}

/// Rounds half up to the precision that is shown.
fn rounded(nanos: i128) -> i128 {
    let unit = match nanos {
        ..1000 => 1,
        1000..MINUTE => 10_i128.pow(digits(nanos) as u32 - 3),
        MINUTE..HOUR => SECOND,
        HOUR..DAY => MINUTE,
        _ => HOUR,
    };
    (nanos + unit / 2) / unit * unit
}

fn digits(value: i128) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Writes a number with `places` decimals, given in units of the last decimal.
fn point(units: i128, places: usize, out: &mut Vec<u8>) {
    let scale = 10_i128.pow(places as u32);
    decimal(units / scale, out);
    if places > 0 {
        out.push(b'.');
        padded((units % scale) as u64, places, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    const ROUGH: bool = false;
    const EXACT: bool = true;

    // Expected: what JDK 25 prints for fields with these values.
    #[test]
    fn durations_are_formatted_like_the_jdk() {
        let check = |nanos: i128, want: &str| assert_eq!(shown(|out| span(nanos, ROUGH, out)), want);
        check(0, "0 s");
        check(1, "0.000001 ms");
        check(999, "0.000999 ms");
        check(1_000, "0.00100 ms");
        check(9_994, "0.00999 ms");
        check(9_995, "0.0100 ms");
        check(12_355, "0.0124 ms");
        check(99_950, "0.100 ms");
        check(999_499, "0.999 ms");
        check(999_500, "1.00 ms");
        check(12_350_000, "12.4 ms");
        check(99_950_000, "100 ms");
        check(123_456_789, "123 ms");
        check(999_500_000, "1.00 s");
        check(1_995_000_000, "2.00 s");
        check(9_995_000_000, "10.0 s");
        check(59_949_999_999, "59.9 s");
        check(59_950_000_000, "1 m 0 s");
        check(61_499_999_999, "1 m 1 s");
        check(61_500_000_000, "1 m 2 s");
        check(3_599_500_000_000, "1 h 0 m");
        check(3_630_000_000_000, "1 h 1 m");
        check(86_399_000_000_000, "1 d 0 h");
        check(123_456_789_012_345_678, "1428 d 22 h");
        check(-1_234_567, "-1.23 ms");
        check(-61_500_000_000, "-1 m 2 s");
        check(i128::from(i64::MAX) - 1, "106752 d 0 h");
        let check = |nanos: i128, want: &str| assert_eq!(shown(|out| span(nanos, EXACT, out)), want);
        check(0, "0.000000000 s");
        check(-1_234_567, "-0.001234567 s");
        check(61_500_000_000, "61.500000000 s");
    }

    #[test]
    fn data_amounts_are_formatted_like_the_jdk() {
        let check = |amount, rough: &str, exact: &str| {
            let both = [(ROUGH, rough), (EXACT, exact)];
            for (exact, want) in both {
                assert_eq!(shown(|out| data(amount, false, false, exact, out)), want, "{amount}");
            }
        };
        check(0, "0 bytes", "0 byte");
        check(1, "1 byte", "1 byte");
        check(2, "2 bytes", "2 bytes");
        check(-10, "-10 bytes", "-10 byte");
        check(1023, "1023 bytes", "1023 bytes");
        check(1588, "1.6 kB", "1588 bytes");
        check(1_048_575, "1024.0 kB", "1048575 bytes");
        check(-2048, "-2.0 kB", "-2048 byte");
        check(i64::MAX, "8.0 EB", "9223372036854775807 bytes");
        let check = |amount, bits, exact, want: &str| {
            assert_eq!(shown(|out| data(amount, bits, true, exact, out)), want, "{amount}");
        };
        check(2, false, ROUGH, "2 byte/s");
        check(2, true, ROUGH, "2 bps");
        check(1536, true, ROUGH, "1.5 kbps");
        check(1536, false, ROUGH, "1.5 kB/s");
        check(2, true, EXACT, "2 bits/s");
    }

    #[test]
    fn timestamps_are_formatted_like_the_jdk() {
        let check = |time: Seconds, zone, exact, want: &str| {
            assert_eq!(shown(|out| moment(time, zone, exact, out)), want);
        };
        check(Seconds::from_nanos(0), 0, ROUGH, "00:00:00.000 (1970-01-01)");
        check(Seconds::from_nanos(-1_000_000), 0, ROUGH, "23:59:59.999 (1969-12-31)");
        check(Seconds::from_millis(i64::MAX), 0, ROUGH, "07:12:55.807 (+292278994-08-17)");
        let time = Seconds::from_nanos(1_795_211_062_020_153_111);
        check(time, 0, EXACT, "21:44:22.020153111 (2026-11-20)");
        check(time, 19_800, ROUGH, "03:14:22.020 (2026-11-21)");
    }
}
