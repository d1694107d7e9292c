//! Computes the sampling rate that a cost budget allows.

/// Upper limit of the factor by which intervals are stretched.
const LONGEST: f64 = 100.0;
/// Weight of the last second in the moving average.
const NEW_PART: f64 = 0.3;
/// Seconds after a change before measurements reflect it.
const SETTLE: u32 = 3;
/// Seconds after a change before the cost may rise again.
const PATIENCE: u32 = 8;
/// Seconds after a change before the budget is reported as unattainable.
const CERTAIN: u32 = 30;
/// Target as a part of the budget, slightly below the limit.
const AIM: f64 = 0.9;
/// Below this part of the budget, the sampling rate rises again.
const ROOM: f64 = 0.7;
/// Upper limit of the fixed cost, as a part of the budget. Above it, the fixed cost is reduced first.
const FIXED: f64 = 0.5;
/// Lower limit of the share for samples, as a part of the budget. A profile without samples would be
/// worthless.
const SAMPLES: f64 = 0.25;
/// Factor per second by which the remembered cost of lower thrift levels decays.
const FADE: f64 = 0.999;
/// Thrift levels: how far the fixed cost is reduced.
pub const STEPS: usize = 3;

/// Keeps the cost of recording within a share of CPU time. It computes the factor by which sampling intervals
/// are stretched, and the thrift level for fixed costs.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Share of CPU time that recording may cost, 0 to 1.
    pub share: f64,
    stretch: f64,
    thrift: usize,
    /// Fixed cost, as a part of the budget, when each thrift level was left.
    left: [f64; STEPS],
    /// Moving averages per second: cost of samples, fixed cost, and the CPU time they are a share of; `None`
    /// after a change.
    mean: Option<[f64; 3]>,
    seconds: u32,
    beyond_reported: bool,
}

/// The decision after another second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The sampling intervals have changed.
    pub other_rates: bool,
    /// The budget cannot be met; reported once.
    pub beyond: Option<Beyond>,
}

/// The lowest cost that is possible, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// The total.
    pub cost: f64,
    /// The fixed part of it.
    pub fixed: f64,
}

impl Budget {
    /// Returns a budget without stretched intervals.
    pub fn new(share: f64) -> Budget {
        Budget {
            share,
            stretch: 1.0,
            thrift: 0,
            left: [0.0; STEPS],
            mean: None,
            seconds: 0,
            beyond_reported: false,
        }
    }

    /// Returns the factor by which intervals are stretched, at least 1.
    pub fn stretch(&self) -> f64 {
        self.stretch
    }

    /// Returns the thrift level for fixed costs, below [`STEPS`].
    pub fn thrift(&self) -> usize {
        self.thrift
    }

    /// Returns to the selected intervals.
    pub fn reset(&mut self) {
        *self = Budget { beyond_reported: self.beyond_reported, ..Budget::new(self.share) };
    }

    /// Adds one second: in `base_ns` of CPU time, samples cost `samples_ns` and the rest `fixed_ns`.
    pub fn second(&mut self, samples_ns: u64, fixed_ns: u64, base_ns: u64) -> Verdict {
        self.seconds += 1;
        self.left.iter_mut().for_each(|left| *left *= FADE);
        let new = [samples_ns, fixed_ns, base_ns.max(1)].map(|ns| ns as f64);
        let mean = self.mean.map_or(new, |mean| [0, 1, 2].map(|i| mean[i] + NEW_PART * (new[i] - mean[i])));
        self.mean = Some(mean);
        let [samples, fixed] = [0, 1].map(|i| mean[i] / mean[2] / self.share);
        let used = samples + fixed;
        let over = used > 1.0 && self.seconds >= SETTLE;
        let room = used < ROOM && self.seconds >= PATIENCE;
        if over && fixed > FIXED && self.thrift + 1 < STEPS {
            self.left[self.thrift] = fixed;
            self.thrift += 1;
            return self.changed();
        }
        // The part of the budget that samples may use.
        let allowed = (AIM - fixed).max(SAMPLES);
        let factor = match (over, room) {
            (true, _) => (samples / allowed).clamp(1.0, 4.0),
            (_, true) => (samples / allowed).clamp(0.5, 1.0),
            _ => return Verdict::default(),
        };
        let stretch = (self.stretch * factor).clamp(1.0, LONGEST);
        if (stretch / self.stretch - 1.0).abs() >= 0.05 {
            self.stretch = stretch;
            return Verdict { other_rates: true, ..self.changed() };
        }
        if room && self.thrift > 0 && samples + self.left[self.thrift - 1].max(fixed) < AIM {
            self.thrift -= 1;
            return self.changed();
        }
        let beyond = (over && self.seconds >= CERTAIN && !self.beyond_reported)
            .then_some(Beyond { cost: used * self.share, fixed: fixed * self.share });
        self.beyond_reported |= beyond.is_some();
        Verdict { other_rates: false, beyond }
    }

