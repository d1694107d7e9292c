//! Samples as rows, in the shape of Treasure Data's Hive Distributed Profiling System: as lines of JSON, or as events of Fluentd.

use flightline_consumer::live::{Frame, Item, Sample};
use rmpv::Value as Packed;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

/// Members of a row that are no labels.
const MEMBERS: [&str; 6] =
    ["stack_trace_id", "event_type", "start_time_millis", "thread", "state", "stack_trace"];
/// Frames of a row; a deeper stack ends as one that was not walked to its root does.
const MOST_FRAMES: usize = 2048;

/// What a row is: `stack_trace_id`, `event_type`, `start_time_millis`, `thread`, `state`, `stack_trace` (the frame that was executing first), and labels as
/// further members. A label that is called like one of those is `label_` and its name.
///
/// The id is a UUID of what the row says (version 8: a hash), so the same sample exported again has the same.
pub fn row(sample: &Sample, labels: &[(String, String)]) -> Map<String, Value> {
    let thread = sample.thread.as_ref();
    let stack = sample.stack.as_ref();
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    let cut = stack.is_some_and(|stack| stack.truncated) || frames.len() > MOST_FRAMES;
    let marker = json!({"class_name": "", "method_name": "[truncated]", "line_number": 0, "is_java_frame": false, "type": "marker"});
    let frames: Vec<Value> =
        frames.iter().take(MOST_FRAMES).map(frame).chain(cut.then_some(marker)).collect();
    let mut row = Map::new();
    let all = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let own = sample.span.iter().flat_map(|span| span.labels.iter().map(|(key, value)| (&**key, &**value)));
    for (key, value) in all.chain(own) {
        let key = if MEMBERS.contains(&key) { format!("label_{key}") } else { key.to_owned() };
        row.insert(key, value.into());
    }
    row.insert("event_type".to_owned(), (*sample.event).into());
    row.insert("start_time_millis".to_owned(), sample.time.epoch_nanos.div_euclid(1_000_000).into());
    row.insert("thread".to_owned(), thread.map_or(Value::Null, |thread| thread.name().into()));
    row.insert("state".to_owned(), sample.state.as_ref().map_or(Value::Null, |state| (**state).into()));
    row.insert("stack_trace".to_owned(), frames.into());
    let tid = thread.map_or(0, |thread| thread.os_id);
    row.insert("stack_trace_id".to_owned(), id(&row, sample.time.epoch_nanos, tid).into());
    row
}

fn frame(frame: &Frame) -> Value {
    let class = if frame.kind.in_library() { &frame.module } else { &frame.class };
    json!({
        "class_name": **class,
        "method_name": *frame.function,
        "line_number": frame.line,
        "is_java_frame": frame.kind.is_java(),
        "type": *frame.type_name,
    })
}

