//! Sorts the events of a chunk by end time, in bounded memory.
//!
//! Events are nearly in order, but a long event is stored long after others with the same end, and a
//! thread's buffer after that of another thread. A chunk whose events exceed the memory limit is
//! therefore divided into segments, of which the first and the last end time are known. The next events
//! are in the segments with the earliest first end. As many as fit into memory are copied and printed,
//! and then the next ones are searched.

use std::sync::Arc;

use bytes::Bytes;
use jfr_format::read::{Batch, Chunk, Class, ClassIndex, Pages, Types};
use jfr_format::varint;

use super::selection::Range;
use super::window::{Key, LARGEST, Window};
use super::{Order, Selection};

/// Memory in bytes for events that are sorted.
const ROOM: usize = 6 << 20;
/// Bytes of input in a segment.
const SEGMENT: u64 = 8 << 10;
/// Bytes in memory before their pages are released.
const PAGES: u64 = 4 << 20;
/// Bytes around an accessed byte that the kernel maps with it.
const AROUND: u64 = 64 << 10;
/// The memory limit is raised if more bytes than this were searched per copied byte, up to this fraction
/// of the chunk.
const SCATTERED: u64 = 32;

/// Events that are held until their chunk ends.
#[derive(Debug)]
pub(super) struct HeldEvents {
    order: Order,
    picks: Picks,
    range: Range,
    window: Window,
    /// Ranges of events with their offsets in the input, ascending.
    runs: Vec<(u64, Bytes)>,
    segments: Vec<Segment>,
    pages: Pages,
    /// The events exceed the memory limit; the window has none of them yet.
    many: bool,
    /// The last printed event.
    printed: Option<Key>,
    /// The initial memory limit.
    usual_room: usize,
    room: usize,
}

/// Consecutive events, with the first and the last end among the selected ones.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    first: Key,
    last: Key,
}

