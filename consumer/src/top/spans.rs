//! Spans that currently use most CPU time: samples of the last seconds of a recording in progress, by
//! span name.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jfr_format::error::{Error as ReadError, ErrorKind};
use jfr_format::event::EventRef;
use jfr_format::read::{Class, Decoder, Filter, Item};

use crate::fold;
use crate::warnings::Warnings;

/// Maximum number of spans per turn, and of cached names. Samples of further spans count as outside of
/// spans; the cache of names is cleared when it is full.
const MOST: usize = 50_000;
/// Maximum number of samples and contexts that wait for each other. Beyond that, samples count as outside
/// of spans.
const MOST_WAITING: usize = 1 << 18;
const CONTEXT: &str = "flightline.SampleContext";
const ENDED: &str = "flightline.Span";
const OPEN: &str = "flightline.OpenSpan";

/// A span name and its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name; `None` for samples outside of spans, empty for spans whose end is not recorded yet.
    pub name: Option<Arc<str>>,
    /// Samples while the spans were active.
    pub samples: u64,
    /// Number of spans that ended, and the sum of their durations in ns.
    pub ended: (u64, i64),
}

/// Spans of the last turns, by samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Rows by name.
    pub rows: Vec<Row>,
    /// Number of all samples.
    pub total: u64,
}

#[derive(Debug, Default)]
struct Turn {
    /// Samples by span id; 0 means none.
    samples: HashMap<u64, u64>,
    ended: HashMap<Arc<str>, (u64, i64)>,
}

/// Thread and time.
type Moment = (i64, i64);

/// Adds up samples of the last turns by span, like [`Top`](super::Top) by function.
#[derive(Debug)]
pub struct Spans {
    events: Vec<String>,
    since: i64,
    length: usize,
    turns: VecDeque<Turn>,
    /// Samples of this turn, and those of the turn before that have no context yet.
    waiting: Vec<(Moment, u64, bool)>,
    /// Contexts of this turn and the one before.
    contexts: [HashMap<Moment, u64>; 2],
    names: HashMap<u64, Arc<str>>,
    warnings: Warnings,
}

impl Spans {
    /// Creates a table of the last `length` turns, for samples of the types in `events` (CPU samples if
    /// empty) since `since`, in ns since 1970.
    pub fn new(events: &[String], length: usize, since: i64) -> Self {
        let first = || fold::FIRST_LOADED.iter().map(|&name| name.to_owned()).collect();
        let events = if events.is_empty() { first() } else { fold::event_names(events) };
        let turns = VecDeque::from([Turn::default()]);
        let (waiting, contexts, names) = Default::default();
        let warnings = Warnings::default();
        Self { events, since, length: length.max(1), turns, waiting, contexts, names, warnings }
    }

    /// Configures a decoder to skip other events.
    pub fn select(&self, decoder: &mut Decoder) {
        let events = self.events.clone();
        decoder.set_filter(move |class: &Class| {
            let told = [CONTEXT, ENDED, OPEN].contains(&&*class.name);
            if told || events.iter().any(|event| *event == *class.name) {
                Filter::Constants
            } else {
                Filter::Skip
            }
        });
    }

    /// Processes an item.
    ///
    /// # Errors
    /// The input is not a recording.
    pub fn item(&mut self, item: Item<'_>) -> Result<(), ReadError> {
        match item {
            Item::Events(batch) => {
                for event in batch.events() {
                    if let Err(error) = self.event(&event) {
                        self.warnings.push(error);
                    }
                }
            }
            Item::Warning(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotJfr | ErrorKind::Empty | ErrorKind::HeaderCut { .. }
                ) =>
            {
                return Err(error);
            }
            Item::Warning(warning) => self.warnings.push(warning),
            Item::ChunkStart(_) | Item::ChunkEnd(_) => {}
        }
        Ok(())
    }

