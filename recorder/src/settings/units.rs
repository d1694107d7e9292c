//! Parses and formats times, sizes and rates.

use std::time::Duration;

/// Parses `10ms`, `500us`, `1.5s`, `100000ns`.
///
/// # Errors
/// A description of the problem.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.trim().parse().map_err(|_| format!("{text:?} is not a time such as 10ms"))?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(format!("{text:?}: give a unit: ns, us, ms, s, m, h or d")),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| format!("{text:?} is out of range"))
}

/// Formats a time exactly, in the syntax of [`duration`]: `1ms`, `1.5s`, `10101010ns`.
pub fn format_duration(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [("s", 1_000_000_000, 3), ("ms", 1_000_000, 1), ("us", 1_000, 0)];
    for (unit, size, digits) in units {
        let thousandth = size / 10_u128.pow(digits);
        if ns >= size && ns.is_multiple_of(thousandth) {
            return format!("{}{unit}", ns as f64 / size as f64);
        }
    }
    format!("{ns}ns")
}

/// Parses `0.5%` as 0.005.
///
/// # Errors
/// A description of the problem.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(str::trim_end).and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|n| n.is_finite())
        .map(|n| n / 100.0)
        .ok_or_else(|| format!("{text:?} is not a share such as 0.5%"))
}

/// Parses `65536`, `64k`, `4M`.
///
/// # Errors
/// A description of the problem.
pub fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.trim_end_matches('b').trim_end_matches('i');
    let (number, shift) = match lower.chars().last() {
        Some('k') => (&lower[..lower.len() - 1], 10),
        Some('m') => (&lower[..lower.len() - 1], 20),
        Some('g') => (&lower[..lower.len() - 1], 30),
        _ => (lower, 0),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is not a size such as 4M"))?;
    number.checked_shl(shift).filter(|n| n >> shift == number).ok_or_else(|| format!("{text:?} is too large"))
}

/// Formats a size for people, rounded: `9999 bytes`, `10 kB`, `1.5 MB`.
pub fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_parsed_and_formatted() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for bad in ["10", "ms", "-1s", "1 parsec", "1e99s", "nans"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        let exact = [(1_000_000, "1ms"), (10_100_000, "10.1ms"), (1_500_000_000, "1.5s"), (50_000, "50us")];
        for (ns, text) in exact.into_iter().chain([(0, "0ns"), (999, "999ns"), (10_101_010, "10101010ns")]) {
            let time = Duration::from_nanos(ns);
            assert_eq!(format_duration(time), text);
            assert_eq!(duration(text), Ok(time));
        }
        assert_eq!(bytes("64k"), Ok(65536));
        assert_eq!(bytes("4MiB"), Ok(4 << 20));
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        for bad in ["", "k", "4x", "99999999999999999g"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
