//! Cells that accumulate the values of events.

use std::collections::HashSet;

use jfr_format::pool::KeyHash;

use super::datum::{Datum, Unit};
use super::definition::Take;
use super::quantiles::Quantiles;

/// Maximum number of distinct values counted in one cell.
const DISTINCT: usize = 1 << 16;

/// A sum with error compensation, which hardly depends on the order of additions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    sum: f64,
    dropped: f64,
}

impl Total {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        let of_value = sum - self.sum;
        self.dropped += (self.sum - (sum - of_value)) + (value - of_value);
        self.sum = sum;
    }

    fn merge(&mut self, other: Self) {
        self.add(other.sum);
        self.dropped += other.dropped;
    }

    fn value(self) -> f64 {
        // Infinity or NaN, for which the compensation is invalid.
        if self.sum.is_finite() && self.dropped.is_finite() { self.sum + self.dropped } else { self.sum }
    }
}

/// A cell. Large and rare parts are boxed, because there may be a hundred thousand rows.
#[derive(Clone, Debug)]
pub(super) enum Accumulator {
    Count(u64),
    Sum { whole: i128, real: Option<Box<Total>>, seen: bool, unit: Unit },
    Mean { sum: Total, count: u64, unit: Unit },
    Least(Datum),
    Most(Datum),
    Quantile { values: Box<Quantiles>, at: f64, unit: Unit },
    First(i64, Datum),
    Last(i64, Datum),
    Spread(Box<Spread>),
    Distinct(HashSet<Datum, KeyHash>),
    Live { count: u64, bytes: i128, of_bytes: bool },
    Nothing,
}

/// The first and the last value with their times.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    from: (i64, Datum),
    to: (i64, Datum),
}

impl Spread {
    fn add(&mut self, value: &Datum, time: i64) {
        if time < self.from.0 || self.from.1.is_null() {
            self.from = (time, value.clone());
        }
        if time >= self.to.0 || self.to.1.is_null() {
            self.to = (time, value.clone());
        }
    }
}

impl Accumulator {
    pub(super) fn new(take: Take) -> Self {
        match take {
            Take::Key | Take::Each => Self::Nothing,
            Take::Count => Self::Count(0),
            Take::Sum => Self::Sum { whole: 0, real: None, seen: false, unit: Unit::One },
            Take::Min => Self::Least(Datum::Null),
            Take::Max => Self::Most(Datum::Null),
            Take::Mean => Self::Mean { sum: Total::default(), count: 0, unit: Unit::One },
            Take::Quantile(at) => Self::Quantile { values: Box::default(), at, unit: Unit::One },
            Take::First => Self::First(i64::MAX, Datum::Null),
            Take::Last => Self::Last(i64::MIN, Datum::Null),
            Take::Spread => {
                Self::Spread(Box::new(Spread { from: (i64::MAX, Datum::Null), to: (i64::MIN, Datum::Null) }))
            }
            Take::Distinct => Self::Distinct(HashSet::default()),
            Take::LiveCount => Self::Live { count: 0, bytes: 0, of_bytes: false },
            Take::LiveSum => Self::Live { count: 0, bytes: 0, of_bytes: true },
        }
    }

    /// Adds the value of an event at `time`.
    pub(super) fn add(&mut self, value: &Datum, time: i64) {
        if value.is_null() {
            return;
        }
        match self {
            Self::Count(n) => *n += 1,
            Self::Sum { whole, real, seen, unit } => match *value {
                Datum::Real(v, of) => {
                    (*seen, *unit) = (true, of);
                    real.get_or_insert_default().add(v);
                }
                // An infinite duration cannot be added.
                Datum::Int(i64::MAX, Unit::Span) => {}
                Datum::Int(v, of) => {
                    (*seen, *unit) = (true, of);
                    *whole += if of == Unit::Unsigned { i128::from(v as u64) } else { i128::from(v) };
                }
                _ => {}
            },
            Self::Mean { sum, count, unit } => {
                if let Some(v) = value.number() {
                    sum.add(v);
                    *count += 1;
                    *unit = value.unit();
                }
            }
            Self::Least(least) => keep(least, value, |old, new| new < old),
            Self::Most(most) => keep(most, value, |old, new| new > old),
            Self::Quantile { values, unit, .. } => {
                if let Datum::Int(v, of) = *value {
                    values.add(v);
                    *unit = of;
                }
            }
            Self::First(at, first) if time < *at || first.is_null() => (*at, *first) = (time, value.clone()),
            Self::Last(at, last) if time >= *at || last.is_null() => (*at, *last) = (time, value.clone()),
            Self::First(..) | Self::Last(..) => {}
            Self::Spread(spread) => spread.add(value, time),
            Self::Distinct(values) if values.len() < DISTINCT => {
                values.insert(value.clone());
            }
            Self::Distinct(_) | Self::Live { .. } | Self::Nothing => {}
        }
    }