    fn event(&mut self, event: &EventRef<'_>) -> Result<(), ReadError> {
        let start = event.start_nanos().unwrap_or(0);
        let number = |name: &str| Ok::<_, ReadError>(event.field(name)?.and_then(|value| value.as_i64()));
        match &*event.class().name {
            CONTEXT => {
                let Some(context) = event.field("context")? else { return Ok(()) };
                let span = context.record()?.map(|context| context.field("spanId")).transpose()?.flatten();
                let span = span.and_then(|span| span.as_i64()).unwrap_or(0).cast_unsigned();
                let moment = (thread(event)?, start);
                if let [now, _] = &mut self.contexts
                    && now.len() < MOST_WAITING
                {
                    now.insert(moment, span);
                }
            }
            name @ (ENDED | OPEN) => {
                let told = event.field("name")?.map(|name| name.text()).transpose()?.flatten();
                let (Some(told), Some(span)) = (told, number("spanId")?) else { return Ok(()) };
                if self.names.len() >= MOST {
                    self.names.clear();
                }
                let told: Arc<str> = told.into();
                self.names.insert(span.cast_unsigned(), told.clone());
                if let (ENDED, Some(turn)) = (name, self.turns.back_mut())
                    && start >= self.since
                    && (turn.ended.len() < MOST || turn.ended.contains_key(&told))
                {
                    let ticks = number("duration")?.unwrap_or(0).max(0);
                    let ended = turn.ended.entry(told).or_default();
                    ended.0 += 1;
                    ended.1 = ended.1.saturating_add(event.chunk().span_nanos(ticks));
                }
            }
            _ if start >= self.since => {
                let weight = number("samples")?
                    .map_or(1, |samples| samples.clamp(0, i64::from(i32::MAX)).cast_unsigned());
                // Samples of other producers contain their span.
                let own = number("spanId")?.unwrap_or(0).cast_unsigned();
                if own != 0 || self.waiting.len() >= MOST_WAITING {
                    self.spent(own, weight);
                } else {
                    let moment = (thread(event)?, start);
                    self.waiting.push((moment, weight, false));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn spent(&mut self, span: u64, weight: u64) {
        if let Some(turn) = self.turns.back_mut() {
            let span = if turn.samples.len() < MOST { span } else { 0 };
            *turn.samples.entry(span).or_default() += weight;
        }
    }

    /// Ends a turn. Returns the table of the last turns, and the warnings of this one. If `last` is true,
    /// no input follows.
    pub fn turn(&mut self, last: bool) -> (Table, Warnings) {
        for (moment, weight, old) in std::mem::take(&mut self.waiting) {
            let context = self.contexts.iter().find_map(|contexts| contexts.get(&moment)).copied();
            match context {
                None if !old && !last => self.waiting.push((moment, weight, true)),
                context => self.spent(context.unwrap_or(0), weight),
            }
        }
        let [now, before] = &mut self.contexts;
        *before = std::mem::take(now);
        let table = self.table();
        self.turns.push_back(Turn::default());
        if self.turns.len() > self.length {
            self.turns.pop_front();
        }
        (table, std::mem::take(&mut self.warnings))
    }

    fn table(&self) -> Table {
        let mut rows: HashMap<Option<Arc<str>>, Row> = HashMap::new();
        let mut table = Table::default();
        let row = |name: &Option<Arc<str>>| Row { name: name.clone(), samples: 0, ended: (0, 0) };
        for turn in &self.turns {
            for (span, samples) in &turn.samples {
                let name = (*span != 0).then(|| self.names.get(span).cloned().unwrap_or_default());
                rows.entry(name.clone()).or_insert_with(|| row(&name)).samples += samples;
                table.total += samples;
            }
            for (name, (count, nanos)) in &turn.ended {
                let name = Some(name.clone());
                let row = rows.entry(name.clone()).or_insert_with(|| row(&name));
                row.ended = (row.ended.0 + count, row.ended.1.saturating_add(*nanos));
            }
        }
        table.rows = rows.into_values().collect();
        table.rows.sort_unstable_by(|a, b| (b.samples, b.ended, &a.name).cmp(&(a.samples, a.ended, &b.name)));
        table
    }
}

/// Returns the id of an event's thread; 0 if it has none.
fn thread(event: &EventRef<'_>) -> Result<i64, ReadError> {
    for name in ["eventThread", "sampledThread"] {
        if let Some(value) = event.field(name)? {
            let id = value.record()?.map(|thread| thread.field("osThreadId")).transpose()?.flatten();
            return Ok(id.and_then(|id| id.as_i64()).unwrap_or(0));
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(spans: &mut Spans, samples: &[(Moment, u64)], contexts: &[(Moment, u64)]) -> Vec<(String, u64)> {
        spans.waiting.extend(samples.iter().map(|(moment, weight)| (*moment, *weight, false)));
        spans.contexts[0].extend(contexts.iter().copied());
        let (table, _) = spans.turn(false);
        assert_eq!(table.total, table.rows.iter().map(|row| row.samples).sum::<u64>());
        let name = |row: &Row| row.name.as_deref().unwrap_or("none").to_owned();
        table.rows.iter().map(|row| (name(row), row.samples)).collect()
    }

    #[test]
    fn samples_are_attributed_to_span_names_within_window() {
        let mut spans = Spans::new(&[], 3, 0);
        let row = |name: &str, samples| (name.to_owned(), samples);
        spans.names.insert(7, "cart".into());
        // One sample whose context arrives in the next turn, one without context, one whose span has not
        // ended.
        let first = turn(
            &mut spans,
            &[((1, 10), 5), ((1, 20), 1), ((2, 20), 1), ((1, 30), 2)],
            &[((1, 10), 7), ((1, 30), 8)],
        );
        assert_eq!(first, [row("cart", 5), row("", 2)]);
        assert_eq!(turn(&mut spans, &[], &[((1, 20), 7)]), [row("cart", 6), row("", 2), row("none", 1)]);
        spans.names.insert(8, "order".into());
        assert_eq!(turn(&mut spans, &[], &[]), [row("cart", 6), row("order", 2), row("none", 1)]);
        assert_eq!(turn(&mut spans, &[], &[]), [row("none", 1), row("cart", 1)]);
        assert_eq!(turn(&mut spans, &[], &[]), []);
        spans.waiting.push(((3, 10), 4, false));
        assert_eq!(spans.turn(true).0.total, 4, "nothing follows");
    }
}
