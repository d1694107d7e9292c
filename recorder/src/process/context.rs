//! The contexts of samples: decodes contexts that programs published into spans and labels.
//!
//! The context of a wait is read between two equal readings of the thread's scheduler statistics, so the
//! thread did not change it in between.

use std::sync::Arc;

use flightline_in_signal::layout::{HEAD_WORDS, MAX_CONTEXT, RECORD_BYTES, RECORD_HEAD, TEXT_LABELS};
use serde_json::{Map, Value};

use super::otel_process_context::Published;
use crate::os::clock::monotonic_ns;
use crate::recording::{SpanContext, Worked};
use crate::shared_memory::proc_file::ProcFile;

/// The contexts read last, because a thread mostly continues in the same context.
#[derive(Default)]
pub(super) struct Contexts {
    words: Vec<u64>,
    last: Option<Arc<Worked>>,
    published: Published,
}

/// The label in which libdatadog reports the local root, as 16 hexadecimal digits.
const LOCAL_ROOT: &str = "datadog.local_root_span_id";

impl Contexts {
    /// Returns the context that `words` of a record hold ([`flightline_in_signal::context`]); `None` if they hold none.
    pub(super) fn context(&mut self, file: &ProcFile, words: &[u64]) -> Option<Arc<Worked>> {
        if words.is_empty() {
            return None;
        }
        let ours = is_ours(words);
        // The key names of another library can only be read from its published process context.
        let renamed = !ours && file.trusted_pid() && self.published.look(file.pid, monotonic_ns());
        if words != self.words || renamed {
            self.words.clear();
            self.words.extend_from_slice(words);
            let published = &self.published;
            let worked = match ours {
                true => decode(words, |index| file.label_name(index)),
                false => decode(words, |index| published.name(index).map(str::to_owned)),
            };
            self.last = worked.map(Arc::new);
        }
        self.last.clone()
    }
}

/// Returns true if one of our side-cars was read with it.
fn is_ours(words: &[u64]) -> bool {
    words.first().is_some_and(|head| head >> 32 & 1 != 0)
}

/// Decodes a context. `name` returns the names of labels.
pub(super) fn decode(words: &[u64], name: impl Fn(u8) -> Option<String>) -> Option<Worked> {
    let [_, seq, local_root] = *words.first_chunk::<HEAD_WORDS>()?;
    let bytes: Vec<u8> = words.get(HEAD_WORDS..)?.iter().flat_map(|word| word.to_le_bytes()).collect();
    let attrs = usize::from(u16::from_le_bytes(*bytes.get(26..28)?.first_chunk()?));
    let attrs = bytes.get(RECORD_HEAD..RECORD_HEAD + attrs)?;
    let id = |at: usize| Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let texts = words.first().is_some_and(|head| head & TEXT_LABELS != 0);
    let mut labels = if texts { text_labels(attrs) } else { labels(attrs, name) };
    // Only our side-car counts activations.
    let (seq, local_root) = match is_ours(words) {
        true => (seq, local_root),
        false => (0, take_local_root(&mut labels)),
    };
    let labels = if labels.is_empty() { String::new() } else { Value::Object(labels).to_string() };
    let (span, trace, flags) = (id(16)?, [id(0)?, id(8)?], *bytes.get(25)?);
    Some(Worked { seq, context: SpanContext { span, local_root, trace, flags, labels } })
}

/// Removes the local root from the labels and returns it; 0 if they do not contain it.
fn take_local_root(labels: &mut Map<String, Value>) -> u64 {
    let text = labels.get(LOCAL_ROOT).and_then(Value::as_str).filter(|text| text.len() == 16);
    let Some(root) = text.and_then(|text| u64::from_str_radix(text, 16).ok()) else { return 0 };
    labels.remove(LOCAL_ROOT);
    root
}

