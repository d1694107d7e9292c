//! Duration events: activations of spans on threads, contextual events, waits for locks, I/O, pauses of
//! the garbage collector. The longest ones are stored, the others counted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jfr_format::varint;
use serde_json::{Value, json};

use super::LONGEST;
use crate::convert::{Collecting, Track};
use crate::live::{COLLECTOR, Event, Fields, Item, Kind, Sample, Value as Field, field};
use crate::model::Thread;
use crate::spans::{Listener, Scope, SpanKey, SpanRecord};

/// Maximum number of events on a page.
pub const MOST: usize = 200_000;
/// Maximum number of spans whose names are stored; their activations precede the names.
const MOST_SPANS: usize = 1 << 19;
/// Maximum number of characters in a name.
const MOST_LETTERS: usize = 120;
const MICRO: i64 = 1_000;
/// Fields with the subject of an event.
const ABOUT: [&str; 6] = ["monitorClass", "parkedClass", "path", "host", "address", "name"];

/// The kind of an event, in the order of the page's `LASTING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum DurationKind {
    Span,
    Lock,
    Io,
    Collector,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Text(Arc<str>),
    /// The name is reported when the span ends.
    Span(SpanKey),
    /// The same, for an activation that continues.
    Open(SpanKey),
}

/// An event: position of its thread, start in ns after the origin, and duration in ns.
#[derive(Clone, Debug)]
struct Entry {
    thread: u32,
    of: DurationKind,
    start: i64,
    nanos: u64,
    name: Name,
}

/// The longest events.
#[derive(Debug, Default)]
struct Longest {
    entries: Vec<Entry>,
    left_out: u64,
    /// Minimum duration in ns of the stored events, once some were left out.
    shortest: u64,
}

/// Collects single events.
#[derive(Debug)]
pub(super) struct Lasting {
    origin: i64,
    most: usize,
    listener: Listener,
    /// The types of the intervals that wait in `listener`, if they are of samples.
    doubtful: Vec<Option<Arc<str>>>,
    /// By type for samples: a type that is in all events of the page is not repeated above its stacks. `None`
    /// for other events.
    longest: BTreeMap<Option<Arc<str>>, Longest>,
    /// Distinct names.
    names: HashSet<Arc<str>>,
    spans: HashMap<SpanKey, Arc<str>>,
    /// Latest time at which an unfinished activation was reported, by thread, span and start.
    open: HashMap<(u32, SpanKey, i64), i64>,
}

impl Lasting {
    /// Creates a collector. Times count from `origin`, in ns since 1970; the `most` longest events are
    /// stored.
    pub(super) fn new(origin: i64, most: usize) -> Self {
        Self {
            origin,
            most,
            listener: Listener::new(),
            doubtful: Vec::new(),
            longest: BTreeMap::new(),
            names: HashSet::new(),
            spans: HashMap::new(),
            open: HashMap::new(),
        }
    }

    /// The duration in ns below which samples of a type will not be stored.
    pub(super) fn shortest(&self, event: &str) -> u64 {
        let of_type = self.longest.iter().find(|(name, _)| name.as_deref() == Some(event));
        of_type.map_or(0, |(_, longest)| longest.shortest)
    }

    /// Processes an item; `collecting` selects threads.
    pub(super) fn take(&mut self, item: &Item, collecting: &mut Collecting<'_>) {
        match item {
            Item::ChunkStart(chunk) => {
                self.undoubted(collecting);
                // Each recording may be of another producer.
                if chunk.index == 0 {
                    self.listener = Listener::new();
                }
                self.listener.take(item);
            }
            Item::Segment(_) => self.undoubted(collecting),
            Item::Sample(sample) => match self.record(item, Some(&sample.event)) {
                Some(told) => self.add_record(told, Some(&sample.event), collecting),
                None => self.waited(sample, collecting),
            },
            Item::Other(event) if COLLECTOR.contains(&&*event.event) => self.paused(event, collecting),
            Item::Other(_) => {
                if let Some(told) = self.record(item, None) {
                    self.add_record(told, None, collecting);
                }
            }
            _ => {}
        }
    }

    fn undoubted(&mut self, collecting: &mut Collecting<'_>) {
        let types = std::mem::take(&mut self.doubtful);
        for (told, sample) in self.listener.undoubted().into_iter().zip(types) {
            self.add_record(told, sample.as_ref(), collecting);
        }
    }

