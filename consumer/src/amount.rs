//! Weights in words.

use crate::spans::trace::duration;

/// An amount for people: time and memory in the unit that suits them, anything else as it is.
pub fn amount(value: u64, unit: &str) -> String {
    match unit {
        "ns" => duration(i64::try_from(value).unwrap_or(i64::MAX)),
        "bytes" => bytes(value),
        _ => format!("{value} {unit}"),
    }
}

/// Memory for people: 950 B, 12.3 KiB, 4.6 GiB.
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