/// Decodes labels of the form `key, length, text`. The last label of a key counts.
fn labels(mut attrs: &[u8], name: impl Fn(u8) -> Option<String>) -> Map<String, Value> {
    let mut object = Map::new();
    while let Some(([key, len], rest)) = attrs.split_first_chunk() {
        let (text, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        attrs = rest;
        let name = name(*key).unwrap_or_else(|| format!("label {key}"));
        object.insert(name, String::from_utf8_lossy(text).into_owned().into());
    }
    object
}

/// Decodes labels of the form `length, key, length, text`. The first label of a key counts.
fn text_labels(mut attrs: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    let mut next = || {
        let (len, rest) = attrs.split_first()?;
        let (text, rest) = rest.split_at_checked(usize::from(*len))?;
        attrs = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    while let (Some(key), Some(value)) = (next(), next()) {
        object.entry(key).or_insert(value.into());
    }
    object
}

/// Returns the number of context words that a record declares, if it is valid.
pub(super) fn length(first: u64) -> Option<usize> {
    let words = first as u32 as usize;
    (HEAD_WORDS + RECORD_HEAD.div_ceil(8)..=MAX_CONTEXT).contains(&words).then_some(words)
}

const _: () = assert!(RECORD_BYTES.is_multiple_of(8));

#[cfg(test)]
mod tests {
    use super::*;
    use flightline_in_signal::layout::context_word;

    fn words(ours: bool, attrs: &[u8], len: usize) -> Vec<u64> {
        let mut bytes: Vec<u8> = (1..=24).collect();
        bytes.extend([1, 3]);
        bytes.extend((len as u16).to_le_bytes());
        bytes.extend(attrs);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let record = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let len = HEAD_WORDS + bytes.len() / 8;
        [context_word(len as u32, ours), 7, 9].into_iter().chain(record).collect()
    }

    #[test]
    fn ids_are_big_endian_and_the_last_duplicate_label_counts() {
        let attrs = b"\x01\x01a\x02\x02\"\n\x01\x02bc\xff\x00";
        let name = |key| (key < 3).then(|| format!("k{key}"));
        let worked = decode(&words(true, attrs, attrs.len()), name).unwrap();
        assert_eq!((worked.seq, worked.context.local_root), (7, 9));
        assert_eq!(worked.context.span, 0x1112_1314_1516_1718);
        assert_eq!(worked.context.trace, [0x0102_0304_0506_0708, 0x090a_0b0c_0d0e_0f10]);
        assert_eq!(worked.context.flags, 3);
        assert_eq!(worked.context.labels, r#"{"k1":"bc","k2":"\"\n","label 255":""}"#);
        let foreign = decode(&words(false, b"", 0), name).unwrap();
        assert_eq!((foreign.seq, foreign.context.local_root), (0, 0));
        assert_eq!(foreign.context.labels, "");
        // In libdatadog's format. Any other value is an ordinary label.
        let root = |attrs: &[u8]| {
            let name = |_| Some(LOCAL_ROOT.to_owned());
            let context = decode(&words(false, attrs, attrs.len()), name).unwrap().context;
            (context.local_root, context.labels)
        };
        assert_eq!(root(b"\x00\x10000000000000beef"), (0xbeef, String::new()));
        assert_eq!(root(b"\x00\x02be"), (0, format!(r#"{{"{LOCAL_ROOT}":"be"}}"#)));
    }

    #[test]
    fn text_labels_are_decoded_to_json() {
        let attrs = b"\x01k\x02ab\x00\x01c\x01k\x01x\x09cut";
        let mut words = words(false, attrs, attrs.len());
        words[0] |= TEXT_LABELS;
        assert_eq!(decode(&words, |_| None).unwrap().context.labels, r#"{"":"c","k":"ab"}"#);
    }

    #[test]
    fn malformed_context_records_are_rejected() {
        let name = |_| None;
        assert_eq!(decode(&words(true, b"ab", 900), name), None, "longer than what came");
        assert_eq!(decode(&[1, 2, 3, 4], name), None);
        let cut = decode(&words(true, b"\x05\xc8abcdef", 8), name).unwrap();
        assert_eq!(cut.context.labels, r#"{"label 5":"abcdef"}"#);
        assert_eq!(decode(&words(true, b"\x05", 1), name).unwrap().context.labels, "");
        for first in [0, 6, 84, u64::MAX] {
            assert_eq!(length(first), None);
        }
        assert_eq!(length(context_word(7, true)), Some(7));
    }
}
