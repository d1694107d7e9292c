//! Converts events to rows in one pass.
//!
//! For each event type of a chunk, the fields that plans need are determined once. An event then only
//! costs the decoding of those fields, and constants are resolved once per chunk.

mod parallel;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jfr_format::error::Error;
use jfr_format::event::EventRef;
use jfr_format::pool::KeyHash;
use jfr_format::read::{Batch, Chunk, Class, Item};

use super::datum::Datum;
use super::definition::{Condition, Take};
use super::path::{Binder, Fields, Lookup, Raw, Source};
use super::plan::Plan;
use super::rows::{Room, Rows, cut_lists};
use super::table::Table;
use crate::decode::SETTING;
use crate::warnings::Warnings;

/// Selects events and limits rows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Maximum number of rows; overrides that of the view.
    pub limit: Option<usize>,
    /// Earliest event, in ns since 1970.
    pub from_nanos: Option<i64>,
    /// Latest event, in ns since 1970.
    pub to_nanos: Option<i64>,
    /// Event types to show as tables of their fields, in addition to the plans; by full or short name.
    pub event_types: Vec<String>,
    /// Show all event types as tables of their fields, in addition to the plans.
    pub all_event_types: bool,
}

/// Builds tables from the items of a decoder.
#[derive(Debug)]
pub struct Viewer {
    options: Options,
    rows: Vec<Rows>,
    /// Plans of the event types that are shown as tables of their fields.
    own: HashMap<String, usize>,
    classes: Vec<Option<Bound>>,
    /// Number of events by type, shown or not.
    counts: BTreeMap<String, u64>,
    declared: BTreeSet<String>,
    /// By event type: whether it was enabled according to the latest setting, and its threshold.
    enabled: BTreeMap<String, Enabled>,
    lookup: Lookup,
    room: Room,
    warnings: Warnings,
}

/// An event type of the current chunk.
#[derive(Debug)]
struct Bound {
    fields: Fields,
    start: Option<usize>,
    uses: Vec<Use>,
    events: u64,
    is_setting: bool,
}

/// Settings of an event type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enabled {
    /// True if it was enabled; `None` if the recording does not state it.
    pub is_enabled: Option<bool>,
    /// Threshold of recorded durations, e.g. `20 ms`.
    pub threshold: Option<String>,
}

/// Maximum number of event types with stored settings; real recordings have some hundreds.
const MOST_SETTINGS: usize = 1 << 12;

/// Stores the settings `enabled` and `threshold` from a `jdk.ActiveSetting` event.
fn note_setting(all: &mut BTreeMap<String, Enabled>, event: &EventRef<'_>) {
    let text = |name: &str| {
        let text = event.field(name).ok().flatten().and_then(|value| value.text().ok().flatten());
        text.map(|text| text.into_owned())
    };
    let id = event.field("id").ok().flatten().and_then(|id| id.as_i64());
    let of = id.and_then(|id| event.chunk().types.by_id(id.cast_unsigned()));
    let (Some(of), Some(name), Some(value)) = (of, text("name"), text("value")) else { return };
    if all.len() >= MOST_SETTINGS && !all.contains_key(&*of.name) {
        return;
    }
    match name.as_str() {
        "enabled" => all.entry(of.name.to_string()).or_default().is_enabled = Some(value == "true"),
        "threshold" => {
            all.entry(of.name.to_string()).or_default().threshold =
                Some(value).filter(|value| value.len() < 64)
        }
        _ => {}
    }
}

/// Maximum number of cached raw keys; a damaged event can have any key.
const MAX_KNOWN: usize = 1 << 16;

/// Number of events between checks of the lists' size.
const CUT_AFTER: usize = 4096;

/// The raw keys of an event; views have at most three.
type RawKeys = (u64, u64, u64);

/// How a plan uses an event type.
#[derive(Debug)]
struct Use {
    plan: usize,
    is_list: bool,
    latest_only: bool,
    keys: Vec<ColumnPlan>,
    others: Vec<ColumnPlan>,
    /// Rows by the raw keys of the current chunk.
    known: HashMap<RawKeys, usize, KeyHash>,
    /// The generation of rows for which `known` is valid.
    generation: u64,
    live: Option<Live>,
}

