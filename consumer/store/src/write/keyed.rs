//! Converts the samples of a whole chunk to rows. Shared values are mapped to indices once per chunk, not
//! once per sample.

use std::collections::HashMap;

use flightline_consumer::live::keyed::{self, Keyed};
use flightline_consumer::model::Unit;
use jfr_format::pool::KeyHash;

use super::rows::{MOST_ROWS, NONE, Row, Rows, Shared, number};

/// Maps the chunk's indices to those of the file.
struct Numbers {
    events: Vec<u32>,
    threads: Vec<u32>,
    stacks: Vec<u32>,
    /// Stacks that end in an object's class, by the chunk's indices of both.
    with_class: HashMap<(u32, u32), u32, KeyHash>,
    states: Vec<u32>,
    variants: Vec<u32>,
    contexts: Vec<u32>,
    no_stack: u32,
    no_span: u32,
}

impl Rows {
    /// Adds rows of a chunk starting at `from` until the file is full; returns where it stopped.
    pub(super) fn keyed(&mut self, of: &Keyed, from: usize, shared: &Shared) -> usize {
        let rest = of.rows.get(from..).unwrap_or_default();
        if rest.is_empty() {
            return of.rows.len();
        }
        let mut numbers = self.numbers(of, rest, shared);
        self.classes(of, rest, &mut numbers);
        let mut at = from;
        self.rows.reserve(rest.len().min(MOST_ROWS));
        // Add at least one part, so that the loop terminates.
        for part in rest.chunks(1 << 16) {
            for row in part {
                let row = numbers.row(of, row, self.chunks.len().saturating_sub(1) as u32);
                self.rows.push(row);
            }
            at += part.len();
            if self.full() {
                break;
            }
        }
        self.settled = self.rows.len();
        at
    }

    /// Adds the stacks that end in a class.
    fn classes(&mut self, of: &Keyed, rows: &[keyed::Row], numbers: &mut Numbers) {
        for row in rows {
            if let Some(Some(class)) = of.classes.get(row.class as usize) {
                let stack = numbers.stack(row);
                let end = numbers.with_class.entry((row.stack, row.class));
                end.or_insert_with(|| self.dictionary.with_class(stack, class));
            }
        }
    }

    fn numbers(&mut self, of: &Keyed, rows: &[keyed::Row], shared: &Shared) -> Numbers {
        // Only map values that these rows use, since a part of the chunk may be in another file.
        let used = |count: usize, place: fn(&keyed::Row) -> u32| {
            let mut used = vec![false; count];
            for row in rows {
                if let Some(used) = used.get_mut(place(row) as usize) {
                    *used = true;
                }
            }
            used
        };
        let stacks = of.stacks.iter().zip(used(of.stacks.len(), |row| row.stack));
        let contexts = of.contexts.iter().zip(used(of.contexts.len(), |row| row.context));
        let no_span = self.no_span(shared);
        let no_stack = self.dictionary.no_stack();
        let mut frames: Vec<Option<i64>> = vec![None; of.frames.len()];
        let mut ids = Vec::new();
        Numbers {
            events: of.kinds.iter().map(|kind| self.events.number(&kind.event)).collect(),
            threads: of
                .threads
                .iter()
                .map(|thread| thread.as_ref().map_or(NONE, |thread| self.thread(thread)))
                .collect(),
            no_stack,
            stacks: stacks
                .map(|(stack, used)| match stack {
                    Some(stack) if used => {
                        let dictionary = &mut self.dictionary;
                        ids.clear();
                        ids.extend(of.steps(stack).iter().rev().map(|&step| {
                            *frames[step as usize].get_or_insert_with(|| {
                                dictionary.frame(&of.frames[step as usize], shared.lines)
                            })
                        }));
                        dictionary.path(ids.iter().copied(), stack.truncated)
                    }
                    _ => no_stack,
                })
                .collect(),
            with_class: HashMap::default(),
            states: of.states.iter().map(|state| self.states.maybe(state.as_ref())).collect(),
            variants: of.variants.iter().map(|variant| self.variants.maybe(variant.as_ref())).collect(),
            contexts: contexts
                .map(|(span, used)| match span {
                    Some(span) if used => self.span(span, shared),
                    _ => no_span,
                })
                .collect(),
            no_span,
        }
    }
}

impl Numbers {
    /// Returns the stack of a row without its class.
    fn stack(&self, row: &keyed::Row) -> u32 {
        self.stacks.get(row.stack as usize).copied().unwrap_or(self.no_stack)
    }

    #[inline]
    fn row(&self, of: &Keyed, row: &keyed::Row, chunk: u32) -> Row {
        let at = |list: &[u32], place: u32, or: u32| list.get(place as usize).copied().unwrap_or(or);
        let kind = &of.kinds[row.kind as usize];
        let samples = number(row.samples);
        let (value, unit) = match (kind.unit, kind.period) {
            (Unit::Samples, Some(period)) => (number(period).saturating_mul(samples), Unit::Nanoseconds),
            (Unit::Samples, None) => (samples, Unit::Samples),
            (unit, _) => (number(row.value), unit),
        };
        Row {
            ts: row.epoch_nanos.div_euclid(1000),
            samples,
            value,
            duration: if kind.lasts { number(row.duration_nanos) } else { -1 },
            stack: match row.class {
                keyed::NONE => self.stack(row),
                class => self.with_class.get(&(row.stack, class)).copied().unwrap_or_else(|| self.stack(row)),
            },
            event: self.events[row.kind as usize],
            variant: at(&self.variants, row.variant, NONE),
            state: at(&self.states, row.state, NONE),
            thread: at(&self.threads, row.thread, NONE),
            context: at(&self.contexts, row.context, self.no_span),
            chunk,
            unit,
        }
    }
}
