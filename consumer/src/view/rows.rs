//! Rows of one plan while events are processed.

use std::collections::HashMap;
use std::sync::Arc;

use super::accumulator::Accumulator;
use super::datum::{Datum, Unit};
use super::definition::{Order, Take};
use super::live::Live;
use super::plan::Plan;
use super::table::{Heading, Table};

/// Maximum number of groups; events of further groups are counted.
const MAX_GROUPS: usize = 1 << 18;
/// Maximum total size in bytes of all lists without an explicit limit; further rows are counted.
const MAX_LISTED: usize = 32 << 20;
/// Maximum total size in bytes of all groups; events of further groups are counted.
const MAX_GROUPED: usize = 128 << 20;

/// Remaining bytes for groups, shared by all plans.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MAX_GROUPED)
    }
}

impl Room {
    /// Returns the remaining bytes with these rows.
    pub(super) fn left_by(rows: &[Rows]) -> Self {
        Self(MAX_GROUPED.saturating_sub(rows.iter().map(|rows| rows.grouped).sum()))
    }

    /// Returns true if the groups of a later part fit, even if all of them are new.
    pub(super) fn has_for(&self, later: &[Rows]) -> bool {
        later.iter().map(|rows| rows.grouped).sum::<usize>() <= self.0
    }
}

/// Cuts the longest lists without an explicit limit to one length, so that all together stay within the
/// limit. Each list retains its first rows, so that the result does not depend on earlier cuts.
pub(super) fn cut_lists(rows: &mut [Rows]) {
    let unlimited = |rows: &&mut Rows| rows.limit.is_none() && rows.plan.is_list();
    // A list that was cut would have been longer.
    let size = |rows: &mut Rows| if rows.closed { rows.share } else { rows.listed };
    let mut sizes: Vec<usize> = rows.iter_mut().filter(unlimited).map(size).collect();
    if sizes.iter().sum::<usize>() <= MAX_LISTED {
        return;
    }
    sizes.sort_unstable();
    let (mut left, mut others) = (MAX_LISTED, sizes.len());
    let longest = sizes.iter().find_map(|&size| {
        let share = left / others;
        left = left.saturating_sub(size);
        others -= 1;
        (size > share).then_some(share)
    });
    if let Some(longest) = longest {
        rows.iter_mut().filter(unlimited).for_each(|rows| rows.hold(longest));
    }
}

fn listed_size(row: &[Datum]) -> usize {
    size_of::<(i64, Vec<Datum>)>() + 16 + row.iter().map(size).sum::<usize>()
}

/// Returns the size of a datum in bytes.
fn size(datum: &Datum) -> usize {
    size_of::<Datum>()
        + match datum {
            Datum::Text(text) => text.len() + 16,
            Datum::Stack(frames) => size_of_val(&**frames) + 16,
            _ => 0,
        }
}

/// Accumulated data of one plan.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) plan: Plan,
    /// Number of processed events.
    pub(super) seen: u64,
    /// To be shown only if the rows before have no events.
    pub(super) in_place: bool,
    /// Events or rows beyond the limits.
    more: u64,
    /// True if there were too many groups.
    full: bool,
    groups: HashMap<Arc<[Datum]>, usize>,
    keys: Vec<Arc<[Datum]>>,
    /// Cells of all rows, one row after the other; key columns have no cells.
    cells: Vec<Accumulator>,
    /// For each column, its index in a row's cells.
    places: Vec<Option<usize>>,
    /// Number of cells per row.
    width: usize,
    /// Size of the groups in bytes.
    grouped: usize,
    list: Vec<(i64, Vec<Datum>)>,
    /// Size in bytes of a list without an explicit limit, and its maximum.
    listed: usize,
    share: usize,
    /// A row of the list was left out, so all later ones are too.
    closed: bool,
    limit: Option<usize>,
    /// The latest time of the plan's `latest` event type.
    moment: i64,
    /// There were events of a type other than `latest`.
    others: bool,
    /// Number of times that the rows were cleared.
    pub(super) generation: u64,
    live: Live,
}