    /// Returns the span record of an item, of a sample of this type if it is one.
    fn record(&mut self, item: &Item, sample: Option<&Arc<str>>) -> Option<SpanRecord> {
        let told = self.listener.take(item);
        self.doubtful.resize(self.listener.doubtful_count(), sample.cloned());
        told
    }

    /// Processes a record, of a sample of this type if it is of one.
    fn add_record(&mut self, told: SpanRecord, sample: Option<&Arc<str>>, collecting: &mut Collecting<'_>) {
        match told {
            SpanRecord::Span(_, span)
                if self.spans.len() < MOST_SPANS || self.spans.contains_key(&span.key) =>
            {
                let name = self.name(&span.name);
                self.spans.insert(span.key, name);
            }
            SpanRecord::Scope(thread, scope) => self.scope(&thread, scope, collecting),
            SpanRecord::Interval(thread, span) => {
                let name = Name::Text(self.name(&span.name));
                self.put(sample, DurationKind::Span, Some(&thread), name, (span.start, span.end), collecting);
            }
            _ => {}
        }
    }

    /// Adds an activation. An unfinished one is reported repeatedly.
    fn scope(&mut self, thread: &Arc<Thread>, scope: Scope, collecting: &mut Collecting<'_>) {
        let Some(track) = collecting.thread(Some(thread)) else { return };
        let key = (track as u32, scope.span, scope.start);
        if !scope.open {
            self.open.remove(&key);
            let (name, range) = (Name::Span(scope.span), (scope.start, scope.end));
            self.put(None, DurationKind::Span, Some(thread), name, range, collecting);
        } else if self.open.len() < self.most || self.open.contains_key(&key) {
            let end = self.open.entry(key).or_insert(scope.end);
            *end = scope.end.max(*end);
        } else {
            self.longest.entry(None).or_default().left_out += 1;
        }
    }

    fn waited(&mut self, sample: &Sample, collecting: &mut Collecting<'_>) {
        let of = match sample.kind {
            Kind::Lock => DurationKind::Lock,
            Kind::Io => DurationKind::Io,
            _ => return,
        };
        let Some(nanos) = sample.duration_nanos else { return };
        let name = Name::Text(self.about(&sample.event, &sample.fields));
        let start = sample.time.epoch_nanos;
        let end = start.saturating_add_unsigned(nanos);
        self.put(Some(&sample.event), of, sample.thread.as_ref(), name, (start, end), collecting);
    }

    fn paused(&mut self, event: &Event, collecting: &mut Collecting<'_>) {
        let nanos = self.listener.nanos(event.field("duration").and_then(Field::integer).unwrap_or(0));
        let name = Name::Text(self.about(&event.event, &event.fields));
        let thread = match event.field("eventThread") {
            Some(Field::Thread(thread)) => Some(thread),
            _ => None,
        };
        let start = event.time.epoch_nanos;
        let range = (start, start.saturating_add(nanos));
        self.put(None, DurationKind::Collector, thread, name, range, collecting);
    }

    /// Formats the subject: `jdk.FileRead` of `/etc/passwd` becomes `FileRead /etc/passwd`.
    fn about(&mut self, event: &str, fields: &Fields) -> Arc<str> {
        let short = event.rsplit('.').next().unwrap_or(event);
        let text = |about: &&str| field(fields, about)?.text().filter(|text| !text.is_empty());
        match ABOUT.iter().find_map(text) {
            Some(text) => self.name(&format!("{short} {text}")),
            None => self.name(short),
        }
    }

    fn name(&mut self, text: &str) -> Arc<str> {
        let end = text.char_indices().nth(MOST_LETTERS).map_or(text.len(), |(at, _)| at);
        let text = text.get(..end).unwrap_or_default();
        if let Some(known) = self.names.get(text) {
            return known.clone();
        }
        let name: Arc<str> = text.into();
        self.names.insert(name.clone());
        name
    }

