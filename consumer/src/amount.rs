//! Formats weights for people.
//!
//! Weights are integers. Fractional weights are counted in tenths, hundredths and so on, and the unit
//! names the divisor: 250 `samples/1000` are 0.25 samples.

use std::io::{self, Write};

/// Formats a duration for people: 950 ns, 12.3 µs, 4.56 ms, 7.89 s.
pub fn duration(nanos: i64) -> String {
    let size = nanos.unsigned_abs() as f64;
    let (value, unit) = match nanos.unsigned_abs() {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (size / 1e3, "µs"),
        1_000_000..1_000_000_000 => (size / 1e6, "ms"),
        _ => (size / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{}{value:.digits$} {unit}", if nanos < 0 { "-" } else { "" })
}

/// Splits a unit into the quantity that is counted and the number of decimals of its weights.
pub fn decimals(unit: &str) -> (&str, u32) {
    let zeros = |part: &str| {
        let zeros = part.strip_prefix('1')?;
        let all = !zeros.is_empty() && zeros.len() <= 9 && zeros.bytes().all(|byte| byte == b'0');
        all.then_some(zeros.len() as u32)
    };
    let split = unit.rsplit_once('/').and_then(|(base, part)| Some((base, zeros(part)?)));
    split.unwrap_or((unit, 0))
}

/// Returns the unit for weights with this many decimals, at most 9.
pub fn with_decimals(base: &str, decimals: u32) -> String {
    if decimals == 0 { base.to_owned() } else { format!("{base}/{}", 10u64.pow(decimals.min(9))) }
}

/// Writes a weight as a decimal number without trailing zeros.
///
/// # Errors
/// `out` cannot be written.
pub fn write_decimal(value: u64, decimals: u32, out: &mut impl Write) -> io::Result<()> {
    let part = 10u64.pow(decimals.min(9));
    match value % part {
        0 => write!(out, "{}", value / part),
        fraction => {
            let digits = format!("{fraction:0width$}", width = decimals as usize);
            write!(out, "{}.{}", value / part, digits.trim_end_matches('0'))
        }
    }
}

/// Formats an amount for people: time and memory in a suitable unit, other amounts with their own unit.
pub fn amount(value: u64, unit: &str) -> String {
    match unit {
        "ns" => duration(i64::try_from(value).unwrap_or(i64::MAX)),
        "bytes" => bytes(value),
        _ => {
            let (base, decimals) = decimals(unit);
            let mut text = Vec::new();
            // Writing to memory does not fail.
            let _ = write_decimal(value, decimals, &mut text);
            format!("{} {base}", String::from_utf8_lossy(&text))
        }
    }
}

/// Formats a number of bytes for people: 950 B, 12.3 KiB, 4.6 GiB.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_suffix_gives_decimals() {
        for (unit, base, of) in [
            ("samples", "samples", 0),
            ("samples/1000", "samples", 3),
            ("a/b", "a/b", 0),
            ("a/1", "a/1", 0),
            ("a/20", "a/20", 0),
        ] {
            assert_eq!(decimals(unit), (base, of));
        }
        assert_eq!((with_decimals("x", 0), with_decimals("x", 2)), ("x".into(), "x/100".into()));
        assert_eq!(amount(250, "samples/1000"), "0.25 samples");
        assert_eq!(amount(2000, "samples/1000"), "2 samples");
        assert_eq!(amount(u64::MAX, "x/10"), "1844674407370955161.5 x");
    }
}
