//! Compares two profiles, box by box and function by function.
//!
//! This is the only place that decides what a change is, and whether it may be noise.

use std::cmp::Ordering;

use crate::tree::{Label, Tree, aligned};

/// Two profiles over the same boxes.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The first profile. Boxes that exist only in the second have weight 0.
    pub before: Tree,
    /// The second profile, with the labels and boxes of `before` in the same order. Boxes that exist only
    /// in the first have weight 0.
    pub after: Tree,
    /// Factor for weights of the first profile when they are compared.
    pub scale: f64,
    /// How `scale` was chosen.
    pub compared: Scale,
    /// Average weight of a sample in the first and in the second.
    pub per_sample: [f64; 2],
    /// Standard deviations that a change must exceed to be significant.
    pub sigmas: f64,
}

/// How the weights of the first profile are scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// To the total of the second profile, which compares shares.
    Normalized,
    /// By this factor; 1 compares the weights as recorded.
    By(f64),
    /// By the amounts of work in the first and in the second profile, which compares weights per unit of
    /// work.
    PerWork([f64; 2]),
}

/// A weight before and after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Weight before, scaled.
    pub before: f64,
    /// Weight after.
    pub after: f64,
    /// Standard deviation of the difference, in the unit of the weights, estimated from the numbers of
    /// samples.
    pub deviation: f64,
    /// True if the change may be chance.
    pub noise: bool,
}

impl Change {
    /// Returns the growth of the weight.
    pub fn delta(&self) -> f64 {
        self.after - self.before
    }

    /// Returns the growth in percent of the weight before; infinite if that was 0.
    pub fn relative(&self) -> f64 {
        if self.delta() == 0.0 { 0.0 } else { self.delta() / self.before * 100.0 }
    }
}

/// A function in both profiles.
#[derive(Clone, Debug)]
pub struct Row {
    /// The function.
    pub label: Label,
    /// Weight of the stacks that end in the function.
    pub own: Change,
    /// Weight of the stacks that contain the function, each counted once.
    pub total: Change,
}

/// Selects which of a function's weights to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompareBy {
    /// The weight that changed more; growth takes precedence over decline.
    #[default]
    Either,
    /// The weight of the stacks that end in the function.
    Own,
    /// The weight of the stacks that contain the function.
    Total,
}

impl Row {
    /// Returns the selected change.
    pub fn by(&self, by: CompareBy) -> Change {
        match by {
            CompareBy::Own => self.own,
            CompareBy::Total => self.total,
            CompareBy::Either => {
                let rank = |change: &Change| (!change.noise, change.delta() > 0.0);
                match rank(&self.own).cmp(&rank(&self.total)) {
                    Ordering::Greater => self.own,
                    Ordering::Less => self.total,
                    Ordering::Equal if self.own.delta().abs() >= self.total.delta().abs() => self.own,
                    Ordering::Equal => self.total,
                }
            }
        }
    }
}

/// Default for [`Difference::sigmas`].
pub const SIGMAS: f64 = 2.0;

impl Difference {
    /// Aligns two profiles. Each sample has weight 1 unless [`Difference::per_sample`] is changed.
    pub fn new(before: &Tree, after: &Tree, scale: Scale) -> Self {
        let mut placed = aligned(&[before, after]).into_iter();
        let mut next = || placed.next().expect("a tree for each");
        let (placed_before, placed_after) = (next(), next());
        let compared = scale;
        let scale = match scale {
            Scale::Normalized if before.total > 0 && after.total > 0 => {
                after.total as f64 / before.total as f64
            }
            Scale::Normalized => 1.0,
            Scale::By(scale) => scale,
            Scale::PerWork([before, after]) => after / before,
        };
        let (before, after) = (placed_before, placed_after);
        Self { before, after, scale, compared, per_sample: [1.0; 2], sigmas: SIGMAS }
    }

    /// Describes the totals of both profiles and how they are compared.
    pub fn totals(&self) -> String {
        let Self { before, after, scale, .. } = self;
        let how = match self.compared {
            Scale::By(1.0) => "as recorded".to_owned(),
            Scale::Normalized | Scale::By(_) => format!("the first scaled by {scale:.4}"),
            Scale::PerWork(work) => {
                let each = [before.total as f64 / work[0], after.total as f64 / work[1]].map(four_digits);
                let change = percent_more(self.total().relative());
                format!(
                    "{} → {} per unit of work ({change}), the first scaled by {scale:.4}",
                    each[0], each[1]
                )
            }
        };
        format!("{} → {} {}, {how}", before.total, after.total, after.unit)
    }

