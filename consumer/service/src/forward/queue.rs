//! The queue of a receiver, and the thread that sends its items.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flightline_export::send::Sender;

use super::{Destination, Kind, payload};
use crate::log::{Level, Log};
use crate::wire::{Labels, Target};

/// Maximum number of queued recordings; each holds a file descriptor or its bytes.
const MOST_ITEMS: usize = 512;
/// Minimum time between log messages about dropped recordings.
const TELL: Duration = Duration::from_secs(10);

/// A recording to forward.
#[derive(Debug)]
pub struct Item {
    /// The recording.
    pub content: Content,
    /// Size in bytes.
    pub bytes: u64,
    /// The target it was recorded from.
    pub of: Target,
    /// Labels in addition to those of the target.
    pub labels: Labels,
    /// Start, UTC ms.
    pub from: i64,
    /// End, UTC ms.
    pub until: i64,
}

/// A recording.
#[derive(Debug)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// An open file, possibly deleted.
    File(File),
}

/// Counters of forwarded recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that the receiver accepted.
    pub sent: u64,
    /// Repeated attempts.
    pub retries: u64,
    /// Messages that the receiver did not accept.
    pub failed: u64,
    /// Recordings dropped because the queue was full or they could not be converted.
    pub dropped: u64,
    /// Profiles in accepted messages that the receiver rejected.
    pub rejected: u64,
    /// Bytes of queued recordings.
    pub waiting: u64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<Item>>,
    bytes: u64,
    /// True while a recording is being converted.
    busy: bool,
    closed: bool,
    dropped: u64,
    /// Dropped recordings that have been logged.
    told: u64,
    last_told: Option<Instant>,
    messages: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Queue of one receiver.
#[derive(Debug)]
pub(super) struct Queue {
    to: Destination,
    shared: Arc<Shared>,
    sender: Arc<Sender>,
    log: Log,
}

impl Queue {
    pub(super) fn new(to: &Destination, log: &Log) -> io::Result<Self> {
        let sender = Arc::new(Sender::new(&to.target, to.settings.clone()).map_err(io::Error::other)?);
        let shared = Arc::new(Shared::default());
        let (of_thread, by, kind, most) =
            (Arc::clone(&shared), Arc::clone(&sender), to.kind, to.target.most_bytes());
        let work = move || of_thread.work(&by, kind, most);
        std::thread::Builder::new().name("forward".into()).spawn(work)?;
        Ok(Self { to: to.clone(), shared, sender, log: log.clone() })
    }

    pub(super) fn offer(&self, item: Arc<Item>) {
        let mut state = self.shared.lock();
        let full = state.bytes.saturating_add(item.bytes) > self.to.most || state.waiting.len() >= MOST_ITEMS;
        // A recording larger than the queue is accepted if the queue is empty.
        if state.closed || full && !state.waiting.is_empty() {
            state.dropped += 1;
            return;
        }
        state.bytes = state.bytes.saturating_add(item.bytes);
        state.waiting.push_back(item);
        self.shared.changed.notify_all();
    }

    pub(super) fn look(&self) {
        let mut messages = self.sender.messages();
        let dropped = {
            let mut state = self.shared.lock();
            messages.append(&mut state.messages);
            let news = state.dropped - state.told;
            let due = state.last_told.is_none_or(|told| told.elapsed() >= TELL) || state.closed;
            if news > 0 && due {
                state.told = state.dropped;
                state.last_told = Some(Instant::now());
                news
            } else {
                0
            }
        };
        let (to, address) = (self.to.kind.name(), self.to.target.to_string());
        for message in &messages {
            let fields = [("to", to.into()), ("address", (&address).into()), ("why", message.into())];
            self.log.write(Level::Warn, "not forwarded", &fields);
        }
        if dropped > 0 {
            let fields = [("to", to.into()), ("address", (&address).into()), ("recordings", dropped.into())];
            self.log.write(Level::Warn, "dropped because the forward queue is full", &fields);
        }
    }

    pub(super) fn counts(&self) -> (Kind, Counts) {
        let report = self.sender.report();
        let state = self.shared.lock();
        let counts = Counts {
            sent: report.requests,
            retries: report.retries,
            failed: report.failed,
            dropped: state.dropped.saturating_add(report.dropped),
            rejected: report.rejected,
            waiting: state.bytes,
        };
        (self.to.kind, counts)
    }

    pub(super) fn finish(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.changed.notify_all();
        while state.busy || !state.waiting.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.dropped += state.waiting.len() as u64 + u64::from(state.busy);
        state.waiting.clear();
        drop(state);
        self.sender.end(end.saturating_duration_since(Instant::now()));
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, sender: &Sender, kind: Kind, most: usize) {
        while let Some(item) = self.take() {
            let sent = payload::send(&item, kind, most, sender);
            let mut state = self.lock();
            state.busy = false;
            if let Err(why) = sent {
                state.dropped += 1;
                state.told += 1;
                if state.messages.len() < 16 {
                    state.messages.push(format!("{}: {why}", item.of.id));
                }
            }
            self.changed.notify_all();
        }
    }

    fn take(&self) -> Option<Arc<Item>> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.waiting.pop_front() {
                state.bytes = state.bytes.saturating_sub(item.bytes);
                state.busy = true;
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
