//! Decides which allocations are sampled, and computes the weight of a sample.
//!
//! Sample points lie in the stream of allocated bytes like a Poisson process: gaps are exponential with the
//! interval as mean. An allocation of `s` bytes is sampled if a point falls into it, with probability `p = 1
//! − e^(−s/interval)`; it then represents `s / p` bytes, so that sums over samples are unbiased for any
//! mixture of sizes. After a sample a new gap is drawn, which is correct because the process is memoryless.
//!
//! Logarithm and exponential are computed here, because not every program has loaded the mathematical
//! library.

/// Returns the next 64 random bits (splitmix64).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform in (0, 1].
fn unit(random: u64) -> f64 {
    ((random >> 11) as f64 + 1.0) / 9_007_199_254_740_992.0
}

/// Natural logarithm of a normal positive number.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m − 1) / (m + 1)), |argument| < 0.172.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    let mut odd = 21.0;
    while odd > 0.0 {
        sum = sum * square + 1.0 / odd;
        odd -= 2.0;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * t * sum
}

/// `1 − e^(−x)` for `x` ≥ 0.
fn probability(x: f64) -> f64 {
    if x > 50.0 {
        return 1.0;
    }
    // Halve `x` until a short series is exact, then double by p(2y) = p(y) (2 − p(y)).
    let mut y = x;
    let mut halvings = 0;
    while y > 0.02 {
        y /= 2.0;
        halvings += 1;
    }
    let mut p = y * (1.0 - y / 2.0 * (1.0 - y / 3.0 * (1.0 - y / 4.0 * (1.0 - y / 5.0 * (1.0 - y / 6.0)))));
    for _ in 0..halvings {
        p *= 2.0 - p;
    }
    p
}

/// Returns the bytes until the next sample, drawn with this mean.
pub fn gap(interval: u64, state: &mut u64) -> u64 {
    if interval <= 1 {
        return 0;
    }
    (-ln(unit(next(state))) * interval as f64) as u64
}

/// Returns the bytes that a sample of `size` bytes represents. The fraction is rounded at random, so that
/// rounding has no bias either.
pub fn weight(size: usize, interval: u64, state: &mut u64) -> u64 {
    if interval <= 1 || size == 0 {
        return size as u64;
    }
    let exact = size as f64 / probability(size as f64 / interval as f64);
    (exact + (1.0 - unit(next(state)))) as u64
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn ln_and_probability_match_math_library() {
        let mut state = 7;
        for _ in 0..100_000 {
            let u = unit(next(&mut state));
            assert!((ln(u) - u.ln()).abs() <= 1e-14 * u.ln().abs() + 1e-15, "ln {u}");
            for x in [u, u * 1e-9, u * 60.0, u * 1e5] {
                let expected = -(-x).exp_m1();
                assert!((probability(x) - expected).abs() <= 1e-12 * expected, "p({x})");
            }
        }
    }

    #[test]
    fn sampling_gaps_are_exponentially_distributed() {
        let (mut state, n, interval) = (1, 400_000, 10_000u64);
        let gaps: std::vec::Vec<f64> = (0..n).map(|_| gap(interval, &mut state) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / n as f64;
        // Five standard errors.
        assert!((mean - 10_000.0).abs() < 5.0 * 10_000.0 / f64::from(n).sqrt(), "{mean}");
        for tenth in 1..30 {
            let x = f64::from(tenth) / 10.0;
            let share = gaps.iter().filter(|g| **g > x * 10_000.0).count() as f64 / f64::from(n);
            let expected = (-x).exp();
            let sigma = (expected * (1.0 - expected) / f64::from(n)).sqrt();
            assert!((share - expected).abs() < 5.0 * sigma, "beyond {x}: {share} {expected}");
        }
    }

    /// The sampler over a stream of mixed sizes: each size's estimate is right within five standard errors.
    #[test]
    fn estimates_are_unbiased_for_every_size() {
        let interval = 4096;
        let mut state = 3;
        for size in [1usize, 16, 100, 1000, 4096, 10_000, 100_000] {
            let n = (40_000_000 / size).clamp(20_000, 4_000_000);
            let mut left = gap(interval, &mut state);
            let mut estimate = 0f64;
            for _ in 0..n {
                match left.checked_sub(size as u64) {
                    Some(less) => left = less,
                    None => {
                        estimate += weight(size, interval, &mut state) as f64;
                        left = gap(interval, &mut state);
                    }
                }
            }
            let p = probability(size as f64 / interval as f64);
            let sigma = size as f64 / p * (n as f64 * p * (1.0 - p)).sqrt() + n as f64;
            let truth = (n * size) as f64;
            assert!((estimate - truth).abs() < 5.0 * sigma, "{size}: {estimate} of {truth}, sigma {sigma}");
        }
    }

    #[test]
    fn interval_one_samples_every_allocation() {
        let mut state = 1;
        assert_eq!((gap(1, &mut state), gap(0, &mut state)), (0, 0));
        assert_eq!((weight(7, 1, &mut state), weight(0, 9, &mut state)), (7, 0));
    }
}