fn id(row: &Map<String, Value>, nanos: i64, tid: i64) -> String {
    let mut hash = Sha512::new();
    hash.update(nanos.to_le_bytes());
    hash.update(tid.to_le_bytes());
    hash.update(Value::Object(row.clone()).to_string());
    let mut bytes: [u8; 16] = std::array::from_fn(|_| 0);
    bytes.copy_from_slice(&hash.finalize()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Rows as events of Fluentd, in parts of some bytes.
#[derive(Debug, Default)]
pub struct Rows {
    labels: Vec<(String, String)>,
    most: usize,
    parts: Vec<(Vec<u8>, u64)>,
    rows: usize,
}

impl Rows {
    /// With these labels on each row, in parts of about `most` bytes.
    pub fn new(labels: Vec<(String, String)>, most: usize) -> Self {
        Self { labels, most, ..Self::default() }
    }

    /// Takes a sample in.
    pub fn take(&mut self, item: &Item) {
        let Item::Sample(sample) = item else { return };
        if self.parts.last().is_none_or(|(bytes, _)| bytes.len() >= self.most) {
            self.parts.push((Vec::new(), 0));
        }
        let Some((bytes, rows)) = self.parts.last_mut() else { return };
        let entry = Packed::Array(vec![
            time(sample.time.epoch_nanos),
            packed(Value::Object(row(sample, &self.labels))),
        ]);
        // To memory.
        if rmpv::encode::write_value(bytes, &entry).is_ok() {
            *rows += 1;
            self.rows += 1;
        }
    }

    /// Rows that have not been taken out.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Takes all out: bytes, and how many rows they are.
    pub fn cut(&mut self) -> Vec<(Vec<u8>, u64)> {
        self.rows = 0;
        std::mem::take(&mut self.parts)
    }
}

/// Fluentd's EventTime: seconds and ns, big-endian. It ends in 2106.
fn time(nanos: i64) -> Packed {
    let seconds = u32::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0);
    let rest = u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0);
    Packed::Ext(0, [seconds.to_be_bytes(), rest.to_be_bytes()].concat())
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
    use flightline_consumer::live::{Feed, Options};

    use super::*;

    fn items(name: &str) -> Vec<Item> {
        let file = format!("{}/../../fixtures/recordings/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut feed = Feed::new(Options { others: false, ..Options::default() });
        feed.push(&std::fs::read(file).unwrap());
        feed.close();
        std::iter::from_fn(|| feed.next()).collect()
    }

    fn samples(items: &[Item]) -> Vec<&Sample> {
        let mut samples = Vec::new();
        for item in items {
            if let Item::Sample(sample) = item {
                samples.push(&**sample);
            }
        }
        samples
    }

    #[test]
    fn a_row_is_as_the_article_has_it() {
        let items = items("jdk17.jfr");
        let sample =
            samples(&items).into_iter().find(|sample| &*sample.event == "jdk.ExecutionSample").unwrap();
        let labels =
            [("thread", "mine"), ("task_id", "t7")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let row = row(sample, &labels);
        let names: Vec<&str> = row.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "event_type",
                "label_thread",
                "stack_trace",
                "stack_trace_id",
                "start_time_millis",
                "state",
                "task_id",
                "thread"
            ]
        );
        assert_eq!((&row["label_thread"], &row["task_id"]), (&"mine".into(), &"t7".into()));
        assert_eq!(row["state"], "STATE_RUNNABLE");
        let frames = row["stack_trace"].as_array().unwrap();
        let stack = sample.stack.as_ref().unwrap();
        assert_eq!(frames.len(), stack.frames.len() + usize::from(stack.truncated));
        let leaf = &stack.frames[0];
        let want = json!({"class_name": *leaf.class, "method_name": *leaf.function, "line_number": leaf.line, "is_java_frame": true, "type": *leaf.type_name});
        assert_eq!(frames[0], want);
        let id = row["stack_trace_id"].as_str().unwrap();
        assert!(id.len() == 36 && id.as_bytes()[14] == b'8' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
    }

    #[test]
    fn ids_are_of_one_row_each_and_the_same_again() {
        for name in ["jdk25-spans.jfr", "flightline.jfr", "ap-native-cpu.jfr"] {
            let items = items(name);
            let ids = || -> Vec<String> {
                samples(&items).iter().map(|sample| row(sample, &[])["stack_trace_id"].to_string()).collect()
            };
            let (once, again) = (ids(), ids());
            assert_eq!(once, again);
            let different: std::collections::BTreeSet<&String> = once.iter().collect();
            assert_eq!(different.len(), once.len(), "{name}");
        }
    }

    #[test]
    fn events_of_fluentd_are_the_same_rows() {
        let items = items("ap-native-cpu.jfr");
        let mut rows = Rows::new(vec![("host".to_owned(), "h1".to_owned())], 10_000);
        items.iter().for_each(|item| rows.take(item));
        let all = samples(&items);
        assert_eq!(rows.len(), all.len());
        let parts = rows.cut();
        assert!(parts.len() > 1 && rows.is_empty());
        let mut read = Vec::new();
        for (bytes, count) in parts {
            let mut left = &bytes[..];
            for _ in 0..count {
                read.push(rmpv::decode::read_value(&mut left).unwrap());
            }
            assert!(left.is_empty());
        }
        for (entry, sample) in read.iter().zip(&all) {
            let [Packed::Ext(0, time), Packed::Map(members)] = entry.as_array().unwrap().as_slice() else {
                panic!("{entry}")
            };
            let seconds = u32::from_be_bytes(time[..4].try_into().unwrap());
            assert_eq!(i64::from(seconds), sample.time.epoch_nanos / 1_000_000_000);
            let host = members.iter().find(|(key, _)| key.as_str() == Some("host")).unwrap();
            assert_eq!(host.1.as_str(), Some("h1"));
            assert_eq!(members.len(), 7);
        }
    }
}