/// A column.
#[derive(Debug)]
struct ColumnPlan {
    column: usize,
    source: Source,
    counts: bool,
    when: Option<(Source, Condition)>,
}

#[derive(Debug)]
struct Live {
    address: Source,
    size: Source,
    frees: bool,
}

impl Viewer {
    /// Creates a viewer.
    pub fn new(plans: Vec<Plan>, options: Options) -> Self {
        let mut rows = Vec::new();
        for plan in plans {
            let second = (!plan.instead.is_empty()).then(|| {
                let (events, instead) = (plan.instead.clone(), plan.events.clone());
                Plan { events, instead, ..plan.clone() }
            });
            rows.push(Rows::new(plan, options.limit));
            rows.extend(second.map(|plan| Rows::new(plan, options.limit).into_fallback()));
        }
        Self {
            options,
            rows,
            own: HashMap::new(),
            classes: Vec::new(),
            counts: BTreeMap::new(),
            declared: BTreeSet::new(),
            enabled: BTreeMap::new(),
            lookup: Lookup::default(),
            room: Room::default(),
            warnings: Warnings::default(),
        }
    }

    /// Processes an item.
    pub fn take(&mut self, item: Item<'_>) {
        match item {
            Item::ChunkStart(_) => self.next_chunk(),
            Item::Events(batch) => self.batch(&batch),
            Item::ChunkEnd(end) => self.count(end.chunk),
            Item::Warning(warning) => self.warnings.push(warning),
        }
    }

    /// Returns the warnings since the last call.
    pub fn take_warnings(&mut self) -> Warnings {
        std::mem::take(&mut self.warnings)
    }

    /// Returns the number of events by type in finished chunks.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Returns the event types declared in finished chunks.
    pub fn declared(&self) -> &BTreeSet<String> {
        &self.declared
    }

    /// Returns the settings in the recording (`jdk.ActiveSetting`), by event type.
    pub fn take_enabled(&mut self) -> BTreeMap<String, Enabled> {
        std::mem::take(&mut self.enabled)
    }

    /// Restricts further events to this time range, in ns since 1970.
    pub fn between(&mut self, from_nanos: Option<i64>, to_nanos: Option<i64>) {
        self.options.from_nanos = from_nanos;
        self.options.to_nanos = to_nanos;
    }

    /// Returns the tables: first those of the plans in order, then those of event types by name.
    pub fn finish(mut self) -> Vec<Table> {
        cut_lists(&mut self.rows);
        let own: Vec<usize> = self.own.values().copied().collect();
        let (mut tables, mut of_types) = (Vec::new(), Vec::new());
        for (at, rows) in self.rows.into_iter().enumerate() {
            let to = if own.contains(&at) { &mut of_types } else { &mut tables };
            if rows.in_place {
                let first: Option<&mut Table> = to.last_mut();
                if let Some(first) = first.filter(|first| first.events == 0 && rows.seen > 0) {
                    *first = rows.finish();
                }
            } else {
                to.push(rows.finish());
            }
        }
        of_types.sort_by(|a: &Table, b: &Table| a.name.cmp(&b.name));
        tables.append(&mut of_types);
        tables
    }

    fn next_chunk(&mut self) {
        self.classes.clear();
        self.lookup.next_chunk();
    }

    fn count(&mut self, chunk: &Chunk) {
        for class in chunk.types.classes().iter().filter(|class| class.is_event()) {
            if !self.declared.contains(&*class.name) {
                self.declared.insert(class.name.to_string());
            }
        }
        for (class, bound) in chunk.types.classes().iter().zip(&mut self.classes) {
            let Some(bound) = bound else { continue };
            let events = std::mem::take(&mut bound.events);
            if events > 0 {
                *self.counts.entry(class.name.to_string()).or_default() += events;
            }
        }
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        let mut raw = Vec::new();
        for (number, event) in batch.events().enumerate() {
            if number % CUT_AFTER == 0 {
                cut_lists(&mut self.rows);
            }
            let at = event.class_index().index();
            if at >= self.classes.len() {
                self.classes.resize_with(at + 1, || None);
            }
            if self.classes[at].is_none() {
                self.classes[at] = Some(self.bind(event.chunk(), event.class()));
            }
            let Some(bound) = &mut self.classes[at] else { continue };
            if bound.is_setting {
                self.lookup.setting(&event);
                note_setting(&mut self.enabled, &event);
            }
            if bound.uses.is_empty() {
                bound.events += 1;
                continue;
            }
            let outcome = self.event(at, &event, &mut raw);
            if let Err(warning) = outcome {
                self.warnings.push(warning);
            }
        }
        for rows in &mut self.rows {
            rows.settle();
        }
    }

