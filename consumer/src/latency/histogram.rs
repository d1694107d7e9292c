//! A histogram of durations with exact totals.

use serde_json::{Value, json};

use crate::view::quantiles::Quantiles;

/// Durations in buckets of powers of two: bucket `n` has those from 2ⁿ ns to less than 2ⁿ⁺¹ ns; the first
/// bucket also has those of 0 ns.
///
/// Count, total, shortest and longest are exact. Percentiles are exact for up to 65,536 durations. Beyond
/// that, memory stays bounded and a percentile is at most 1/128 too small.
#[derive(Clone, Debug)]
pub struct Histogram {
    count: u64,
    total: u128,
    shortest: u64,
    longest: u64,
    buckets: [u64; u64::BITS as usize],
    quantiles: Quantiles,
}

/// A bucket of a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The shortest duration in it, in ns.
    pub from: u64,
    /// The end of its range, exclusive, in ns. The last bucket has `u64::MAX`, inclusive.
    pub to: u64,
    /// Number of durations.
    pub count: u64,
}

/// The figures of a [`Histogram`] with at least one duration. All durations are in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of durations.
    pub count: u64,
    /// Their sum, at most `u64::MAX`.
    pub total: u64,
    /// Their arithmetic mean.
    pub mean: u64,
    /// The shortest duration.
    pub shortest: u64,
    /// The median, interpolated between two ranks as in the tables of [`view`](crate::view).
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The longest duration.
    pub longest: u64,
    /// False if percentiles are up to 1/128 too small.
    pub is_exact: bool,
    /// Buckets from the first to the last non-empty one, without gaps.
    pub buckets: Vec<Bucket>,
}

impl Summary {
    /// Returns the figures as a JSON object.
    pub fn to_json(&self) -> Value {
        let bucket = |bucket: &Bucket| json!({ "fromNanos": bucket.from, "toNanos": bucket.to, "count": bucket.count });
        json!({
            "count": self.count,
            "totalNanos": self.total,
            "meanNanos": self.mean,
            "minNanos": self.shortest,
            "p50Nanos": self.p50,
            "p90Nanos": self.p90,
            "p99Nanos": self.p99,
            "maxNanos": self.longest,
            "exact": self.is_exact,
            "buckets": self.buckets.iter().map(bucket).collect::<Vec<_>>(),
        })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            count: 0,
            total: 0,
            shortest: u64::MAX,
            longest: 0,
            buckets: [0; u64::BITS as usize],
            quantiles: Quantiles::default(),
        }
    }
}

impl Histogram {
    /// Adds a duration in ns.
    pub fn add(&mut self, nanos: u64) {
        self.count += 1;
        self.total += u128::from(nanos);
        self.shortest = self.shortest.min(nanos);
        self.longest = self.longest.max(nanos);
        self.buckets[nanos.max(1).ilog2() as usize] += 1;
        self.quantiles.add(i64::try_from(nanos).unwrap_or(i64::MAX));
    }

    /// Returns the sum of the durations in ns.
    pub(super) fn total(&self) -> u128 {
        self.total
    }

    /// Returns the figures of the histogram; `None` without durations.
    pub fn summary(mut self) -> Option<Summary> {
        let mean = self.total.checked_div(u128::from(self.count))?;
        let mut percentile = |percent: f64| {
            let nanos = self.quantiles.quantile(percent / 100.0).unwrap_or(0.0).round() as u64;
            nanos.clamp(self.shortest, self.longest)
        };
        let [p50, p90, p99] = [50.0, 90.0, 99.0].map(&mut percentile);
        Some(Summary {
            count: self.count,
            total: u64::try_from(self.total).unwrap_or(u64::MAX),
            // The mean of 64-bit numbers has 64 bits.
            mean: u64::try_from(mean).unwrap_or(u64::MAX),
            shortest: self.shortest,
            p50,
            p90,
            p99,
            longest: self.longest,
            is_exact: self.quantiles.is_exact(),
            buckets: self.buckets().collect(),
        })
    }

    fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let used = |&at: &usize| self.buckets[at] > 0;
        let first = (0..self.buckets.len()).find(used).unwrap_or(self.buckets.len());
        let last = (0..self.buckets.len()).rfind(used).map_or(0, |at| at + 1);
        (first..last).map(|at| Bucket {
            from: if at == 0 { 0 } else { 1 << at },
            to: 1u64.checked_shl(at as u32 + 1).unwrap_or(u64::MAX),
            count: self.buckets[at],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut all = Histogram::default();
        values.into_iter().for_each(|nanos| all.add(nanos));
        all
    }

    fn summary(values: impl IntoIterator<Item = u64>) -> Summary {
        histogram(values).summary().unwrap()
    }

    #[test]
    fn durations_are_counted_in_log2_buckets() {
        let buckets = summary([0, 1, 2, 3, 4, 7, 8, 32, 63]).buckets;
        let expected = [(0, 2, 2), (2, 4, 2), (4, 8, 2), (8, 16, 1), (16, 32, 0), (32, 64, 2)];
        assert_eq!(buckets, expected.map(|(from, to, count)| Bucket { from, to, count }));
        let last = summary([u64::MAX]).buckets;
        assert_eq!(last, [Bucket { from: 1 << 63, to: u64::MAX, count: 1 }]);
    }

    #[test]
    fn totals_are_exact_and_saturate() {
        let most = summary([u64::MAX, u64::MAX, 1]);
        assert_eq!((most.count, most.total, most.mean), (3, u64::MAX, u64::MAX / 3 * 2));
        assert_eq!((most.shortest, most.longest), (1, u64::MAX));
        assert_eq!((summary([4, 9, 2]).mean, summary([4, 9, 2]).total), (5, 15));
        assert_eq!(histogram([]).summary(), None);
    }

    #[test]
    fn percentiles_are_exact_up_to_a_duration_limit() {
        let few = summary((1..=999).rev());
        assert!(few.is_exact);
        assert_eq!([few.p50, few.p90, few.p99], [500, 900, 990]);
        let many = summary((1..=199_999).map(|nanos| nanos * 1_000));
        assert!(!many.is_exact);
        for (got, exact) in [(many.p50, 1e8), (many.p90, 1.8e8), (many.p99, 1.98e8)] {
            let got = got as f64;
            assert!(got <= exact && got >= exact * (1.0 - 1.0 / 128.0), "{got} for {exact}");
        }
        assert_eq!(many.longest, 199_999_000);
        // A percentile of approximated values must not fall below the shortest duration.
        let same = summary((0..100_000).map(|_| 1_001));
        assert_eq!([same.shortest, same.p50, same.p99, same.longest], [1_001; 4]);
    }
}
