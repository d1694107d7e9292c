//! Functions that currently use most CPU time: those of the last seconds of a recording in progress.

pub mod spans;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jfr_format::error::Error as ReadError;
use jfr_format::read::{Decoder, Item};

use crate::fold::{self, FoldOptions};
use crate::load::{LoadOptions, Loader};
use crate::warnings::Warnings;

/// Maximum number of functions stored per turn; others are only in the totals.
const MOST: usize = 20_000;

/// A function and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name.
    pub function: Arc<str>,
    /// Library, if it is native.
    pub module: Option<Arc<str>>,
    /// Weight of the stacks that end in it.
    pub own: u64,
    /// Weight of the stacks that contain it.
    pub total: u64,
}

/// The functions of the last turns, by own weight.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The functions.
    pub rows: Vec<Row>,
    /// Weight of all samples.
    pub total: u64,
    /// Unit of the weights.
    pub unit: &'static str,
}

type Name = (Arc<str>, Option<Arc<str>>);

#[derive(Debug, Default)]
struct Turn {
    functions: HashMap<Name, (u64, u64)>,
    total: u64,
    unit: &'static str,
}

/// Adds up samples of the last turns. The caller defines a turn, for example as a second.
///
/// It processes the items of decoders with [`Delivery::Streaming`](jfr_format::read::Delivery::Streaming),
/// also of several in turn.
#[derive(Debug)]
pub struct Top {
    events: Vec<String>,
    turns: VecDeque<Turn>,
    length: usize,
    /// Samples before this time, in ns since 1970, are ignored.
    since: i64,
    loader: Loader,
}

impl Top {
    /// Creates a table of the last `length` turns, for samples of the types in `events` (CPU samples if
    /// empty) since `since`, in ns since 1970.
    pub fn new(events: Vec<String>, length: usize, since: i64) -> Self {
        let loader = Loader::since_epoch(options(&events, since));
        Self { events, turns: VecDeque::new(), length: length.max(1), since, loader }
    }

    /// Configures a decoder to skip other events.
    pub fn select(&self, decoder: &mut Decoder) {
        decoder.set_filter(options(&self.events, self.since).event_filter());
    }

    /// Processes an item.
    ///
    /// # Errors
    /// The input is not a recording.
    pub fn item(&mut self, item: Item<'_>) -> Result<(), ReadError> {
        let Item::Events(batch) = item else { return self.loader.take(item) };
        let chunk = batch.chunk();
        self.loader.take(Item::Events(batch))?;
        self.loader.settle(chunk);
        Ok(())
    }

    /// Ends a turn. Returns the table of the last turns, and the warnings of this one.
    pub fn turn(&mut self) -> (Table, Warnings) {
        let loader =
            std::mem::replace(&mut self.loader, Loader::since_epoch(options(&self.events, self.since)));
        let loaded = loader.finish();
        let mut turn = Turn::default();
        if !loaded.model.samples.is_empty() {
            let options =
                FoldOptions { events: self.events.clone(), split_modules: true, ..FoldOptions::default() };
            let Ok(mut functions) = fold::functions(&loaded.model, &options) else {
                // The turn has other events of the type, but none of the requested ones.
                return self.end(turn, loaded.warnings);
            };
            functions.functions.sort_unstable_by_key(|f| std::cmp::Reverse((f.own, f.total)));
            (turn.total, turn.unit) = (functions.total, functions.unit);
            for function in functions.functions.into_iter().take(MOST) {
                let of = turn.functions.entry((function.label.text, function.label.module)).or_default();
                of.0 += function.own;
                of.1 += function.total;
            }
        }
        self.end(turn, loaded.warnings)
    }

    fn end(&mut self, turn: Turn, warnings: Warnings) -> (Table, Warnings) {
        self.turns.push_back(turn);
        if self.turns.len() > self.length {
            self.turns.pop_front();
        }
        (self.table(), warnings)
    }

    fn table(&self) -> Table {
        let mut sum: HashMap<&Name, (u64, u64)> = HashMap::new();
        let mut table = Table { unit: "samples", ..Table::default() };
        for turn in self.turns.iter().filter(|turn| turn.total > 0) {
            (table.total, table.unit) = (table.total + turn.total, turn.unit);
            for (name, (own, total)) in &turn.functions {
                let of = sum.entry(name).or_default();
                of.0 += own;
                of.1 += total;
            }
        }
        let row = |((function, module), (own, total)): (&Name, (u64, u64))| Row {
            function: function.clone(),
            module: module.clone(),
            own,
            total,
        };
        table.rows = sum.into_iter().map(row).collect();
        table.rows.sort_unstable_by(|a, b| {
            (b.own, b.total).cmp(&(a.own, a.total)).then_with(|| a.function.cmp(&b.function))
        });
        table
    }
}

fn options(events: &[String], since: i64) -> LoadOptions {
    let first = || fold::FIRST_LOADED.iter().map(|&name| name.to_owned()).collect();
    let events = if events.is_empty() { first() } else { fold::event_names(events) };
    LoadOptions { events, from_nanos: Some(since), ..LoadOptions::default() }
}