    fn put(
        &mut self,
        sample: Option<&Arc<str>>,
        of: DurationKind,
        thread: Option<&Arc<Thread>>,
        name: Name,
        (start, end): (i64, i64),
        collecting: &mut Collecting<'_>,
    ) {
        // An event that ends before it starts has duration 0.
        let end = end.max(start);
        if !collecting.meets(start, end) {
            return;
        }
        let Some(thread) = collecting.thread(thread) else { return };
        let longest = match self.longest.get_mut(&sample.cloned()) {
            Some(longest) => longest,
            None => self.longest.entry(sample.cloned()).or_default(),
        };
        let Some(entry) = entry(self.origin, thread as u32, of, name, (start, end)) else {
            longest.left_out += 1;
            return;
        };
        if longest.add(entry, self.most, collecting.met_threads()) {
            self.names.clear();
        }
    }

    /// Returns the stored events by the position of their thread, without samples of types for which
    /// `is_drawn` returns true.
    pub(super) fn finish(
        mut self,
        is_drawn: impl Fn(&str) -> bool,
        collecting: &mut Collecting<'_>,
    ) -> Lasted {
        self.undoubted(collecting);
        let threads = collecting.met_threads();
        let mut longest = Longest::default();
        for (event, of_type) in std::mem::take(&mut self.longest) {
            if !event.is_some_and(|event| is_drawn(&event)) {
                longest.entries.extend(of_type.entries);
                longest.left_out += of_type.left_out;
            }
        }
        for ((thread, span, start), end) in std::mem::take(&mut self.open) {
            if collecting.meets(start, end.max(start)) {
                let range = (start, end.max(start));
                match entry(self.origin, thread, DurationKind::Span, Name::Open(span), range) {
                    Some(entry) => _ = longest.add(entry, self.most, threads),
                    None => longest.left_out += 1,
                }
            }
        }
        longest.cut(self.most, threads);
        let Longest { mut entries, left_out, .. } = longest;
        let mut lanes = vec![Vec::new(); threads.len()];
        // Retains the longest copy of an activation in two files; it comes first.
        let mut told = HashSet::new();
        entries.retain(|entry| match entry.name {
            Name::Text(_) => true,
            Name::Span(span) | Name::Open(span) => told.insert((entry.thread, entry.start, span)),
        });
        let mut counts: BTreeMap<(DurationKind, Arc<str>), u64> = BTreeMap::new();
        let mut named = Vec::with_capacity(entries.len());
        for entry in &entries {
            let name = (entry.of, self.named(&entry.name));
            *counts.entry(name.clone()).or_default() += 1;
            named.push(name);
        }
        let mut names: Vec<_> = counts.into_iter().collect();
        // Most numbers need one byte.
        names.sort_by_key(|&(_, count)| Reverse(count));
        let numbers: HashMap<_, _> = names.iter().map(|(name, _)| name).zip(0u32..).collect();
        for (entry, name) in entries.iter().zip(&named) {
            let start = entry.start.div_euclid(MICRO);
            let end = entry.start.saturating_add_unsigned(entry.nanos).div_euclid(MICRO);
            let lasts = Lasts { start, micros: start.abs_diff(end), name: numbers[name] };
            lanes[entry.thread as usize].push(lasts);
        }
        // A nested event follows the event around it.
        lanes.iter_mut().for_each(|lane| lane.sort_by_key(|of| (of.start, Reverse(of.micros), of.name)));
        let names = names.into_iter().map(|((of, name), _)| (of, name)).collect();
        Lasted { names, lanes, left_out }
    }

    fn named(&self, name: &Name) -> Arc<str> {
        let span = |key: &SpanKey| match self.spans.get(key).filter(|name| !name.is_empty()) {
            Some(name) => name.clone(),
            None => key.to_string().into(),
        };
        match name {
            Name::Text(text) => text.clone(),
            Name::Span(key) => span(key),
            Name::Open(key) => format!("{} (not ended)", span(key)).into(),
        }
    }
}

/// Returns an event that lasted from `start` to `end`, in ns since 1970; `None` if it is not visible.
fn entry(origin: i64, thread: u32, of: DurationKind, name: Name, (start, end): (i64, i64)) -> Option<Entry> {
    let (from, to) = (start.saturating_sub(origin), end.saturating_sub(origin));
    // Events before the origin are not visible.
    let is_visible = to >= 0 && from.unsigned_abs() <= LONGEST && to.unsigned_abs() <= LONGEST;
    is_visible.then(|| Entry { thread, of, start: from, nanos: from.abs_diff(to), name })
}

