//! Rows as Fluentd events.

use flightline_consumer::live::Item;
use rmpv::Value as Packed;
use serde_json::Value;

use super::Shape;

/// Rows as Fluentd events, in parts of limited size.
#[derive(Debug, Default)]
pub struct Rows {
    shape: Shape,
    most: usize,
    bytes: Vec<u8>,
    rows: u64,
    beyond: u64,
}

/// Encoded events and their number.
pub type Part = (Vec<u8>, u64);

impl Rows {
    /// Creates rows with these labels, in parts of `most` bytes. A part exceeds this by less than one
    /// row.
    pub fn new(labels: Vec<(String, String)>, most: usize) -> Self {
        Self { shape: Shape::new(labels), most, ..Self::default() }
    }

    /// Adds a sample. Returns a part when it is full, so at most one part is buffered.
    pub fn take(&mut self, item: &Item) -> Option<Part> {
        let row = self.shape.row(item)?;
        let Item::Sample(sample) = item else { return None };
        let (time, beyond) = time(sample.time.epoch_nanos);
        let entry = Packed::Array(vec![time, packed(Value::Object(row))]);
        let before = self.bytes.len();
        // Writing to memory fails only if the format cannot represent the row; remove what was written of
        // it.
        if rmpv::encode::write_value(&mut self.bytes, &entry).is_err() {
            self.bytes.truncate(before);
            return None;
        }
        self.rows += 1;
        self.beyond += u64::from(beyond);
        if self.bytes.len() < self.most { None } else { self.cut() }
    }

    /// Returns the buffered events, if there are any.
    pub fn cut(&mut self) -> Option<Part> {
        let rows = std::mem::take(&mut self.rows);
        (rows > 0).then(|| (std::mem::take(&mut self.bytes), rows))
    }

    /// Number of rows whose time Fluentd's format cannot represent. They have the nearest time that it
    /// can; `start_time_millis` is always exact.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }
}

/// Returns Fluentd's EventTime (seconds and ns, big-endian), and whether it differs from `nanos`.
/// EventTime ends in 2106, and receivers replace times in the first second of 1970 by their own.
fn time(nanos: i64) -> (Packed, bool) {
    const SECOND: i64 = 1_000_000_000;
    let (first, last) = (SECOND, (i64::from(u32::MAX) + 1) * SECOND - 1);
    let held = nanos.clamp(first, last);
    let seconds = u32::try_from(held / SECOND).unwrap_or(u32::MAX);
    let rest = u32::try_from(held % SECOND).unwrap_or(0);
    (Packed::Ext(0, [seconds.to_be_bytes(), rest.to_be_bytes()].concat()), held != nanos)
}

fn packed(value: Value) -> Packed {
    match value {
        Value::Null => Packed::Nil,
        Value::Bool(value) => Packed::Boolean(value),
        Value::Number(number) => number.as_i64().map_or(Packed::Nil, Packed::from),
        Value::String(text) => Packed::from(text),
        Value::Array(values) => Packed::Array(values.into_iter().map(packed).collect()),
        Value::Object(members) => {
            Packed::Map(members.into_iter().map(|(key, value)| (Packed::from(key), packed(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{items, labels, samples};
    use super::*;

    #[test]
    fn fluentd_events_equal_hdps_rows_and_are_split_at_size_limit() {
        let items = items("ap-native-cpu.jfr");
        let host = labels(&[("host", "h1")]);
        let (mut rows, most) = (Rows::new(host.clone(), 10_000), 10_000);
        let mut parts = Vec::new();
        for item in &items {
            parts.extend(rows.take(item));
            assert!(rows.bytes.len() < most);
        }
        assert!(parts.len() > 10);
        parts.extend(rows.cut());
        assert!(rows.cut().is_none() && rows.beyond() == 0);
        let mut read = Vec::new();
        for (bytes, count) in parts {
            let mut left = &bytes[..];
            for _ in 0..count {
                read.push(rmpv::decode::read_value(&mut left).unwrap());
            }
            assert!(left.is_empty());
        }
        let mut shape = Shape::new(host);
        let want: Vec<_> = items.iter().filter_map(|item| shape.row(item)).collect();
        assert_eq!(read.len(), want.len());
        for ((entry, sample), want) in read.iter().zip(samples(&items)).zip(want) {
            let [Packed::Ext(0, time), members] = entry.as_array().unwrap().as_slice() else {
                panic!("{entry}")
            };
            let [seconds, rest] =
                [0, 4].map(|at| i64::from(u32::from_be_bytes(time[at..at + 4].try_into().unwrap())));
            assert_eq!(seconds * 1_000_000_000 + rest, sample.time.epoch_nanos);
            assert_eq!(*members, packed(Value::Object(want)));
        }
    }

    #[test]
    fn fluentd_times_beyond_range_are_clamped_and_counted() {
        let items = items("ap-native-cpu.jfr");
        let mut sample = samples(&items)[0].clone();
        let mut rows = Rows::new(Vec::new(), usize::MAX);
        let second = 1_000_000_000;
        let last = (1 << 32) * second - 1;
        let times =
            [i64::MIN, -1, 0, second - 1, second, 1_700_000_000 * second + 7, last, last + 1, i64::MAX];
        for time in times {
            sample.time.epoch_nanos = time;
            assert!(rows.take(&Item::Sample(Box::new(sample.clone()))).is_none());
        }
        assert_eq!(rows.beyond(), 6);
        let (bytes, count) = rows.cut().unwrap();
        assert_eq!(count, times.len() as u64);
        let mut left = &bytes[..];
        for time in times {
            let entry = rmpv::decode::read_value(&mut left).unwrap();
            let [Packed::Ext(0, told), members] = entry.as_array().unwrap().as_slice() else {
                panic!("{entry}")
            };
            let [seconds, rest] =
                [0, 4].map(|at| i64::from(u32::from_be_bytes(told[at..at + 4].try_into().unwrap())));
            assert_eq!(seconds * second + rest, time.clamp(second, last));
            let millis =
                members.as_map().unwrap().iter().find(|(key, _)| key.as_str() == Some("start_time_millis"));
            assert_eq!(millis.unwrap().1.as_i64(), Some(time.div_euclid(1_000_000)));
        }
    }
}
