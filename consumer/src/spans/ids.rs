//! Ids of traces and spans, in the notation of W3C Trace Context and OpenTelemetry.

use std::fmt;
use std::str::FromStr;

/// Id of a trace; 0 if it is not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub u128);

impl TraceId {
    /// Joins the two halves in which JFR stores it, because JFR's integers have at most 64 bits.
    pub fn from_halves(high: i64, low: i64) -> Self {
        Self(u128::from(high.cast_unsigned()) << 64 | u128::from(low.cast_unsigned()))
    }

    /// Returns true if the id is not 0.
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for TraceId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Datadog's 64-bit ids have 16 digits.
        let digits = [16, 32].contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        let id = if digits { u128::from_str_radix(text, 16).ok() } else { None };
        id.filter(|&id| id != 0)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no trace id: give its 32 hexadecimal digits"))
    }
}

/// Key of a span: its id, or its number in the recording if it has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanKey {
    /// The span's own id.
    Id(u64),
    /// An interval of a thread without an id: `profiler.Span`, contextual events of a JDK.
    Interval(u64),
    /// No span: labels of a thread without a span, numbered.
    Labels(u64),
}

impl SpanKey {
    /// Returns the key of a span id; `None` for 0.
    pub fn from_id(id: u64) -> Option<Self> {
        (id != 0).then_some(Self::Id(id))
    }

    /// Returns the span's id; 0 if it has none.
    pub fn id(self) -> u64 {
        match self {
            Self::Id(id) => id,
            Self::Interval(_) | Self::Labels(_) => 0,
        }
    }
}

impl fmt::Display for SpanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id:016x}"),
            Self::Interval(number) => write!(f, "#{number}"),
            Self::Labels(number) => write!(f, "labels {number:016x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_and_span_ids_round_trip() {
        let id = TraceId::from_halves(-2, 1);
        assert_eq!(id.to_string(), "fffffffffffffffe0000000000000001");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("00000000000000ff".parse(), Ok(TraceId(255)));
        for wrong in ["", "12", "+0000000000000ff", "00000000000000000000000000000000", "zz"] {
            assert!(wrong.parse::<TraceId>().is_err(), "{wrong}");
        }
        assert_eq!(SpanKey::Id(255).to_string(), "00000000000000ff");
    }
}
