//! Bytes and events that were written into a stream but did not reach a reader.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use jfr_format::{
    read::{EventCount, Part},
    write::Loss,
};

/// The reader's queue was full while others had room.
pub const READER_BEHIND: &str = "reader behind";
/// No reader got the bytes.
pub const NO_READER: &str = "no reader";

/// Limit of distinct event types. Others are counted as one.
const MOST_TYPES: usize = 1 << 12;

/// Events by cause and type.
#[derive(Debug, Default, Clone)]
pub struct Losses {
    by: BTreeMap<(&'static str, Arc<str>), (u64, u64)>,
    /// Bytes of the stream, including data other than events.
    pub bytes: u64,
}

impl Losses {
    /// Adds events.
    pub fn add(&mut self, cause: &'static str, counts: &[EventCount], bytes: u64) {
        self.bytes += bytes;
        for count in counts {
            let key = match self.by.len() {
                0..MOST_TYPES => (cause, count.name.clone()),
                _ => (cause, Arc::from("others")),
            };
            let sum = self.by.entry(key).or_default();
            *sum = (sum.0 + count.events, sum.1 + count.bytes);
        }
    }

    /// Adds other losses.
    pub fn merge(&mut self, other: Losses) {
        self.bytes += other.bytes;
        for (key, (events, bytes)) in other.by {
            let sum = self.by.entry(key).or_default();
            *sum = (sum.0 + events, sum.1 + bytes);
        }
    }

    /// Returns true if there are no losses.
    pub fn is_empty(&self) -> bool {
        self.by.is_empty() && self.bytes == 0
    }

    /// Returns the number of events of all types.
    pub fn events(&self) -> u64 {
        self.by.values().map(|(events, _)| events).sum()
    }

    /// The losses by cause and event type.
    pub fn entries(&self) -> Vec<Loss<'_>> {
        self.by
            .iter()
            .map(|((cause, event_type), (events, bytes))| Loss {
                cause,
                event_type,
                events: *events,
                bytes: *bytes,
            })
            .collect()
    }
}

/// State shared by all parts of a stream.
#[derive(Debug, Default)]
pub struct Shared {
    /// Events that no reader got.
    pub nobody: Mutex<Losses>,
    /// Bytes in memory for all queued parts.
    pub memory_bytes: AtomicUsize,
}

/// A part in the queues of readers. When the last queue drops it, it is counted as lost if no reader got all
/// of it.
#[derive(Debug)]
pub struct QueuedPart {
    counts: Vec<EventCount>,
    len: u64,
    memory_bytes: usize,
    delivered: AtomicBool,
    shared: Arc<Shared>,
}

impl QueuedPart {
    /// Returns the queue entry of a part.
    pub fn new(part: &Part, shared: &Arc<Shared>) -> Arc<QueuedPart> {
        let memory_bytes = part.memory_bytes();
        shared.memory_bytes.fetch_add(memory_bytes, Ordering::Relaxed);
        Arc::new(QueuedPart {
            counts: part.counts.clone(),
            len: part.len() as u64,
            memory_bytes,
            delivered: AtomicBool::new(false),
            shared: shared.clone(),
        })
    }

    /// Notes that a reader got the whole part.
    pub fn take(&self) {
        self.delivered.store(true, Ordering::Relaxed);
    }

    /// Adds its events to the losses of a reader.
    pub fn lose(&self, losses: &mut Losses) {
        losses.add(READER_BEHIND, &self.counts, self.len);
        // This reader gets a record of the loss.
        self.take();
    }
}

impl Drop for QueuedPart {
    fn drop(&mut self) {
        self.shared.memory_bytes.fetch_sub(self.memory_bytes, Ordering::Relaxed);
        if !*self.delivered.get_mut()
            && let Ok(mut nobody) = self.shared.nobody.lock()
        {
            nobody.add(NO_READER, &self.counts, self.len);
        }
    }
}
