//! Numbers with their units, by the annotations of their field.

use jfr_format::event::Value;
use jfr_format::read::{Chunk, Field};

use super::clock;

/// A number the annotations of its field give a meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Quantity {
    /// ns since 1970
    Time(i64),
    /// ns
    Span(i64),
    /// The smallest number stands for "none".
    Missing,
    /// The largest number stands for "without end".
    Forever,
}

/// A point in time or a span, if the field is one.
pub(super) fn time(chunk: &Chunk, field: &Field, value: &Value<'_>) -> Option<Quantity> {
    let unit = |name: &str| field.annotation(name).map(|a| a.value().unwrap_or("TICKS"));
    let raw = value.as_i64()?;
    if let Some(unit) = unit("jdk.jfr.Timestamp") {
        return Some(match (raw, unit) {
            (i64::MIN, _) => Quantity::Missing,
            (_, "MILLISECONDS_SINCE_EPOCH") => Quantity::Time(raw.saturating_mul(1_000_000)),
            (_, "SECONDS_SINCE_EPOCH") => Quantity::Time(raw.saturating_mul(1_000_000_000)),
            (_, "NANOSECONDS_SINCE_EPOCH") => Quantity::Time(raw),
            _ => Quantity::Time(chunk.epoch_nanos(raw)),
        });
    }
    let unit = unit("jdk.jfr.Timespan")?;
    Some(match (raw, unit) {
        (i64::MIN, _) => Quantity::Missing,
        (i64::MAX, _) => Quantity::Forever,
        (_, "NANOSECONDS") => Quantity::Span(raw),
        (_, "MICROSECONDS") => Quantity::Span(raw.saturating_mul(1_000)),
        (_, "MILLISECONDS") => Quantity::Span(raw.saturating_mul(1_000_000)),
        (_, "SECONDS") => Quantity::Span(raw.saturating_mul(1_000_000_000)),
        _ => Quantity::Span(chunk.span_nanos(raw)),
    })
}

/// The number with its unit, for people.
pub(super) fn text(chunk: &Chunk, field: &Field, value: &Value<'_>) -> Option<String> {
    match time(chunk, field, value) {
        Some(Quantity::Time(nanos)) => return Some(clock::time_and_date(nanos)),
        Some(Quantity::Span(nanos)) => return Some(clock::span(nanos)),
        Some(Quantity::Missing) => return Some("N/A".into()),
        Some(Quantity::Forever) => return Some("Forever".into()),
        None => {}
    }
    let has = |name: &str| field.annotation(name).is_some();
    if has("jdk.jfr.Percentage") {
        return match *value {
            Value::Float(v) => Some(format!("{:.2}%", v * 100.0)),
            Value::Double(v) => Some(format!("{:.2}%", v * 100.0)),
            _ => None,
        };
    }
    let raw = value.as_i64()?;
    if has("jdk.jfr.MemoryAddress") {
        return Some(format!("0x{raw:X}"));
    }
    let per_second = if has("jdk.jfr.Frequency") { "/s" } else { "" };
    if let Some(amount) = field.annotation("jdk.jfr.DataAmount") {
        let unit = if amount.value() == Some("BITS") { "bits" } else { "bytes" };
        return Some(format!("{}{per_second}", data(raw, unit)));
    }
    if has("jdk.jfr.Frequency") {
        return Some(format!("{raw} Hz"));
    }
    unsigned(field, value).map(|v| v.to_string())
}

/// The number as the type's bits say it without a sign, if the field is declared so.
pub(super) fn unsigned(field: &Field, value: &Value<'_>) -> Option<u64> {
    field.annotation("jdk.jfr.Unsigned")?;
    let raw = value.as_i64()?;
    Some(match value {
        Value::Byte(v) => u64::from(*v as u8),
        Value::Short(v) => u64::from(*v as u16),
        Value::Int(v) => u64::from(*v as u32),
        _ => raw as u64,
    })
}

fn data(amount: i64, unit: &str) -> String {
    const STEPS: [&str; 5] = ["k", "M", "G", "T", "P"];
    let mut value = amount as f64;
    if value.abs() < 1024.0 {
        return format!("{amount} {unit}");
    }
    let mut step = "";
    for next in STEPS {
        if value.abs() < 1024.0 {
            break;
        }
        value /= 1024.0;
        step = next;
    }
    let letter = if unit == "bits" { "bit" } else { "B" };
    format!("{value:.1} {step}{letter}")
}

#[cfg(test)]
mod tests {
    use super::data;

    #[test]
    fn amounts_of_data() {
        assert_eq!(data(0, "bytes"), "0 bytes");
        assert_eq!(data(1023, "bits"), "1023 bits");
        assert_eq!(data(268_435_456, "bytes"), "256.0 MB");
        assert_eq!(data(-2048, "bytes"), "-2.0 kB");
        assert_eq!(data(i64::MAX, "bytes"), "8192.0 PB");
    }
}