    /// Discards the averages, which describe the state before the change.
    fn changed(&mut self) -> Verdict {
        (self.mean, self.seconds) = (None, 0);
        Verdict::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that uses `processors`. Each sample costs `each` ns; the rest of the recorder costs `fixed`
    /// ns per second, halved at each thrift level.
    struct Load {
        rate: f64,
        processors: f64,
        each: f64,
        fixed: f64,
    }

    /// Returns the share after 200 seconds, the number of changes in the last 100, and the reports.
    fn settle(budget: &mut Budget, load: &Load) -> (f64, u32, Vec<Beyond>) {
        let (mut changes, mut said) = (0, Vec::new());
        let base = load.processors.max(1.0) * 1e9;
        let cost = |budget: &Budget| {
            let samples = load.rate * load.processors / budget.stretch() * load.each;
            [samples, load.fixed / (1 << budget.thrift()) as f64]
        };
        for second in 0..200 {
            let ([samples, fixed], thrift) = (cost(budget), budget.thrift());
            let verdict = budget.second(samples as u64, fixed as u64, base as u64);
            said.extend(verdict.beyond);
            changes += u32::from(second >= 100 && (verdict.other_rates || budget.thrift() != thrift));
        }
        (cost(budget).iter().sum::<f64>() / base, changes, said)
    }

    #[test]
    fn cost_stays_within_budget_and_rate_settles() {
        for (rate, processors, each) in [(1000.0, 1.0, 30e3), (1000.0, 8.0, 30e3), (99.0, 0.5, 200e3)] {
            let mut budget = Budget::new(0.005);
            let mut load = Load { rate, processors, each, fixed: 1e6 };
            let (share, changes, said) = settle(&mut budget, &load);
            assert!(share <= 0.005 && share > 0.003, "{rate} Hz, {processors}: {share}");
            assert_eq!((changes, said.len(), budget.thrift()), (0, 0, 0), "it stays");
            assert!(budget.stretch() > 1.0);
            // When the load falls, the selected rate returns.
            load.processors = 0.01;
            let (_, changes, _) = settle(&mut budget, &load);
            assert_eq!((budget.stretch(), changes), (1.0, 0));
        }
    }

    #[test]
    fn settings_are_unchanged_within_budget() {
        let mut budget = Budget::new(0.01);
        let load = Load { rate: 99.0, processors: 1.0, each: 30e3, fixed: 1e6 };
        assert_eq!(settle(&mut budget, &load), (0.00397, 0, Vec::new()));
        assert_eq!((budget.stretch(), budget.thrift()), (1.0, 0));
    }

    #[test]
    fn fixed_cost_is_reduced_before_the_sampling_rate() {
        // Half a percent, including 0.4 % of fixed cost. At 99 Hz, samples need 0.15 %.
        let mut budget = Budget::new(0.005);
        let mut load = Load { rate: 99.0, processors: 1.0, each: 15e3, fixed: 4e6 };
        let (share, changes, said) = settle(&mut budget, &load);
        assert_eq!((budget.stretch(), budget.thrift(), changes, said.len()), (1.0, 1, 0, 0), "{share}");
        assert!(share < 0.005, "{share}");
        // With a lower fixed cost, everything returns to normal.
        load.fixed = 5e5;
        settle(&mut budget, &load);
        assert_eq!((budget.stretch(), budget.thrift()), (1.0, 0));
    }

    #[test]
    fn cost_above_budget_at_any_rate_is_reported_once_and_sampling_continues() {
        let mut budget = Budget::new(0.001);
        let load = Load { rate: 99.0, processors: 1.0, each: 30e3, fixed: 1e7 };
        let (share, changes, said) = settle(&mut budget, &load);
        assert_eq!((budget.thrift(), changes, said.len()), (STEPS - 1, 0, 1));
        let [Beyond { cost, fixed }] = said[..] else { unreachable!() };
        assert!((cost - share).abs() < 1e-4 && (fixed - 0.0025).abs() < 1e-9, "{cost} {fixed}");
        // Samples get a quarter of the budget.
        assert!((10.0..13.0).contains(&budget.stretch()), "{}", budget.stretch());
        assert!(settle(&mut budget, &load).2.is_empty());
    }
}
