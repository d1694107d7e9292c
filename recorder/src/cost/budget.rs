//! The rate that a budget allows.

/// Most that intervals are stretched.
const LONGEST: f64 = 100.0;
/// What a second counts for in the mean.
const NEW_PART: f64 = 0.3;
/// Seconds after a change until what is measured tells of it.
const SETTLE: u32 = 3;
/// The same before recording may cost more again.
const PATIENCE: u32 = 8;
/// The same before it is said that nothing helps.
const CERTAIN: u32 = 30;
/// Aimed at: a little less than what is allowed.
const AIM: f64 = 0.9;
/// Below this part of the budget samples come more often again.
const ROOM: f64 = 0.7;
/// Of the budget: most for what is there at any rate, before that is made less.
const FIXED: f64 = 0.5;
/// Of the budget: least for samples, whatever else there is. A profile without samples would be worth nothing.
const SAMPLES: f64 = 0.25;
/// What the cost at a lower step of thrift was counts for so much a second later.
const FADE: f64 = 0.999;
/// Steps of thrift with what is there at any rate.
pub const STEPS: usize = 3;

/// Keeps a share of CPU time: by saying how much longer than asked for the intervals of sampling have to be, and how thrifty
/// to be with what is there at any rate.
#[derive(Clone, Debug)]
pub struct Budget {
    /// What recording may cost, of 1.
    pub share: f64,
    stretch: f64,
    thrift: usize,
    /// Cost at any rate, as a share, when each step of thrift was left.
    left: [f64; STEPS],
    /// Cost of samples, cost at any rate, and what they are a share of, per second, in the mean; `None` after a change.
    mean: Option<[f64; 3]>,
    seconds: u32,
    told: bool,
}

/// What follows from another second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Intervals have to be others from now on.
    pub other_rates: bool,
    /// The budget cannot be kept; said once.
    pub beyond: Option<Beyond>,
}

/// What it costs at least, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// All.
    pub cost: f64,
    /// Of it at any rate.
    pub fixed: f64,
}

impl Budget {
    /// Nothing is stretched yet.
    pub fn new(share: f64) -> Budget {
        Budget { share, stretch: 1.0, thrift: 0, left: [0.0; STEPS], mean: None, seconds: 0, told: false }
    }

    /// How much longer intervals are than asked for, at least 1.
    pub fn stretch(&self) -> f64 {
        self.stretch
    }

    /// How thrifty to be with what is there at any rate, below [`STEPS`].
    pub fn thrift(&self) -> usize {
        self.thrift
    }

    /// Intervals are as asked for again.
    pub fn reset(&mut self) {
        *self = Budget { told: self.told, ..Budget::new(self.share) };
    }

    /// Another second of `base_ns` cost `samples_ns` for samples and `fixed_ns` at any rate.
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
        // For samples, as parts of the budget.
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
        let beyond = (over && self.seconds >= CERTAIN && !self.told)
            .then_some(Beyond { cost: used * self.share, fixed: fixed * self.share });
        self.told |= beyond.is_some();
        Verdict { other_rates: false, beyond }
    }

    /// What was measured so far was of something else.
    fn changed(&mut self) -> Verdict {
        (self.mean, self.seconds) = (None, 0);
        Verdict::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that uses `processors`, each sample costs `each`, the rest of the recorder `fixed` a second and half of it at
    /// each step of thrift.
    struct Load {
        rate: f64,
        processors: f64,
        each: f64,
        fixed: f64,
    }

    /// Share that it costs after 200 seconds, changes in the last 100, what was said.
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
    fn the_cost_stays_under_the_budget_and_the_rate_settles() {
        for (rate, processors, each) in [(1000.0, 1.0, 30e3), (1000.0, 8.0, 30e3), (99.0, 0.5, 200e3)] {
            let mut budget = Budget::new(0.005);
            let mut load = Load { rate, processors, each, fixed: 1e6 };
            let (share, changes, said) = settle(&mut budget, &load);
            assert!(share <= 0.005 && share > 0.003, "{rate} Hz, {processors}: {share}");
            assert_eq!((changes, said.len(), budget.thrift()), (0, 0, 0), "it stays");
            assert!(budget.stretch() > 1.0);
            // The load goes: the rate that was asked for comes back.
            load.processors = 0.01;
            let (_, changes, _) = settle(&mut budget, &load);
            assert_eq!((budget.stretch(), changes), (1.0, 0));
        }
    }

    #[test]
    fn within_the_budget_nothing_changes() {
        let mut budget = Budget::new(0.01);
        let load = Load { rate: 99.0, processors: 1.0, each: 30e3, fixed: 1e6 };
        assert_eq!(settle(&mut budget, &load), (0.00397, 0, Vec::new()));
        assert_eq!((budget.stretch(), budget.thrift()), (1.0, 0));
    }

    #[test]
    fn fixed_cost_is_reduced_before_the_sampling_rate() {
        // Half a percent, of which 0.4 % is there at any rate: at 99 Hz samples need 0.15 %.
        let mut budget = Budget::new(0.005);
        let mut load = Load { rate: 99.0, processors: 1.0, each: 15e3, fixed: 4e6 };
        let (share, changes, said) = settle(&mut budget, &load);
        assert_eq!((budget.stretch(), budget.thrift(), changes, said.len()), (1.0, 1, 0, 0), "{share}");
        assert!(share < 0.005, "{share}");
        // With less of it everything is as it was.
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
        // A quarter of the budget is theirs.
        assert!((10.0..13.0).contains(&budget.stretch()), "{}", budget.stretch());
        assert!(settle(&mut budget, &load).2.is_empty());
    }
}