    /// Returns the change of the total: per unit of work if the profiles are compared that way, else as
    /// recorded.
    pub fn total(&self) -> Change {
        let scale = if self.compared == Scale::Normalized { 1.0 } else { self.scale };
        self.scaled_change(self.before.total, self.after.total, scale, self.sigmas)
    }

    /// Compares two weights. A change within [`Difference::sigmas`] standard deviations is noise: a
    /// number of samples has a standard deviation of its square root.
    pub fn change(&self, before: u64, after: u64) -> Change {
        self.scaled_change(before, after, self.scale, self.sigmas)
    }

    fn scaled_change(&self, before: u64, after: u64, scale: f64, sigmas: f64) -> Change {
        let scaled = before as f64 * scale;
        let variance = self.per_sample[0] * scale * scaled + self.per_sample[1] * after as f64;
        let deviation = variance.sqrt();
        let delta = after as f64 - scaled;
        Change { before: scaled, after: after as f64, deviation, noise: delta.abs() <= sigmas * deviation }
    }

    /// Returns the change of the box at `position`: of all stacks through it.
    pub fn box_change(&self, position: usize) -> Change {
        self.change(self.before.nodes[position].total, self.after.nodes[position].total)
    }

    /// Returns the change of the stacks that end in the box at `position`.
    pub fn own_box_change(&self, position: usize) -> Change {
        self.change(self.before.nodes[position].own, self.after.nodes[position].own)
    }

    /// Returns the weight that counts as 100 %: the second profile's if normalized, else the first one's.
    pub fn whole(&self) -> f64 {
        let before = self.before.total as f64 * self.scale;
        if before > 0.0 { before } else { self.after.total as f64 }
    }

    /// Returns the weight of the paths that exist only in the first profile, scaled.
    pub fn vanished(&self) -> f64 {
        self.only(&self.before, &self.after) * self.scale
    }

    /// Returns the weight of the paths that exist only in the second profile.
    pub fn appeared(&self) -> f64 {
        self.only(&self.after, &self.before)
    }

    fn only(&self, of: &Tree, other: &Tree) -> f64 {
        let nodes = of.nodes.iter().zip(&other.nodes);
        nodes.filter(|(_, other)| other.total == 0).map(|(node, _)| node.own as f64).sum()
    }

    /// Returns all functions: significant changes before noise, then by size of the change.
    pub fn functions(&self, by: CompareBy) -> Vec<Row> {
        let [before, after] = [&self.before, &self.after].map(Tree::by_label);
        let rows = before.into_iter().zip(after).map(|((id, own, total), (_, own_after, total_after))| Row {
            label: self.after.labels[id.index()].clone(),
            own: self.change(own, own_after),
            total: self.change(total, total_after),
        });
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_by(|a, b| {
            let (left, right) = (a.by(by), b.by(by));
            let sizes = right.delta().abs().total_cmp(&left.delta().abs());
            // If functions call each other, the one that does the work comes first.
            let own = b.own.delta().abs().total_cmp(&a.own.delta().abs());
            let name = |row: &Row| (row.label.text.clone(), row.label.module.clone(), row.label.kind);
            left.noise.cmp(&right.noise).then(sizes).then(own).then_with(|| name(a).cmp(&name(b)))
        });
        rows
    }

    /// Returns the functions that grew by more than the limits, and significantly.
    ///
    /// With many functions, chance makes some of them grow by more than [`Difference::sigmas`] standard
    /// deviations. The largest of n normal deviations is about √(2 ln n) (Donoho and Johnstone, "Ideal
    /// spatial adaptation by wavelet shrinkage", 1994), so a function must also grow by more than this.
    pub fn grown(&self, limits: &Limits, by: CompareBy) -> Vec<Row> {
        let whole = self.whole();
        let mut rows = self.functions(by);
        let sigmas = self.sigmas.max((2.0 * (rows.len().max(1) as f64).ln()).sqrt());
        let exceeds =
            |change: Change| change.delta() > sigmas * change.deviation && limits.exceeded(change, whole);
        rows.retain(|row| match by {
            CompareBy::Either => exceeds(row.own) || exceeds(row.total),
            CompareBy::Own | CompareBy::Total => exceeds(row.by(by)),
        });
        rows
    }
}

