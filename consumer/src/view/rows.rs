//! Rows of one plan while events come in.

use std::collections::HashMap;
use std::rc::Rc;

use super::accumulator::Accumulator;
use super::datum::{Datum, Unit};
use super::definition::{Order, Take};
use super::plan::Plan;
use super::table::{Heading, Table};

/// Groups told apart; events of further ones are counted.
const MAX_GROUPS: usize = 1 << 18;
/// Rows of a list that are kept unless there is a limit; further ones are counted.
const MAX_LISTED: usize = 1 << 18;
/// Allocations not freed yet that are kept.
const MAX_LIVE: usize = 1 << 22;

/// What has come together for one plan.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) plan: Plan,
    /// Events taken in.
    pub(super) seen: u64,
    /// To be shown only if the rows before have seen no events.
    pub(super) in_place: bool,
    /// Events or rows there was no room for.
    more: u64,
    groups: HashMap<Rc<[Datum]>, usize>,
    keys: Vec<Rc<[Datum]>>,
    cells: Vec<Vec<Accumulator>>,
    list: Vec<(i64, Vec<Datum>)>,
    limit: Option<usize>,
    /// Of the plan's `latest` event type: when.
    moment: i64,
    /// How often the rows have been cleared.
    pub(super) generation: u64,
    live: Live,
}

impl Rows {
    /// Without any row.
    pub(super) fn new(plan: Plan, limit: Option<usize>) -> Self {
        let limit = limit.or(plan.limit);
        Self {
            plan,
            seen: 0,
            in_place: false,
            more: 0,
            groups: HashMap::new(),
            keys: Vec::new(),
            cells: Vec::new(),
            list: Vec::new(),
            limit,
            moment: i64::MIN,
            generation: 0,
            live: Live::default(),
        }
    }