    /// Merges a cell of the same kind from later events.
    pub(super) fn merge(&mut self, later: Self) {
        match (self, later) {
            (Self::Count(n), Self::Count(more)) => *n += more,
            (
                Self::Sum { whole, real, seen, unit },
                Self::Sum { whole: more, real: more_real, seen: true, unit: of },
            ) => {
                *whole += more;
                if let Some(more) = more_real {
                    real.get_or_insert_default().merge(*more);
                }
                (*seen, *unit) = (true, of);
            }
            (Self::Mean { sum, count, unit }, Self::Mean { sum: more, count: n, unit: of }) if n > 0 => {
                sum.merge(more);
                *count += n;
                *unit = of;
            }
            (Self::Quantile { values, unit, .. }, Self::Quantile { values: more, unit: of, .. }) => {
                if !more.is_empty() {
                    *unit = of;
                }
                values.merge(*more);
            }
            (own @ Self::Least(_), Self::Least(value)) | (own @ Self::Most(_), Self::Most(value)) => {
                own.add(&value, 0);
            }
            (own @ Self::First(..), Self::First(at, value))
            | (own @ Self::Last(..), Self::Last(at, value)) => {
                own.add(&value, at);
            }
            (own @ Self::Spread(_), Self::Spread(later)) => {
                own.add(&later.from.1, later.from.0);
                own.add(&later.to.1, later.to.0);
            }
            (Self::Distinct(values), Self::Distinct(more)) => {
                let room = DISTINCT.saturating_sub(values.len());
                let new: Vec<Datum> =
                    more.into_iter().filter(|value| !values.contains(value)).take(room).collect();
                values.extend(new);
            }
            _ => {}
        }
    }

    /// Adds an allocation of `size` bytes that was not freed.
    pub(super) fn live(&mut self, size: i64) {
        if let Self::Live { count, bytes, .. } = self {
            *count += 1;
            *bytes += i128::from(size);
        }
    }

    /// Returns the value of the cell.
    pub(super) fn finish(self) -> Datum {
        match self {
            Self::Count(n) => whole(i128::from(n), Unit::One),
            Self::Sum { seen: false, .. } | Self::Mean { count: 0, .. } | Self::Nothing => Datum::Null,
            Self::Sum { whole, real: Some(real), unit, .. } => Datum::Real(real.value() + whole as f64, unit),
            Self::Sum { whole: sum, unit, .. } => whole(sum, unit),
            Self::Mean { sum, count, unit } => Datum::Real(sum.value() / count as f64, unit),
            Self::Least(datum) | Self::Most(datum) | Self::First(_, datum) | Self::Last(_, datum) => datum,
            Self::Quantile { mut values, at, unit } => {
                values.quantile(at).map_or(Datum::Null, |value| Datum::Real(value, unit))
            }
            Self::Spread(ends) => spread(&ends.from.1, &ends.to.1),
            Self::Distinct(values) => whole(values.len() as i128, Unit::One),
            Self::Live { bytes, of_bytes: true, .. } => whole(bytes, Unit::Bytes),
            Self::Live { count, .. } => whole(i128::from(count), Unit::One),
        }
    }
}

fn keep(own: &mut Datum, value: &Datum, better: impl Fn(&Datum, &Datum) -> bool) {
    if own.is_null() || better(own, value) {
        *own = value.clone();
    }
}

fn whole(value: i128, unit: Unit) -> Datum {
    let unit = if unit == Unit::Unsigned { Unit::One } else { unit };
    Datum::Int(value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64, unit)
}

fn spread(from: &Datum, to: &Datum) -> Datum {
    match (from, to) {
        // A single time has no duration.
        (Datum::Int(a, Unit::Time), Datum::Int(b, Unit::Time)) if a == b => Datum::Null,
        (Datum::Int(a, Unit::Time), Datum::Int(b, Unit::Time)) => {
            Datum::Int(b.saturating_sub(*a), Unit::Span)
        }
        (Datum::Int(a, unit), Datum::Int(b, _)) => whole(i128::from(*b) - i128::from(*a), *unit),
        (Datum::Real(a, unit), Datum::Real(b, _)) => Datum::Real(b - a, *unit),
        _ => Datum::Null,
    }
}