impl Longest {
    /// Adds an event; returns true if others were left out for it.
    fn add(&mut self, entry: Entry, most: usize, threads: &[Track]) -> bool {
        self.entries.push(entry);
        let is_full = self.entries.len() >= most.saturating_mul(2).max(2);
        if is_full {
            self.cut(most, threads);
        }
        is_full
    }

    /// Retains only the longest events. The result does not depend on their order.
    fn cut(&mut self, most: usize, threads: &[Track]) {
        let thread = |entry: &Entry| &threads[entry.thread as usize];
        let key = |entry: &Entry| (Reverse(entry.nanos), entry.start, entry.of);
        self.entries.sort_by(|a, b| {
            key(a).cmp(&key(b)).then_with(|| thread(a).in_order(thread(b))).then_with(|| a.name.cmp(&b.name))
        });
        self.left_out += self.entries.len().saturating_sub(most) as u64;
        if self.entries.len() > most {
            self.entries.truncate(most);
            self.shortest = self.entries.last().map_or(0, |entry| entry.nanos);
        }
    }
}

/// An event: start in µs after the origin, duration in µs, number of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lasts {
    start: i64,
    micros: u64,
    name: u32,
}

/// Duration events, in order of start.
#[derive(Clone, Debug, Default)]
pub(super) struct Lasted {
    names: Vec<(DurationKind, Arc<str>)>,
    /// By thread.
    pub(super) lanes: Vec<Vec<Lasts>>,
    left_out: u64,
}