impl Rows {
    /// Creates empty rows.
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
            grouped: 0,
            list: Vec::new(),
            listed: 0,
            share: MAX_LISTED,
            closed: false,
            limit,
            moment: i64::MIN,
            others: false,
            generation: 0,
            live: Live::default(),
        }
    }

    /// Marks the rows to be shown only if the rows before have no events.
    pub(super) fn into_fallback(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// Returns the row with these keys; `None` if there are too many.
    pub(super) fn row(&mut self, keys: Vec<Datum>, room: &mut Room) -> Option<usize> {
        if let Some(&row) = self.groups.get(&*keys) {
            return Some(row);
        }
        let size = self.group_size(&keys);
        if self.keys.len() >= MAX_GROUPS || size > room.0 {
            self.full = true;
            self.more += 1;
            return None;
        }
        room.0 -= size;
        self.grouped += size;
        let keys: Arc<[Datum]> = keys.into();
        self.groups.insert(keys.clone(), self.keys.len());
        self.keys.push(keys);
        let values = self.plan.columns.iter().filter(|column| !matches!(column.take, Take::Key | Take::Each));
        self.cells.extend(values.map(|column| Accumulator::new(column.take)));
        Some(self.keys.len() - 1)
    }

    fn group_size(&self, keys: &[Datum]) -> usize {
        // The keys are in a list and in a hash table with free slots.
        128 + keys.iter().map(size).sum::<usize>() + self.width * size_of::<Accumulator>()
    }

    /// Returns the cell in `row` and `column`.
    pub(super) fn cell(&mut self, row: usize, column: usize) -> Option<&mut Accumulator> {
        let place = (*self.places.get(column)?)?;
        self.cells.get_mut(row * self.width + place)
    }

    /// For the event type of which only the latest time counts: returns true if an event at `time` is
    /// included. A later time than before clears the rows.
    pub(super) fn is_latest_moment(&mut self, time: i64, room: &mut Room) -> bool {
        if time > self.moment && self.moment != i64::MIN {
            room.0 += self.grouped;
            self.clear();
            self.generation += 1;
        }
        let counts = time >= self.moment;
        self.moment = self.moment.max(time);
        counts
    }

    /// Records that an event is included regardless of the latest time.
    pub(super) fn any_moment(&mut self) {
        self.others = true;
    }

    fn clear(&mut self) {
        self.grouped = 0;
        self.groups.clear();
        self.keys.clear();
        self.cells.clear();
    }

    /// Returns true if further rows of the list are only counted.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Counts a row of a list that is not stored.
    pub(super) fn leave_out(&mut self) {
        self.more += 1;
    }

    fn hold(&mut self, share: usize) {
        self.share = self.share.min(share);
        while self.listed > self.share
            && let Some((_, row)) = self.list.pop()
        {
            self.listed -= listed_size(&row);
            self.more += 1;
            self.closed = true;
        }
    }

    /// Adds a row to the list.
    pub(super) fn push(&mut self, time: i64, row: Vec<Datum>) {
        let Some(limit) = self.limit else {
            let size = listed_size(&row);
            self.closed |= self.listed + size > self.share;
            if self.closed {
                self.more += 1;
            } else {
                self.listed += size;
                self.list.push((time, row));
            }
            return;
        };
        self.list.push((time, row));
        // Sorts only at twice the limit, so that the cost per row is constant.
        if self.list.len() > limit.saturating_mul(2).max(1024) {
            self.sort_list();
            self.more += (self.list.len() - limit) as u64;
            self.list.truncate(limit);
        }
    }

    /// Returns empty rows for the same plan.
    pub(super) fn blank(&self) -> Self {
        let mut blank = Self::new(self.plan.clone(), self.limit);
        blank.in_place = self.in_place;
        blank
    }

    /// Returns true if [`merge`](Self::merge) with the rows of later events gives the same result as
    /// processing all events in sequence.
    pub(super) fn can_merge(&self, later: &Self) -> bool {
        // The effect of a later time depends on the order of events.
        let moments = (self.moment, later.moment) != (i64::MIN, i64::MIN);
        let one_order = !moments || !(self.others || later.others);
        let fits = !self.full && !later.full && self.keys.len() + later.keys.len() <= MAX_GROUPS;
        self.plan.columns == later.plan.columns && one_order && fits && self.live.can_merge(&later.live)
    }

    /// Merges rows of the same plan from later events.
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
        self.closed |= later.closed;
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
                self.grouped += self.group_size(&keys);
                self.groups.insert(keys.clone(), self.keys.len());
                self.keys.push(keys);
                self.cells.extend(cells);
            }
        }
        self.live.merge(later.live, &rows);
    }

    /// Adds an allocation in `row`.
    pub(super) fn allocated(&mut self, address: i64, time: i64, row: usize, size: i64) {
        self.live.waiting.push((time, address, Some((row, size))));
    }

    /// Records that the memory at `address` was freed.
    pub(super) fn freed(&mut self, address: i64, time: i64) {
        self.live.waiting.push((time, address, None));
    }

    /// Ends a batch of events.
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

    /// Returns the table.
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
            full: self.full || self.closed,
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

/// Replaces values of share columns by their shares.
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

/// Sorts by the order of the plan, then by all columns from the left, so that the order is deterministic.
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
mod tests;