/// Share of the profile, in percent, that a function needs for its relative growth to be judged.
pub const LEAST_SHARE: f64 = 1.0;

/// Limits for the growth of functions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Limit in percentage points of [`Difference::whole`].
    pub points: Option<f64>,
    /// Limit in percent of the function's weight before. Functions with less than [`LEAST_SHARE`] of the
    /// second profile are not judged.
    pub relative: Option<f64>,
}

impl Limits {
    /// Returns true if a change exceeds a limit, in a profile with weight `whole`.
    pub fn exceeded(&self, change: Change, whole: f64) -> bool {
        let share = |weight: f64| weight / whole * 100.0;
        let relative = |percent: f64| share(change.after) >= LEAST_SHARE && change.relative() > percent;
        self.points.is_some_and(|points| share(change.delta()) > points)
            || self.relative.is_some_and(relative)
    }
}

/// Formats a number with four significant digits.
fn four_digits(number: f64) -> String {
    let decimals = if number >= 1000.0 || number == 0.0 { 0 } else { 3 - number.log10().floor() as i32 };
    format!("{number:.*}", usize::try_from(decimals.clamp(0, 12)).unwrap_or(0))
}

/// Formats growth in percent, as `+12.50 %`.
pub fn percent_more(percent: f64) -> String {
    match percent {
        _ if percent.is_infinite() => "new".to_owned(),
        _ if percent < 0.0 => format!("−{:.2} %", -percent),
        _ => format!("+{percent:.2} %"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;
    use crate::folded;

    fn difference(before: &str, after: &str, scale: Scale) -> Difference {
        let tree = |text: &str| folded::read(text.as_bytes()).unwrap();
        Difference::new(&tree(before), &tree(after), scale)
    }

    fn by_name(difference: &Difference) -> HashMap<Arc<str>, Row> {
        difference.functions(CompareBy::Either).into_iter().map(|row| (row.label.text.clone(), row)).collect()
    }

    const BEFORE: &str = "gone;leaf 5\nroot;parent;a 10\nroot;parent;b 10\nroot;same 75\n";
    const AFTER: &str = "root;parent;a 30\nroot;parent;b 30\nroot;same 75\nroot;fresh 4\n";

    #[test]
    fn parent_change_equals_sum_over_children() {
        let rows = by_name(&difference(BEFORE, AFTER, Scale::By(1.0)));
        let change = |name: &str| (rows[name].own.delta(), rows[name].total.delta());
        assert_eq!(change("parent"), (0.0, 40.0));
        assert_eq!(change("a"), (20.0, 20.0));
        assert_eq!(change("leaf"), (-5.0, -5.0));
        assert_eq!(change("same"), (0.0, 0.0));
        assert!(rows["same"].total.noise && !rows["parent"].total.noise);
    }

    #[test]
    fn node_changes_add_up_to_total_change() {
        let difference = difference(BEFORE, AFTER, Scale::By(1.0));
        let own: f64 = (0..difference.after.nodes.len()).map(|i| difference.own_box_change(i).delta()).sum();
        assert_eq!(own, 39.0);
        assert_eq!(difference.total().delta(), 39.0);
        assert_eq!((difference.vanished(), difference.appeared()), (5.0, 4.0));
    }

    #[test]
    fn doubled_profile_is_unchanged_when_normalized() {
        let twice = BEFORE.replace("75", "150").replace("10", "20").replace(" 5", " 10");
        for (before, after) in [(BEFORE, &*twice), (&*twice, BEFORE)] {
            let difference = difference(before, after, Scale::Normalized);
            assert!(
                difference
                    .functions(CompareBy::Either)
                    .iter()
                    .all(|row| row.total.delta().abs() < 1e-9 && row.total.noise)
            );
        }
        // Scaling does not round single samples of the larger profile to 0.
        let difference = difference("x 1\ny 999\n", "x 1\ny 1\n", Scale::Normalized);
        assert!(by_name(&difference)["x"].own.before > 0.0);
    }

    #[test]
    fn functions_growing_beyond_limit_are_listed() {
        let difference = difference(BEFORE, AFTER, Scale::By(1.0));
        let grown = |points: f64, by: CompareBy| -> Vec<String> {
            let limits = Limits { points: Some(points), relative: None };
            difference.grown(&limits, by).iter().map(|row| row.label.text.to_string()).collect()
        };
        assert_eq!(grown(19.0, CompareBy::Own), ["a", "b"]);
        assert_eq!(grown(20.0, CompareBy::Own), [""; 0]);
        assert_eq!(grown(30.0, CompareBy::Total), ["root", "parent"]);
        assert_eq!(grown(19.0, CompareBy::Either), ["root", "parent", "a", "b"]);
        // `fresh` grew from nothing to 4 samples, which may be chance.
        assert!(!grown(1.0, CompareBy::Either).contains(&"fresh".to_owned()));
    }

    fn grown_relatively(before: &str, after: &str, percent: f64) -> Vec<String> {
        let limits = Limits { points: None, relative: Some(percent) };
        let rows = difference(before, after, Scale::Normalized).grown(&limits, CompareBy::Own);
        rows.iter().map(|row| row.label.text.to_string()).collect()
    }

    #[test]
    fn fourfold_growth_exceeds_relative_limit() {
        // From 1.46 % to 5.89 % of the profile: 4.43 points.
        let (before, after) = ("f 146\nrest 9854\n", "f 589\nrest 9411\n");
        assert_eq!(grown_relatively(before, after, 50.0), ["f"]);
        assert_eq!(grown_relatively(before, after, 310.0), [""; 0]);
        let limits = Limits { points: Some(5.0), relative: None };
        assert!(difference(before, after, Scale::Normalized).grown(&limits, CompareBy::Either).is_empty());
        // The function has less than one percent of the second profile.
        assert_eq!(grown_relatively("f 10\nrest 9990\n", "f 90\nrest 9910\n", 50.0), [""; 0]);
    }

    #[test]
    fn random_growth_in_one_function_among_many_is_ignored() {
        // 100 functions of 100 samples; one has 130 the next time: 2.0 of its standard deviations, below √(2 ln 100) = 3.03.
        let profile = |first: u64| {
            let mut text = format!("f0 {first}\n");
            (1..100).for_each(|n| text += &format!("f{n} 100\n"));
            text
        };
        assert_eq!(grown_relatively(&profile(100), &profile(132), 20.0), [""; 0]);
        assert_eq!(grown_relatively(&profile(100), &profile(160), 20.0), ["f0"]);
    }

    #[test]
    fn work_done_scales_the_first_profile() {
        let (before, after) = ("main;a 1000\nmain;b 1000\n", "main;a 1500\nmain;b 500\n");
        let difference = difference(before, after, Scale::PerWork([20.0, 40.0]));
        let rows = by_name(&difference);
        assert_eq!((rows["a"].own.before, rows["a"].own.after), (2000.0, 1500.0));
        assert_eq!(difference.total().relative(), -50.0);
        let totals =
            "2000 → 2000 samples, 100.0 → 50.00 per unit of work (−50.00 %), the first scaled by 2.0000";
        assert_eq!(difference.totals(), totals);
    }

    #[test]
    fn normalized_comparison_reports_unscaled_totals() {
        let normalized = difference("f 1000\n", "f 2000\n", Scale::Normalized);
        assert_eq!((normalized.total().relative(), normalized.total().noise), (100.0, false));
        assert_eq!(normalized.totals(), "1000 → 2000 samples, the first scaled by 2.0000");
    }

    #[test]
    fn noise_depends_on_sample_count() {
        let noisy = |before: u64, after: u64, per_sample: f64| {
            let mut difference = difference("x 1\n", "x 1\n", Scale::By(1.0));
            difference.per_sample = [per_sample; 2];
            difference.change(before, after).noise
        };
        assert!(noisy(0, 1, 1.0) && noisy(0, 4, 1.0) && !noisy(0, 5, 1.0));
        assert!(noisy(100, 128, 1.0) && !noisy(100, 131, 1.0));
        // 5 ms more, with samples of 10 ms, is half a sample.
        assert!(noisy(100_000_000, 105_000_000, 10_000_000.0));
        assert!(
            difference("x 1\n", "y 1\n", Scale::Normalized)
                .functions(CompareBy::Either)
                .iter()
                .all(|row| row.own.noise)
        );
    }
}
