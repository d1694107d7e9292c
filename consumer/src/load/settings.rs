//! What the recording says about its own sampling.

use jfr_format::event::EventRef;

/// The sampling period, if this `jdk.ActiveSetting` tells it: `interval` in ns as async-profiler and Flightline write
/// it, or `period` of `jdk.ExecutionSample` as the JDK does (`20 ms`).
pub(super) fn period_nanos(event: &EventRef<'_>) -> Option<u64> {
    let name = event.field("name").ok()??.text().ok()??;
    let value = event.field("value").ok()??.text().ok()??;
    match &*name {
        "interval" => value.parse().ok().filter(|&n| n > 0),
        "period" => {
            let id = event.field("id").ok()??.as_i64()?;
            let of = event.chunk().types.by_id(u64::try_from(id).ok()?)?;
            if &*of.name == "jdk.ExecutionSample" { span(&value) } else { None }
        }
        _ => None,
    }
}

fn span(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_once(' ')?;
    let number: u64 = number.parse().ok()?;
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(scale).filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans() {
        assert_eq!(span("20 ms"), Some(20_000_000));
        assert_eq!(span("1 s"), Some(1_000_000_000));
        for not in ["everyChunk", "0 ms", "20", "-1 ms", "99999999999999999999 s", "18446744073709551615 s"] {
            assert_eq!(span(not), None, "{not}");
        }
    }
}
