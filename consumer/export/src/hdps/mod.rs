//! Samples as rows in the format of Treasure Data's Hive Distributed Profiling System: as lines of JSON
//! or as Fluentd events.

mod events;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;

pub use events::{Part, Rows};
use flightline_consumer::live::{self, Frame, Item, Sample};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

/// Members of a row that are not labels.
const MEMBERS: [&str; 6] =
    ["stack_trace_id", "event_type", "start_time_millis", "thread", "state", "stack_trace"];
/// Prefix for labels whose names collide with a member.
const LABEL: &str = "label_";
/// Frames of a row. A deeper stack is cut and marked as truncated.
const MOST_FRAMES: usize = 2048;
/// Bytes of names in a row's frames. A stack with more is cut and marked as truncated.
const MOST_NAMES: usize = 512 << 10;
/// Ids in one of the two generations of the lookup table.
const MOST_IDS: usize = 1 << 15;

/// Converts samples to rows.
///
/// A row has `stack_trace_id`, `event_type`, `start_time_millis`, `thread`, `state`, `stack_trace` (leaf
/// first), and the labels as further members. A label with the name of one of those members, or whose
/// name begins with `label_`, gets the prefix `label_`, so that no two labels become one member. A label
/// of the sample's span takes precedence over a label for all rows.
///
/// The id is a UUID (version 8: a hash) of the event's content, so exporting a sample again gives the
/// same id. Equal events of one chunk are numbered, because a late timer reports several samples at once.
#[derive(Debug, Default)]
pub struct Shape {
    labels: Vec<(String, String)>,
    /// Number of uses of each id.
    now: HashMap<[u8; 16], u64>,
    before: HashMap<[u8; 16], u64>,
}

impl Shape {
    /// Creates a converter that adds these labels to each row.
    pub fn new(labels: Vec<(String, String)>) -> Self {
        Self { labels, ..Self::default() }
    }

    /// Returns the row of an item if it is a sample.
    pub fn row(&mut self, item: &Item) -> Option<Map<String, Value>> {
        match item {
            Item::Sample(sample) => Some(self.sample_row(sample)),
            Item::ChunkStart(_) => {
                // Exporting the chunk again must give the same ids.
                self.now.clear();
                self.before.clear();
                None
            }
            _ => None,
        }
    }

    fn sample_row(&mut self, sample: &Sample) -> Map<String, Value> {
        let thread = sample.thread.as_ref();
        let (frames, cut) = frames(sample);
        let mut row = Map::new();
        let all = self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let own =
            sample.span.iter().flat_map(|span| span.labels.iter().map(|(key, value)| (&**key, &**value)));
        for (key, value) in all.chain(own) {
            let mistaken = MEMBERS.contains(&key) || key.starts_with(LABEL);
            row.insert(format!("{}{key}", if mistaken { LABEL } else { "" }), value.into());
        }
        row.insert("event_type".to_owned(), (*sample.event).into());
        row.insert("start_time_millis".to_owned(), sample.time.epoch_nanos.div_euclid(1_000_000).into());
        row.insert("thread".to_owned(), thread.map_or(Value::Null, |thread| thread.name().into()));
        row.insert("state".to_owned(), sample.state.as_ref().map_or(Value::Null, |state| (**state).into()));
        let marker = json!({"class_name": "", "method_name": "[truncated]", "line_number": 0, "is_java_frame": false, "type": "marker"});
        row.insert("stack_trace".to_owned(), frames.into_iter().chain(cut.then_some(marker)).collect());
        let hash = self.hash(sample, &row);
        row.insert("stack_trace_id".to_owned(), uuid(hash).into());
        row
    }

    /// Hashes the row, the fields that distinguish events of one time, thread and stack, and the number
    /// of equal events before it.
    fn hash(&mut self, sample: &Sample, row: &Map<String, Value>) -> [u8; 16] {
        let mut hash = Hash(Sha512::new());
        let thread = sample.thread.as_ref().map_or((0, 0), |thread| (thread.os_id, thread.java_id));
        hash.number(sample.time.epoch_nanos);
        hash.number(thread.0);
        hash.number(thread.1);
        let weight = &sample.weight;
        for number in [sample.duration_nanos.unwrap_or(u64::MAX), weight.samples, weight.value] {
            hash.0.update(number.to_le_bytes());
        }
        hash.text(sample.variant.as_deref().unwrap_or_default());
        for (name, value) in &sample.fields {
            hash.text(name);
            hash.value(value);
        }
        hash.value(sample.labels.as_ref().unwrap_or(&live::Value::Null));
        // Writing to a hash cannot fail.
        let _ = serde_json::to_writer(&mut hash, row);
        let bytes = hash.bytes();
        if self.now.len() >= MOST_IDS {
            self.before = std::mem::take(&mut self.now);
        }
        let count =
            self.now.entry(bytes).or_insert_with(|| self.before.get(&bytes).map_or(0, |count| *count));
        *count += 1;
        if *count == 1 {
            return bytes;
        }
        let mut hash = Hash(Sha512::new());
        hash.0.update(bytes);
        hash.0.update(count.to_le_bytes());
        hash.bytes()
    }
}

fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Returns the frames for the row, and whether the stack has more.
fn frames(sample: &Sample) -> (Vec<Value>, bool) {
    let Some(stack) = &sample.stack else { return (Vec::new(), false) };
    let mut left = MOST_NAMES;
    let shown = stack.frames.iter().take(MOST_FRAMES).map_while(|shown| {
        left = left.checked_sub(class(shown).len() + shown.function.len())?;
        Some(frame(shown))
    });
    let shown: Vec<Value> = shown.collect();
    let cut = stack.truncated || shown.len() < stack.frames.len();
    (shown, cut)
}

fn class(frame: &Frame) -> &str {
    if frame.kind.in_library() { &frame.module } else { &frame.class }
}

fn frame(frame: &Frame) -> Value {
    json!({
        "class_name": class(frame),
        "method_name": *frame.function,
        "line_number": frame.line,
        "is_java_frame": frame.kind.is_java(),
        "type": *frame.type_name,
    })
}

struct Hash(Sha512);

impl Hash {
    fn bytes(self) -> [u8; 16] {
        let mut bytes: [u8; 16] = std::array::from_fn(|_| 0);
        bytes.copy_from_slice(&self.0.finalize()[..16]);
        bytes
    }

    fn number(&mut self, number: i64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as i64);
        self.0.update(text);
    }

    fn value(&mut self, value: &live::Value) {
        match value {
            live::Value::Boolean(value) => self.number(i64::from(*value)),
            live::Value::Integer(number) => self.number(*number),
            live::Value::Real(number) => self.0.update(number.to_le_bytes()),
            live::Value::Text(text) => self.text(text),
            live::Value::Thread(thread) => self.number(thread.os_id),
            live::Value::List(values) => {
                self.number(values.len() as i64);
                values.iter().for_each(|value| self.value(value));
            }
            live::Value::Struct(fields) => {
                self.number(fields.len() as i64);
                for (name, value) in fields {
                    self.text(name);
                    self.value(value);
                }
            }
            // No value, or a stack, which the row already has.
            _ => self.text(""),
        }
    }
}

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