impl HeldEvents {
    /// Creates a buffer for this `order`.
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            picks: Picks::default(),
            range: Range::ALL,
            window: Window::default(),
            runs: Vec::new(),
            segments: Vec::new(),
            pages: Pages::default(),
            many: false,
            printed: None,
            usual_room: ROOM,
            room: ROOM,
        }
    }

    /// Discards all events. Selects the following ones that are in `range`.
    pub(super) fn start(&mut self, range: Range) {
        self.range = range;
        self.clear();
    }

    /// Discards all events.
    pub(super) fn clear(&mut self) {
        self.window.clear();
        self.runs.clear();
        self.segments.clear();
        self.many = false;
        self.printed = None;
        self.room = self.usual_room;
    }

    /// Holds the selected events of a batch.
    pub(super) fn add(&mut self, batch: &Batch<'_>, selection: &Selection) {
        let chunk = batch.chunk();
        self.picks.update(&chunk.types, selection);
        self.pages = batch.pages();
        let before = self.segments.len();
        let mut runs = batch.runs();
        let mut run_end = 0;
        for event in batch.events() {
            let Some((start, end)) = self.picks.ticks(event.class_index(), event.payload()) else { continue };
            if !self.range.meets(chunk, start, end) {
                continue;
            }
            let (offset, after) = (event.offset(), event.offset() + u64::from(event.size()));
            let key = self.key(end, after - event.payload().len() as u64);
            match self.segments.last_mut() {
                Some(segment) if offset < run_end && after - segment.start <= SEGMENT => {
                    segment.add(key, after);
                }
                _ => self.segments.push(Segment { start: offset, end: after, first: key, last: key }),
            }
            while offset >= run_end
                && let Some((start, bytes)) = runs.next()
            {
                run_end = start + bytes.len() as u64;
            }
            if !self.many {
                self.window.push(key, event.class().id, event.payload());
                self.many = self.window.size() > self.room;
            }
        }
        if self.segments.len() > before {
            self.runs.extend(batch.runs().map(|(offset, bytes)| (offset, bytes.clone())));
        }
    }

    fn key(&self, end: i64, offset: u64) -> Key {
        Key { end: if self.order == Order::EndTime { end } else { 0 }, offset }
    }

    /// Ends a group of events that are sorted together; [`next`](Self::next) returns them.
    pub(super) fn sort(&mut self) {
        if self.many {
            self.window.clear();
            self.segments.sort_unstable_by_key(|segment| segment.first);
        }
    }

    /// Returns the next events in order; `None` if there are no more.
    pub(super) fn next(&mut self, chunk: &Chunk) -> Option<&Window> {
        if self.many {
            self.fill(chunk);
        } else if self.printed.is_some() {
            return None;
        }
        self.printed = Some(self.window.sort()?);
        Some(&self.window)
    }

    /// Copies the next events after the printed ones, as many as fit.
    fn fill(&mut self, chunk: &Chunk) {
        self.window.clear();
        let printed = self.printed;
        self.segments.retain(|segment| printed.is_none_or(|printed| segment.last > printed));
        // Taken out because the loop needs `self`.
        let segments = std::mem::take(&mut self.segments);
        // The first event that does not fit.
        let mut limit = None;
        let (mut walked, mut mapped, mut last) = (0, 0, 0);
        for segment in &segments {
            if limit.is_some_and(|limit| segment.first >= limit) {
                break;
            }
            self.take(chunk, segment, &mut limit);
            let len = segment.end - segment.start;
            walked += len;
            mapped += if segment.start / AROUND == last / AROUND { len } else { len.max(AROUND) };
            last = segment.end;
            if mapped >= PAGES {
                mapped = 0;
                self.let_go();
            }
        }
        self.let_go();
        self.segments = segments;
        let total: u64 = self.runs.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let scattered = walked > SCATTERED * self.window.size() as u64;
        if scattered && (self.room as u64) < total / SCATTERED && self.room <= LARGEST / 2 {
            self.room *= 2;
        }
    }

    /// Copies the events of a segment that are due; `limit` is the first one that does not fit.
    fn take(&mut self, chunk: &Chunk, segment: &Segment, limit: &mut Option<Key>) {
        let at = self.runs.partition_point(|(offset, _)| *offset <= segment.start);
        let Some((offset, bytes)) = at.checked_sub(1).and_then(|at| self.runs.get(at)).cloned() else {
            return;
        };
        segment.walk(offset, &bytes, |type_id, offset, payload| {
            let Some(class) = chunk.types.class_index(type_id) else { return };
            let Some((start, end)) = self.picks.ticks(class, payload) else { return };
            let key = self.key(end, offset);
            if self.printed.is_some_and(|printed| key <= printed)
                || limit.is_some_and(|limit| key >= limit)
                || !self.range.meets(chunk, start, end)
            {
                return;
            }
            self.window.push(key, type_id, payload);
            if self.window.size() > self.room {
                *limit = self.window.keep_first(self.room / 4 * 3).or(*limit);
            }
        });
    }

    fn let_go(&self) {
        if let (Some((start, _)), Some((last, bytes))) = (self.runs.first(), self.runs.last()) {
            self.pages.release(*start..last + bytes.len() as u64);
        }
    }
}

impl Segment {
    fn add(&mut self, key: Key, after: u64) {
        self.end = after;
        self.first = self.first.min(key);
        self.last = self.last.max(key);
    }

    /// Calls `see` with type, offset and field bytes of each event. `run` has the bytes from `offset` on.
    fn walk(&self, offset: u64, run: &Bytes, mut see: impl FnMut(u64, u64, &[u8])) {
        let within = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
        let (mut at, end) = (within(self.start), within(self.end));
        while at < end {
            let (start, mut pos) = (at, at);
            let head = varint::get(run, &mut pos).and_then(|size| Ok((size, varint::get(run, &mut pos)?)));
            // The decoder has already parsed these sizes, so this does not happen.
            let Ok((size, type_id)) = head else { return };
            at = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
            let Some(payload) = run.get(pos..at) else { return };
            see(type_id, offset + pos as u64, payload);
        }
    }
}