    fn bind(&mut self, chunk: &Chunk, class: &Class) -> Bound {
        let short = class.name.rsplit('.').next().unwrap_or_default();
        let asked = |name: &String| *name == *class.name || name == short;
        let wanted = self.options.all_event_types || self.options.event_types.iter().any(asked);
        if wanted && !self.own.contains_key(&*class.name) {
            self.own.insert(class.name.to_string(), self.rows.len());
            self.rows.push(Rows::new(Plan::from_class(class, &chunk.types), self.options.limit));
        }
        let mut binder = Binder::new(chunk, class);
        let start = binder.start();
        let mut uses = Vec::new();
        for (at, rows) in self.rows.iter().enumerate() {
            if rows.plan.wants(&class.name) {
                uses.extend(bind_plan(&mut binder, &class.name, at, &rows.plan));
            }
        }
        let is_setting = &*class.name == SETTING;
        Bound { fields: binder.finish(), start, uses, events: 0, is_setting }
    }

    fn event<'a>(&mut self, at: usize, event: &EventRef<'a>, raw: &mut Vec<Raw<'a>>) -> Result<(), Error> {
        let Self { options, rows, classes, lookup, room, .. } = self;
        let Some(Some(bound)) = classes.get_mut(at) else { return Ok(()) };
        bound.fields.read(event, raw)?;
        let ticks = bound.start.and_then(|slot| raw.get(slot)).and_then(|raw| match raw {
            Raw::Bits(bits) => Some(*bits as i64),
            Raw::Value(value) => value.as_i64(),
            Raw::None => None,
        });
        let time = ticks.map_or(0, |ticks| event.chunk().epoch_nanos(ticks));
        let early = options.from_nanos.is_some_and(|from| time < from);
        if early || options.to_nanos.is_some_and(|to| time > to) {
            return Ok(());
        }
        bound.events += 1;
        let mut reader = Reader { event, fields: &bound.fields, raw, lookup, room };
        for using in &mut bound.uses {
            if let Some(rows) = rows.get_mut(using.plan) {
                reader.add(using, rows, time)?;
            }
        }
        Ok(())
    }
}

/// Returns how `plan` uses events of the type `name`; `None` if they change no row.
fn bind_plan(binder: &mut Binder<'_>, name: &str, at: usize, plan: &Plan) -> Option<Use> {
    let (mut keys, mut others) = (Vec::new(), Vec::new());
    let mut frees = false;
    for (column, wanted) in plan.columns.iter().enumerate() {
        let foreign = !wanted.of.is_empty() && !wanted.of.iter().any(|of| of == name);
        if foreign {
            // Events without a row of their own can only free allocations.
            frees |= wanted.take == Take::Key && plan.counts_live();
            if wanted.take == Take::Key && !frees {
                return None;
            }
            continue;
        }
        let counts = wanted.take == Take::Count && wanted.path.is_empty();
        let source = if counts { Source::Missing } else { binder.source(&wanted.path) };
        let when = wanted.when.map(|condition| (binder.source(condition.path), condition));
        let to = if wanted.take == Take::Key { &mut keys } else { &mut others };
        to.push(ColumnPlan { column, source, counts, when });
    }
    let live = plan.counts_live().then(|| Live {
        address: binder.source("address"),
        size: binder.source("size"),
        frees: frees || name == "profiler.Free",
    });
    let latest_only = plan.latest.as_deref() == Some(name);
    Some(Use {
        plan: at,
        is_list: plan.is_list(),
        latest_only,
        keys,
        others,
        known: HashMap::default(),
        generation: 0,
        live,
    })
}

