//! Labels that Pyroscope clients send alongside a recording: the context of a thread, by the id in its
//! events.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use prost::Message;

use super::{Error, body, label};
use crate::wire::Labels;

/// Labels by context id.
pub type Contexts = BTreeMap<i64, Labels>;

/// Maximum bytes of the decompressed message.
const MOST: usize = 1 << 20;
/// Maximum bytes of all labels: many labels can share one long text.
const MOST_TEXT: usize = 16 << 20;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Snapshot {
    #[prost(map = "int64, message", tag = "1")]
    pub(super) contexts: HashMap<i64, One>,
    #[prost(map = "int64, string", tag = "2")]
    pub(super) strings: HashMap<i64, String>,
}

/// Keys and values are indices of strings.
#[derive(Clone, PartialEq, Message)]
pub(super) struct One {
    #[prost(map = "int64, int64", tag = "1")]
    pub(super) labels: HashMap<i64, i64>,
}

pub(crate) fn read(packed: &Bytes) -> Result<Contexts, Error> {
    let bytes = body::unpacked(packed.clone(), MOST, "The part `labels`")?;
    let snapshot = Snapshot::decode(bytes)
        .map_err(|error| Error::Bad(format!("The part `labels` cannot be read: {error}.")))?;
    let mut contexts = Contexts::new();
    let mut text = 0;
    for (number, context) in snapshot.contexts {
        let mut labels = Labels::new();
        for (key, value) in context.labels {
            if let (Some(key), Some(value)) = (snapshot.strings.get(&key), snapshot.strings.get(&value)) {
                label(&mut labels, key, value);
            }
        }
        text += labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        if text > MOST_TEXT {
            return Err(Error::too_large("The part `labels` as text", MOST_TEXT));
        }
        contexts.insert(number, labels);
    }
    Ok(contexts)
}