/// For each class, whether its events are selected and where their times are.
#[derive(Debug, Default)]
pub(super) struct Picks {
    of: Arc<Types>,
    picks: Vec<Option<Times>>,
}

/// The time fields at the start of a class's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    None,
    Start,
    StartAndDuration,
}

impl Picks {
    /// Updates the entries for the types of a chunk. Chunks of a recording mostly share their types.
    fn update(&mut self, types: &Arc<Types>, selection: &Selection) {
        if Arc::ptr_eq(&self.of, types) && self.picks.len() == types.classes().len() {
            return;
        }
        self.of = types.clone();
        let pick = |class: &Class| selection.chooses(class).then(|| Times::from_class(class));
        self.picks = types.classes().iter().map(pick).collect();
    }

    /// Returns start and end of an event; `None` if its class is not selected. An event without a
    /// duration ends when it starts.
    #[inline]
    fn ticks(&self, class: ClassIndex, payload: &[u8]) -> Option<(i64, i64)> {
        let times = (*self.picks.get(class.index())?)?;
        let mut at = 0;
        let mut next = || varint::get(payload, &mut at).map_or(0, u64::cast_signed);
        Some(match times {
            Times::None => (0, 0),
            Times::Start => {
                let start = next();
                (start, start)
            }
            Times::StartAndDuration => {
                let start = next();
                (start, start.wrapping_add(next()))
            }
        })
    }
}

impl Times {
    fn from_class(class: &Class) -> Self {
        let is = |at: usize, name: &str| {
            class.fields.get(at).is_some_and(|f| &*f.name == name && !f.pooled && !f.array)
        };
        match (is(0, "startTime"), is(1, "duration")) {
            (false, _) => Self::None,
            (true, false) => Self::Start,
            (true, true) => Self::StartAndDuration,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use jfr_format::event::EventRef;
    use jfr_format::read::{Input, Item};

    use super::*;

    fn recordings() -> Vec<PathBuf> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
        let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|of| of == "jfr")).collect();
        assert!(files.len() > 3);
        files
    }

    /// Returns end time of an event and offset of its fields, from the fields' names.
    fn found(event: &EventRef<'_>) -> (i64, u64) {
        let ticks = |field| event.field(field).unwrap().and_then(|value| value.as_i64()).unwrap_or(0);
        let end = ticks("startTime").wrapping_add(ticks("duration"));
        (end, event.offset() + u64::from(event.size()) - event.payload().len() as u64)
    }

    #[test]
    fn events_are_sorted_by_end_time_for_any_buffer_size() {
        for path in recordings() {
            for (room, order) in
                [(1 << 30, Order::EndTime), (1 << 14, Order::EndTime), (1 << 14, Order::AsFound)]
            {
                let mut held = HeldEvents { usual_room: room, ..HeldEvents::new(order) };
                let mut input = Input::open(&path).unwrap();
                let (mut want, mut windows, mut bytes) = (Vec::new(), 0, 0);
                while let Some(item) = input.next().unwrap() {
                    match item {
                        Item::ChunkStart(_) => held.start(Range::ALL),
                        Item::Events(batch) => {
                            held.add(&batch, &Selection::default());
                            want.extend(batch.events().map(|event| found(&event)));
                        }
                        Item::ChunkEnd(end) => {
                            match order {
                                Order::EndTime => want.sort_unstable(),
                                Order::AsFound => want.sort_unstable_by_key(|&(_, offset)| offset),
                            }
                            let mut want = want.drain(..);
                            held.sort();
                            while let Some(window) = held.next(end.chunk) {
                                windows += 1;
                                bytes += window.size();
                                for place in window.places() {
                                    let event = window.event(end.chunk, place).unwrap();
                                    assert_eq!(found(&event), want.next().unwrap(), "{}", path.display());
                                }
                            }
                            assert_eq!(want.next(), None);
                        }
                        Item::Warning(_) => {}
                    }
                }
                assert!(windows >= bytes / (room * 8), "{windows} windows of {bytes} bytes in all");
            }
        }
    }
}
