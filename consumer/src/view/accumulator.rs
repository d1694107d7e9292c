//! Cells while events are added up.

use std::collections::HashSet;

use super::datum::{Datum, Unit};
use super::definition::Take;
use super::quantiles::Quantiles;

/// Different values told apart in one cell.
const DISTINCT: usize = 1 << 16;

/// One cell.
#[derive(Clone, Debug)]
pub(super) enum Accumulator {
    Count(u64),
    Sum { whole: i128, real: f64, seen: bool, is_real: bool, unit: Unit },
    Mean { sum: f64, count: u64, unit: Unit },
    Least(Datum),
    Most(Datum),
    Quantile { values: Quantiles, at: f64, unit: Unit },
    First(i64, Datum),
    Last(i64, Datum),
    Spread { from: (i64, Datum), to: (i64, Datum) },
    Distinct(HashSet<Datum>),
    Live { count: u64, bytes: i128, of_bytes: bool },
    Nothing,
}

impl Accumulator {
    pub(super) fn new(take: Take) -> Self {
        match take {
            Take::Key | Take::Each => Self::Nothing,
            Take::Count => Self::Count(0),
            Take::Sum => Self::Sum { whole: 0, real: 0.0, seen: false, is_real: false, unit: Unit::One },
            Take::Min => Self::Least(Datum::Null),
            Take::Max => Self::Most(Datum::Null),
            Take::Mean => Self::Mean { sum: 0.0, count: 0, unit: Unit::One },
            Take::Quantile(at) => Self::Quantile { values: Quantiles::default(), at, unit: Unit::One },
            Take::First => Self::First(i64::MAX, Datum::Null),
            Take::Last => Self::Last(i64::MIN, Datum::Null),
            Take::Spread => Self::Spread { from: (i64::MAX, Datum::Null), to: (i64::MIN, Datum::Null) },
            Take::Distinct => Self::Distinct(HashSet::new()),
            Take::LiveCount => Self::Live { count: 0, bytes: 0, of_bytes: false },
            Take::LiveSum => Self::Live { count: 0, bytes: 0, of_bytes: true },
        }
    }

    /// Takes the value of an event that happened at `time`.
    pub(super) fn add(&mut self, value: &Datum, time: i64) {
        if value.is_null() {
            return;
        }
        match self {
            Self::Count(n) => *n += 1,
            Self::Sum { whole, real, seen, is_real, unit } => match *value {
                Datum::Real(v, of) => {
                    (*seen, *is_real, *unit) = (true, true, of);
                    *real += v;
                }
                // A span without end is not something to add.
                Datum::Int(i64::MAX, Unit::Span) => {}
                Datum::Int(v, of) => {
                    (*seen, *unit) = (true, of);
                    *whole += if of == Unit::Unsigned { i128::from(v as u64) } else { i128::from(v) };
                }
                _ => {}
            },
            Self::Mean { sum, count, unit } => {
                if let Some(v) = value.number() {
                    *sum += v;
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
            Self::Spread { from, to } => {
                if time < from.0 || from.1.is_null() {
                    *from = (time, value.clone());
                }
                if time >= to.0 || to.1.is_null() {
                    *to = (time, value.clone());
                }
            }
            Self::Distinct(values) if values.len() < DISTINCT => {
                values.insert(value.clone());
            }
            Self::Distinct(_) | Self::Live { .. } | Self::Nothing => {}
        }
    }

    /// An allocation of so many bytes was not freed.
    pub(super) fn live(&mut self, size: i64) {
        if let Self::Live { count, bytes, .. } = self {
            *count += 1;
            *bytes += i128::from(size);
        }
    }

    /// The value of the cell.
    pub(super) fn finish(self) -> Datum {
        match self {
            Self::Count(n) => whole(i128::from(n), Unit::One),
            Self::Sum { seen: false, .. } | Self::Mean { count: 0, .. } | Self::Nothing => Datum::Null,
            Self::Sum { whole, real, is_real: true, unit, .. } => Datum::Real(real + whole as f64, unit),
            Self::Sum { whole: sum, unit, .. } => whole(sum, unit),
            Self::Mean { sum, count, unit } => Datum::Real(sum / count as f64, unit),
            Self::Least(datum) | Self::Most(datum) | Self::First(_, datum) | Self::Last(_, datum) => datum,
            Self::Quantile { mut values, at, unit } => {
                values.quantile(at).map_or(Datum::Null, |value| Datum::Real(value, unit))
            }
            Self::Spread { from: (_, from), to: (_, to) } => spread(&from, &to),
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
        // One point in time spans nothing.
        (Datum::Int(a, Unit::Time), Datum::Int(b, Unit::Time)) if a == b => Datum::Null,
        (Datum::Int(a, Unit::Time), Datum::Int(b, Unit::Time)) => {
            Datum::Int(b.saturating_sub(*a), Unit::Span)
        }
        (Datum::Int(a, unit), Datum::Int(b, _)) => whole(i128::from(*b) - i128::from(*a), *unit),
        (Datum::Real(a, unit), Datum::Real(b, _)) => Datum::Real(b - a, *unit),
        _ => Datum::Null,
    }
}
