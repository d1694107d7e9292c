//! Rows of one plan while events come in.

use std::collections::HashMap;
use std::sync::Arc;

use super::accumulator::Accumulator;
use super::datum::{Datum, Unit};
use super::definition::{Order, Take};
use super::live::Live;
use super::plan::Plan;
use super::table::{Heading, Table};

/// Groups told apart; events of further ones are counted.
const MAX_GROUPS: usize = 1 << 18;
/// Rows of a list that are kept unless there is a limit; further ones are counted.
const MAX_LISTED: usize = 1 << 18;

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
    /// There were too many groups.
    full: bool,
    groups: HashMap<Arc<[Datum]>, usize>,
    keys: Vec<Arc<[Datum]>>,
    /// Of all rows, one after the other: those of columns that are no keys.
    cells: Vec<Accumulator>,
    /// Per column its place among a row's cells.
    places: Vec<Option<usize>>,
    /// Cells of a row.
    width: usize,
    list: Vec<(i64, Vec<Datum>)>,
    limit: Option<usize>,
    /// Of the plan's `latest` event type: when.
    moment: i64,
    /// There were events of a type besides `latest`.
    others: bool,
    /// How often the rows have been cleared.
    pub(super) generation: u64,
    live: Live,
}

impl Rows {
    /// Without any row.
    pub(super) fn new(plan: Plan, limit: Option<usize>) -> Self {
        let limit = limit.or(plan.limit);
        let mut width = 0;
        let places = plan.columns.iter().map(|column| {
            let place = (!matches!(column.take, Take::Key | Take::Each)).then_some(width);
            width += usize::from(place.is_some());
            place
        });
        let places = places.collect();
        Self {
            plan,
            seen: 0,
            in_place: false,
            more: 0,
            full: false,
            groups: HashMap::new(),
            keys: Vec::new(),
            cells: Vec::new(),
            places,
            width,
            list: Vec::new(),
            limit,
            moment: i64::MIN,
            others: false,
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
            self.full = true;
            self.more += 1;
            return None;
        }
        let keys: Arc<[Datum]> = keys.into();
        self.groups.insert(keys.clone(), self.keys.len());
        self.keys.push(keys);
        let values = self.plan.columns.iter().filter(|column| !matches!(column.take, Take::Key | Take::Each));
        self.cells.extend(values.map(|column| Accumulator::new(column.take)));
        Some(self.keys.len() - 1)
    }

    /// The cell in `row` and `column`.
    pub(super) fn cell(&mut self, row: usize, column: usize) -> Option<&mut Accumulator> {
        let place = (*self.places.get(column)?)?;
        self.cells.get_mut(row * self.width + place)
    }

    /// Whether an event of the type of which only the latest moment counts is to be taken in; a later moment than any
    /// before clears the rows.
    pub(super) fn is_latest_moment(&mut self, time: i64) -> bool {
        if time > self.moment && self.moment != i64::MIN {
            self.clear();
            self.generation += 1;
        }
        let counts = time >= self.moment;
        self.moment = self.moment.max(time);
        counts
    }

    /// Notes that an event counts whatever the latest moment.
    pub(super) fn any_moment(&mut self) {
        self.others = true;
    }