/// State while an event is processed.
struct Reader<'r, 'a> {
    event: &'r EventRef<'a>,
    fields: &'r Fields,
    raw: &'r [Raw<'a>],
    lookup: &'r mut Lookup,
    room: &'r mut Room,
}

impl Reader<'_, '_> {
    fn datum(&mut self, source: &Source) -> Result<Datum, Error> {
        self.lookup.datum(self.event, self.fields, self.raw, source)
    }

    fn number(&mut self, source: &Source) -> Result<i64, Error> {
        Ok(match self.datum(source)? {
            Datum::Int(number, _) => number,
            _ => 0,
        })
    }

    fn counts(&mut self, when: &Option<(Source, Condition)>) -> Result<bool, Error> {
        match when {
            Some((source, condition)) => Ok(self.datum(source)?.is_text(condition.text) == condition.equal),
            None => Ok(true),
        }
    }

    fn add(&mut self, using: &mut Use, rows: &mut Rows, time: i64) -> Result<(), Error> {
        for key in &using.keys {
            if !self.counts(&key.when)? {
                return Ok(());
            }
        }
        rows.seen += 1;
        if !using.latest_only {
            rows.any_moment();
        } else if !rows.is_latest_moment(time, self.room) {
            return Ok(());
        }
        if using.is_list && rows.is_closed() {
            rows.leave_out();
            return Ok(());
        }
        if using.is_list {
            let row =
                using.others.iter().map(|wanted| self.datum(&wanted.source)).collect::<Result<_, _>>()?;
            rows.push(time, row);
            return Ok(());
        }
        if let Some(live) = using.live.as_ref().filter(|live| live.frees) {
            let address = self.number(&live.address)?;
            rows.freed(address, time);
            if using.keys.is_empty() && !using.others.iter().any(|wanted| wanted.counts) {
                return Ok(());
            }
        }
        let Some(row) = self.row(using, rows)? else { return Ok(()) };
        for wanted in &using.others {
            if !self.counts(&wanted.when)? {
                continue;
            }
            let value = if wanted.counts { Datum::Bool(true) } else { self.datum(&wanted.source)? };
            if let Some(cell) = rows.cell(row, wanted.column) {
                cell.add(&value, time);
            }
        }
        if let Some(live) = using.live.as_ref().filter(|live| !live.frees) {
            let (address, size) = (self.number(&live.address)?, self.number(&live.size)?);
            rows.allocated(address, time, row, size);
        }
        Ok(())
    }

    /// Returns the row of the event. Its keys are resolved once per chunk.
    fn row(&mut self, using: &mut Use, rows: &mut Rows) -> Result<Option<usize>, Error> {
        if using.generation != rows.generation {
            using.generation = rows.generation;
            using.known.clear();
        }
        let bits = self.raw_keys(&using.keys);
        if let Some(&row) = bits.and_then(|bits| using.known.get(&bits)) {
            return Ok(Some(row));
        }
        let key = |key: &ColumnPlan| self.datum(&key.source).map(Datum::grouped);
        let keys = using.keys.iter().map(key).collect::<Result<_, _>>()?;
        let row = rows.row(keys, self.room);
        if let (Some(row), Some(bits)) = (row, bits) {
            if using.known.len() >= MAX_KNOWN {
                using.known.clear();
            }
            using.known.insert(bits, row);
        }
        Ok(row)
    }

    /// Returns `None` if equal bits may have different meanings.
    fn raw_keys(&self, keys: &[ColumnPlan]) -> Option<RawKeys> {
        let bits = |at: usize| match keys.get(at).map(|key| &key.source) {
            Some(Source::Field { slot, .. }) => self.raw.get(*slot).and_then(Raw::bits),
            Some(Source::Missing | Source::Fixed(_)) | None => Some(0),
            // The interval may become known with the next event.
            Some(Source::Samples { .. }) => None,
        };
        let all = (bits(0)?, bits(1)?, bits(2)?);
        (keys.len() <= 3).then_some(all)
    }
}