impl Lasted {
    /// Appends the events to `columns`, after the samples: for each thread the times between starts, the
    /// durations and the numbers of names; then the names, in JSON. Returns the description for the page,
    /// or `None` if there are no events.
    pub(super) fn encode(&self, columns: &mut Vec<u8>) -> Option<Value> {
        let first = self.lanes.iter().filter_map(|lane| lane.first()).map(|of| of.start).min();
        if first.is_none() && self.left_out == 0 {
            return None;
        }
        let from = first.unwrap_or(0).min(0);
        for lane in &self.lanes {
            let mut before = from;
            for of in lane {
                varint::put(columns, of.start.abs_diff(before));
                before = of.start;
            }
            lane.iter().for_each(|of| varint::put(columns, of.micros));
            lane.iter().for_each(|of| varint::put(columns, of.name.into()));
        }
        let names: Vec<(usize, &str)> = self.names.iter().map(|(of, name)| (*of as usize, &**name)).collect();
        let names = json!(names).to_string();
        columns.extend_from_slice(names.as_bytes());
        Some(json!({
            "from": from,
            "lanes": self.lanes.iter().map(Vec::len).collect::<Vec<_>>(),
            "names": names.len(),
            "leftOut": self.left_out,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::FoldOptions;
    use crate::live::{ChunkStart, Time};
    use crate::reshape::Reshape;

    const ORIGIN: i64 = 1_000_000_000_000;
    const MS: i64 = 1_000_000;

    fn thread(id: i64) -> Arc<Thread> {
        Arc::new(Thread { os_name: Some("worker".into()), os_id: id, ..Thread::default() })
    }

    /// An event; `start` is in ns after the origin, `duration` in ns.
    fn event(name: &str, start: i64, duration: i64, fields: &[(&str, Field)]) -> Item {
        let time = Time { epoch_nanos: ORIGIN.saturating_add(start), monotonic_nanos: None };
        let fields = [("duration", Field::Integer(duration))].into_iter().chain(fields.iter().cloned());
        let fields = fields.map(|(name, value)| (Arc::from(name), value)).collect();
        Item::Other(Event { event: name.into(), time, fields, contextual: Arc::default(), offset: 0 })
    }

    fn scope(id: i64, span: i64, start: i64, duration: i64, open: bool) -> Item {
        let fields = [
            ("eventThread", Field::Thread(thread(id))),
            ("spanId", Field::Integer(span)),
            ("open", Field::Boolean(open)),
        ];
        event("flightline.SpanScope", start, duration, &fields)
    }

    fn ended(span: i64, name: &str) -> Item {
        let fields = [("spanId", Field::Integer(span)), ("name", Field::Text(name.into()))];
        event("flightline.Span", 0, MS, &fields)
    }

    fn pause(start: i64, duration: i64) -> Item {
        event("jdk.GarbageCollection", start, duration, &[("name", Field::Text("G1New".into()))])
    }

    fn begun() -> Item {
        Item::ChunkStart(ChunkStart {
            index: 0,
            offset: 0,
            time: Time::default(),
            ticks_per_second: 1_000_000_000,
        })
    }

    type Named = (String, i64, u64);

    /// Returns the threads in their order, with name, start and duration in µs of their events, and the
    /// number of events left out.
    fn gathered(most: usize, items: &[Item]) -> (Vec<(String, Vec<Named>)>, u64) {
        let (options, reshape) = (FoldOptions::default(), Reshape::default());
        let mut collecting = Collecting::new(&options, &reshape, [i64::MIN, i64::MAX]);
        let mut lasting = Lasting::new(ORIGIN, most);
        lasting.take(&begun(), &mut collecting);
        items.iter().for_each(|item| lasting.take(item, &mut collecting));
        let lasted = lasting.finish(|_| false, &mut collecting);
        let name = |of: &Lasts| lasted.names[of.name as usize].1.to_string();
        let lane = |lane: &Vec<Lasts>| lane.iter().map(|of| (name(of), of.start, of.micros)).collect();
        let mut both: Vec<_> = collecting.met_threads().iter().zip(&lasted.lanes).collect();
        both.sort_by(|a, b| a.0.in_order(b.0));
        (both.into_iter().map(|(track, of)| (track.label.clone(), lane(of))).collect(), lasted.left_out)
    }

    fn named_event(name: &str, start: i64, micros: u64) -> Named {
        (name.to_owned(), start, micros)
    }

    #[test]
    fn activations_have_span_names_and_pauses_a_lane_without_thread() {
        let items = [
            scope(7, 1, 0, 10 * MS, true),
            scope(7, 2, 2 * MS, 3 * MS, false),
            scope(7, 1, 0, 20 * MS, true),
            scope(7, 1, 0, 30 * MS, false),
            scope(7, 3, 40 * MS, MS, true),
            scope(7, 3, 40 * MS, 2 * MS, true),
            pause(MS, MS),
            ended(1, "GET /cart"),
            ended(2, "query"),
        ];
        let (lanes, left_out) = gathered(10, &items);
        let open = format!("{} (not ended)", SpanKey::Id(3));
        let worker = vec![
            named_event("GET /cart", 0, 30_000),
            named_event("query", 2_000, 3_000),
            named_event(&open, 40_000, 2_000),
        ];
        let none = vec![named_event("GarbageCollection G1New", 1_000, 1_000)];
        let labels: Vec<&str> = lanes.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["[no thread]", "[worker tid=7]"]);
        assert_eq!((&lanes[0].1, &lanes[1].1, left_out), (&none, &worker, 0));
    }

    #[test]
    fn longest_events_are_retained_in_any_order_and_others_counted() {
        // Some differ only in their thread.
        let all: Vec<Item> =
            (0..60).map(|at| scope(7 + at % 3, 1, at / 3 % 4 * MS, (at % 7) * MS, false)).collect();
        let (expected, left_out) = gathered(10, &all);
        assert!(left_out >= 50, "{left_out}");
        let kept: Vec<_> = expected.iter().flat_map(|(_, lane)| lane).collect();
        assert!(
            !kept.is_empty() && kept.len() <= 10 && kept.iter().all(|(_, _, micros)| *micros >= 5_000),
            "{kept:?}"
        );
        for turn in [1, 17, 31, 59] {
            let mut turned = all.clone();
            turned.rotate_left(turn);
            turned.swap(3, 40);
            assert_eq!(gathered(10, &turned), (expected.clone(), left_out), "{turn}");
        }
    }

    #[test]
    fn extreme_times_neither_overflow_nor_stretch_chart() {
        let items = [
            // Ends before it starts; overlaps the origin; before the origin; endless; the earliest and
            // latest possible times.
            pause(5 * MS, -3 * MS),
            pause(-2 * MS, 3 * MS),
            pause(-2 * MS, MS),
            pause(MS, i64::MAX),
            pause(i64::MIN, i64::MAX),
            pause(i64::MAX, i64::MAX),
            pause(MS, i64::MIN),
        ];
        let (lanes, left_out) = gathered(10, &items);
        let name = "GarbageCollection G1New";
        assert_eq!(
            lanes[0].1,
            [named_event(name, -2_000, 3_000), named_event(name, 1_000, 0), named_event(name, 5_000, 0)]
        );
        assert_eq!(left_out, 4);
    }
}