    fn clear(&mut self) {
        self.groups.clear();
        self.keys.clear();
        self.cells.clear();
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

    /// Rows of the same plan that no event has been seen of.
    pub(super) fn blank(&self) -> Self {
        let mut blank = Self::new(self.plan.clone(), self.limit);
        blank.in_place = self.in_place;
        blank
    }

    /// Whether [`merge`](Self::merge) with the rows of later events makes what all the events together would have.
    pub(super) fn can_merge(&self, later: &Self) -> bool {
        // What a later moment clears away depends on the order of the events.
        let moments = (self.moment, later.moment) != (i64::MIN, i64::MIN);
        let one_order = !moments || !(self.others || later.others);
        let fits = !self.full && !later.full && self.keys.len() + later.keys.len() <= MAX_GROUPS;
        self.plan.columns == later.plan.columns && one_order && fits && self.live.can_merge(&later.live)
    }

    /// Takes what rows of the same plan made of later events.
    pub(super) fn merge(&mut self, mut later: Self) {
        self.seen += later.seen;
        self.more += later.more;
        self.others |= later.others;
        if self.moment != later.moment && later.moment != i64::MIN {
            if later.moment < self.moment {
                return;
            }
            if self.moment != i64::MIN {
                self.clear();
            }
            self.moment = later.moment;
        }
        for (time, row) in std::mem::take(&mut later.list) {
            self.push(time, row);
        }
        let mut rows = Vec::with_capacity(later.keys.len());
        let mut cells = later.cells.into_iter();
        for keys in later.keys {
            let cells = cells.by_ref().take(self.width);
            if let Some(&row) = self.groups.get(&keys) {
                let own = self.cells.iter_mut().skip(row * self.width);
                own.zip(cells).for_each(|(own, later)| own.merge(later));
                rows.push(row);
            } else {
                rows.push(self.keys.len());
                self.groups.insert(keys.clone(), self.keys.len());
                self.keys.push(keys);
                self.cells.extend(cells);
            }
        }
        self.live.merge(later.live, &rows);
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
        for &(row, size) in self.live.held.values() {
            for &column in &of_live {
                let place = self.places.get(column).copied().flatten();
                if let Some(cell) = place.and_then(|place| self.cells.get_mut(row * self.width + place)) {
                    cell.live(size);
                }
            }
        }
        self.more += self.live.lost;
        self.groups = HashMap::new();
        let mut rows = Vec::with_capacity(self.keys.len());
        let mut cells = std::mem::take(&mut self.cells).into_iter();
        for keys in std::mem::take(&mut self.keys) {
            let mut keys = keys.iter().cloned();
            let row = self.plan.columns.iter().map(|column| match column.take {
                Take::Key => keys.next().unwrap_or_default(),
                Take::Each => Datum::Null,
                _ => cells.next().map_or(Datum::Null, Accumulator::finish),
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

    /// Rows after these steps: (address, time, bytes, or `None` for a free).
    fn rows_after(steps: &[(i64, i64, Option<i64>)]) -> Rows {
        let view = find("native-allocation-by-thread").unwrap();
        let mut rows = Rows::new(Plan::of_view(view), None);
        for &(address, time, size) in steps {
            rows.seen += 1;
            match size {
                Some(size) => {
                    let row = rows.row(vec![Datum::Int(size % 3, Unit::One)]).unwrap();
                    rows.cell(row, 1).unwrap().add(&Datum::Bool(true), time);
                    rows.allocated(address, time, row, size);
                }
                None => rows.freed(address, time),
            }
            rows.settle();
        }
        rows
    }

    #[test]
    fn allocations_of_parts_make_those_of_the_whole() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let steps: Vec<(i64, i64, Option<i64>)> = (0..60)
                .map(|time| (random(9) as i64, time, (random(2) == 0).then(|| random(1000) as i64)))
                .collect();
            let (first, second) = (random(60) as usize, random(60) as usize);
            let (a, b) = (first.min(second), first.max(second));
            let join = |mut earlier: Rows, later: Rows| {
                assert!(earlier.can_merge(&later));
                earlier.merge(later);
                earlier
            };
            let part = |from: usize, to: usize| rows_after(&steps[from..to]);
            let whole = rows_after(&steps).finish();
            let left = join(join(part(0, a), part(a, b)), part(b, 60));
            let right = join(part(0, a), join(part(a, b), part(b, 60)));
            for parts in [left.finish(), right.finish()] {
                assert_eq!(
                    (parts.rows, parts.more),
                    (whole.rows.clone(), whole.more),
                    "{steps:?} cut at {a}, {b}"
                );
            }
        }
    }

    /// Rows of `memory-leaks-by-class` after these events: (moment, class, whether of the type that has moments).
    fn leaks(events: &[(i64, i64, bool)]) -> Rows {
        let mut rows = Rows::new(Plan::of_view(find("memory-leaks-by-class").unwrap()), None);
        for &(time, class, moments) in events {
            rows.seen += 1;
            if !moments {
                rows.any_moment();
            } else if !rows.is_latest_moment(time) {
                continue;
            }
            let row = rows.row(vec![Datum::Int(class, Unit::One)]).unwrap();
            rows.cell(row, 1).unwrap().add(&Datum::Bool(true), time);
        }
        rows
    }

    #[test]
    fn only_the_latest_moment_of_all_parts_counts() {
        let events = [(1, 7, true), (1, 8, true), (5, 7, true), (5, 9, true), (5, 9, true), (3, 6, true)];
        let whole = leaks(&events).finish();
        let counts: Vec<&[Datum]> = whole.rows.iter().map(|row| &row[..2]).collect();
        let row = |class, count| [Datum::Int(class, Unit::One), Datum::Int(count, Unit::One)];
        assert!(counts.len() == 2 && counts.contains(&&row(7, 1)[..]) && counts.contains(&&row(9, 2)[..]));
        for at in 0..=events.len() {
            let mut parts = leaks(&events[..at]);
            let later = leaks(&events[at..]);
            assert!(parts.can_merge(&later));
            parts.merge(later);
            assert_eq!(parts.finish().rows, whole.rows, "cut at {at}");
        }
        // Whether the others are cleared away depends on where they were: not for parts to tell.
        assert!(!leaks(&[(1, 7, false)]).can_merge(&leaks(&events)));
        assert!(leaks(&[(1, 7, false)]).can_merge(&leaks(&[(2, 8, false)])));
    }
}