    /// The same, to be shown only if the rows before have seen no events.
    pub(super) fn in_place_of_the_one_before(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// The row of these keys; `None` if there are too many.
    pub(super) fn row(&mut self, keys: Vec<Datum>) -> Option<usize> {
        if let Some(&row) = self.groups.get(&*keys) {
            return Some(row);
        }
        if self.keys.len() >= MAX_GROUPS {
            self.more += 1;
            return None;
        }
        let keys: Rc<[Datum]> = keys.into();
        self.groups.insert(keys.clone(), self.keys.len());
        self.keys.push(keys);
        self.cells.push(self.plan.columns.iter().map(|column| Accumulator::new(column.take)).collect());
        Some(self.keys.len() - 1)
    }

    /// The cell in `row` and `column`.
    pub(super) fn cell(&mut self, row: usize, column: usize) -> Option<&mut Accumulator> {
        self.cells.get_mut(row)?.get_mut(column)
    }

    /// Whether an event of the type of which only the latest moment counts is to be taken in; a later moment than any
    /// before clears the rows.
    pub(super) fn is_latest_moment(&mut self, time: i64) -> bool {
        if time > self.moment && self.moment != i64::MIN {
            self.groups.clear();
            self.keys.clear();
            self.cells.clear();
            self.generation += 1;
        }
        let counts = time >= self.moment;
        self.moment = self.moment.max(time);
        counts
    }

    /// Adds a row of a list.
    pub(super) fn push(&mut self, time: i64, row: Vec<Datum>) {
        self.list.push((time, row));
        let Some(limit) = self.limit else {
            if self.list.len() > MAX_LISTED {
                self.list.pop();
                self.more += 1;
            }
            return;
        };
        // Twice the rows before the worse half goes: each row is looked at a constant number of times.
        if self.list.len() > limit.saturating_mul(2).max(1024) {
            self.sort_list();
            self.more += (self.list.len() - limit) as u64;
            self.list.truncate(limit);
        }
    }

    /// Notes an allocation in `row`.
    pub(super) fn allocated(&mut self, address: i64, time: i64, row: usize, size: i64) {
        self.live.waiting.push((time, address, Some((row, size))));
    }

    /// Notes that what was at `address` is free.
    pub(super) fn freed(&mut self, address: i64, time: i64) {
        self.live.waiting.push((time, address, None));
    }

    /// All events of a batch have been seen.
    pub(super) fn settle(&mut self) {
        self.live.settle();
    }

    fn sort_list(&mut self) {
        match self.plan.order {
            Some(Order::Up(at)) => self.list.sort_by(|(_, a), (_, b)| a.get(at).cmp(&b.get(at))),
            Some(Order::Down(at)) => self.list.sort_by(|(_, a), (_, b)| b.get(at).cmp(&a.get(at))),
            None => self.list.sort_by_key(|&(time, _)| time),
        }
    }

    /// The table.
    pub(super) fn finish(mut self) -> Table {
        let is_list = self.plan.is_list();
        let mut rows = if is_list {
            self.sort_list();
            std::mem::take(&mut self.list).into_iter().map(|(_, row)| row).collect()
        } else {
            self.groups_finished()
        };
        if !is_list {
            sort(&mut rows, &self.plan);
        }
        let limit = self.limit.unwrap_or(usize::MAX);
        let more = self.more + rows.len().saturating_sub(limit) as u64;
        let headings = headings(&self.plan, &rows);
        rows.truncate(limit);
        Table {
            name: self.plan.name.clone(),
            title: self.plan.title.clone(),
            headings,
            form: self.plan.is_form(),
            more,
            events: self.seen,
            needs: self.plan.events.clone(),
            explained: self.plan.explain(),
            rows,
        }
    }

    fn groups_finished(&mut self) -> Vec<Vec<Datum>> {
        let is_live = |take| matches!(take, Take::LiveCount | Take::LiveSum);
        let of_live: Vec<usize> =
            (0..self.plan.columns.len()).filter(|&at| is_live(self.plan.columns[at].take)).collect();
        for &(_, row, size) in self.live.held.values() {
            for &column in &of_live {
                if let Some(cell) = self.cells.get_mut(row).and_then(|cells| cells.get_mut(column)) {
                    cell.live(size);
                }
            }
        }
        self.more += self.live.lost;
        let mut rows = Vec::with_capacity(self.keys.len());
        for (keys, cells) in std::mem::take(&mut self.keys).into_iter().zip(std::mem::take(&mut self.cells)) {
            let mut keys = keys.iter().cloned();
            let row = cells.into_iter().zip(&self.plan.columns).map(|(cell, column)| match column.take {
                Take::Key => keys.next().unwrap_or_default(),
                _ => cell.finish(),
            });
            rows.push(row.collect());
        }
        shares(&mut rows, &self.plan);
        rows
    }
}

/// Turns what is shown as a part of the whole into that part.
fn shares(rows: &mut [Vec<Datum>], plan: &Plan) {
    for (at, _) in plan.columns.iter().enumerate().filter(|(_, column)| column.share) {
        let number = |row: &Vec<Datum>| row.get(at).and_then(Datum::number).unwrap_or(0.0);
        let whole: f64 = rows.iter().map(number).sum();
        for row in rows.iter_mut() {
            let part = if whole > 0.0 { number(row) / whole } else { 0.0 };
            if let Some(cell) = row.get_mut(at).filter(|cell| !cell.is_null()) {
                *cell = Datum::Real(part, Unit::Share);
            }
        }
    }
}

/// By the order of the plan, then by all columns from the left: the same rows always come in the same order.
fn sort(rows: &mut [Vec<Datum>], plan: &Plan) {
    rows.sort_by(|a, b| match plan.order {
        Some(Order::Up(at)) => a.get(at).cmp(&b.get(at)).then_with(|| a.cmp(b)),
        Some(Order::Down(at)) => b.get(at).cmp(&a.get(at)).then_with(|| a.cmp(b)),
        None => a.cmp(b),
    });
}

fn headings(plan: &Plan, rows: &[Vec<Datum>]) -> Vec<Heading> {
    let heading = |(at, title): (usize, &String)| {
        let mut values = rows.iter().filter_map(|row| row.get(at)).filter(|cell| !cell.is_null());
        let first = values.next();
        Heading {
            title: title.clone(),
            unit: first.map(Datum::unit).unwrap_or_default(),
            number: first.is_some_and(|cell| cell.number().is_some() && !matches!(cell, Datum::Bool(_))),
            empty: first.is_none(),
        }
    };
    plan.columns.iter().map(|column| &column.title).enumerate().map(heading).collect()
}

/// Row and size.
type Allocation = (usize, i64);

/// Allocations not freed.
#[derive(Debug, Default)]
struct Live {
    /// By address: when, in which row, how large.
    held: HashMap<i64, (i64, usize, i64)>,
    /// Of the current batch, in file order: threads write on their own, so a free may come before its allocation.
    waiting: Vec<(i64, i64, Option<Allocation>)>,
    lost: u64,
}

impl Live {
    fn settle(&mut self) {
        self.waiting.sort_by_key(|&(time, _, what)| (time, what.is_some()));
        for (time, address, what) in self.waiting.drain(..) {
            match what {
                None => {
                    self.held.remove(&address);
                }
                Some(_) if self.held.len() >= MAX_LIVE => self.lost += 1,
                Some((row, size)) => {
                    self.held.insert(address, (time, row, size));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::find;

    /// Rows of `native-allocation-by-thread` after these allocations (address, time, bytes) and frees.
    fn live(steps: &[(i64, i64, Option<i64>)]) -> (Datum, Datum) {
        let view = find("native-allocation-by-thread").unwrap();
        let mut rows = Rows::new(Plan::of_view(view), None);
        let row = rows.row(vec![Datum::Text("main".into())]).unwrap();
        rows.seen = 1;
        for &(address, time, size) in steps {
            match size {
                Some(size) => rows.allocated(address, time, row, size),
                None => rows.freed(address, time),
            }
        }
        rows.settle();
        let table = rows.finish();
        (table.rows[0][4].clone(), table.rows[0][5].clone())
    }

    #[test]
    fn what_is_freed_is_not_live() {
        let check = |steps: &[(i64, i64, Option<i64>)], count: i64, bytes: i64| {
            assert_eq!(
                live(steps),
                (Datum::Int(count, Unit::One), Datum::Int(bytes, Unit::Bytes)),
                "{steps:?}"
            );
        };
        check(&[(16, 1, Some(100)), (32, 2, Some(50))], 2, 150);
        check(&[(16, 1, Some(100)), (32, 2, Some(50)), (16, 3, None)], 1, 50);
        // Another thread's free comes first in the file, but happened later.
        check(&[(16, 3, None), (16, 1, Some(100))], 0, 0);
        // The address is used again: its first tenant is gone, also at the same tick.
        check(&[(16, 1, Some(100)), (16, 2, None), (16, 2, Some(7))], 1, 7);
        check(&[(16, 1, None)], 0, 0);
    }

    #[test]
    fn lists_keep_the_best_rows() {
        let view = find("longest-compilations").unwrap();
        let mut rows = Rows::new(Plan::of_view(view), Some(3));
        for i in 0..5000_i64 {
            let duration = Datum::Int((i * 7919) % 5000, Unit::Span);
            rows.push(i, vec![Datum::Int(i, Unit::Time), duration]);
        }
        rows.seen = 5000;
        let table = rows.finish();
        let durations: Vec<&Datum> = table.rows.iter().map(|row| &row[1]).collect();
        assert_eq!(
            durations,
            [4999, 4998, 4997].map(|v| Datum::Int(v, Unit::Span)).iter().collect::<Vec<_>>()
        );
        assert_eq!(table.more, 4997);
    }
}
