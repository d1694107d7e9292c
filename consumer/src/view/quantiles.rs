//! Quantiles in bounded memory.

use std::collections::BTreeMap;

/// Values stored exactly per cell; beyond that, they are counted in steps of 1/128.
const EXACT: usize = 1 << 16;
/// Bits of a value that are retained after the leading one.
const PRECISION: u32 = 7;

/// A set of integers with quantiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantiles {
    exact: Vec<i64>,
    steps: BTreeMap<i64, u64>,
    count: u64,
}

impl Quantiles {
    pub(crate) fn add(&mut self, value: i64) {
        self.count += 1;
        if !self.steps.is_empty() {
            *self.steps.entry(rounded(value)).or_default() += 1;
            return;
        }
        self.exact.push(value);
        if self.exact.len() > EXACT {
            self.in_steps();
        }
    }

    /// Returns true if quantiles are computed from the values themselves, not from steps.
    pub(crate) fn is_exact(&self) -> bool {
        self.steps.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the values of another set. The result does not depend on how values were distributed.
    pub(crate) fn merge(&mut self, other: Self) {
        let counted = self.count + other.count;
        for (value, count) in other.steps {
            self.in_steps();
            *self.steps.entry(value).or_default() += count;
        }
        other.exact.into_iter().for_each(|value| self.add(value));
        self.count = counted;
    }

    fn in_steps(&mut self) {
        for value in std::mem::take(&mut self.exact) {
            *self.steps.entry(rounded(value)).or_default() += 1;
        }
    }

    /// Returns the value at rank (n + 1)·q, interpolated between two ranks.
    pub(crate) fn quantile(&mut self, q: f64) -> Option<f64> {
        let last = self.count.checked_sub(1)?;
        self.exact.sort_unstable();
        let rank = (self.count + 1) as f64 * q - 1.0;
        let below = (rank.max(0.0) as u64).min(last);
        let above = (below + 1).min(last);
        let part = (rank - below as f64).clamp(0.0, 1.0);
        let (low, high) = (self.at(below)? as f64, self.at(above)? as f64);
        Some(low + (high - low) * part)
    }

    fn at(&self, rank: u64) -> Option<i64> {
        if self.steps.is_empty() {
            return self.exact.get(usize::try_from(rank).ok()?).copied();
        }
        let mut seen = 0;
        self.steps
            .iter()
            .find(|&(_, &count)| {
                seen += count;
                seen > rank
            })
            .map(|(&value, _)| value)
    }
}

fn rounded(value: i64) -> i64 {
    let size = value.unsigned_abs();
    let drop = (64 - size.leading_zeros()).saturating_sub(PRECISION + 1);
    let size = i64::try_from(size >> drop << drop).unwrap_or(i64::MAX);
    if value < 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantiles(values: impl IntoIterator<Item = i64>) -> Quantiles {
        let mut all = Quantiles::default();
        values.into_iter().for_each(|v| all.add(v));
        all
    }

    #[test]
    fn quantiles_interpolate_between_ranks() {
        assert_eq!(quantiles([]).quantile(0.5), None);
        assert_eq!(quantiles([7]).quantile(0.99), Some(7.0));
        assert_eq!(quantiles([4, 1]).quantile(0.5), Some(2.5));
        assert_eq!(quantiles([3, 1, 2]).quantile(0.5), Some(2.0));
        // Nine values 10..90: rank (9 + 1)·0.9 is the ninth; 0.85 is halfway between the eighth and the
        // ninth.
        let nine = || quantiles((1..=9).map(|v| v * 10));
        assert_eq!(nine().quantile(0.9), Some(90.0));
        assert_eq!(nine().quantile(0.85), Some(85.0));
        assert_eq!(nine().quantile(0.01), Some(10.0));
    }

    #[test]
    fn merged_parts_have_whole_quantiles() {
        for (all, cut) in
            [(10, 3), (EXACT as i64 + 5, 7), (200_000, 100_000), (200_000, 199_999), (140_000, 70_000)]
        {
            let value = |v: i64| (v * 7919) % 100_003;
            let mut whole = quantiles((0..all).map(value));
            let mut parts = quantiles((0..cut).map(value));
            parts.merge(quantiles((cut..all).map(value)));
            for q in [0.0, 0.5, 0.99, 1.0] {
                assert_eq!(parts.quantile(q), whole.quantile(q), "{q} of {all} cut at {cut}");
            }
        }
    }

    #[test]
    fn many_values_are_approximated_in_buckets() {
        let mut many = quantiles((0..200_000).map(|v| v * 1_000));
        assert!(many.exact.is_empty() && many.steps.len() < 3_000);
        for q in [0.1, 0.5, 0.9, 0.999] {
            let (got, want) = (many.quantile(q).unwrap(), q * 200_000_000.0);
            assert!((got / want - 1.0).abs() < 0.01, "{q}: {got} is not {want}");
        }
        assert_eq!((rounded(i64::MIN), rounded(-255), rounded(257)), (-i64::MAX, -255, 256));
    }
}
