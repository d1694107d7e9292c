//! Two profiles, box for box: what of each function there is more or less in the second.

use std::cmp::Ordering;

use crate::tree::{Label, Tree, aligned};

/// Two profiles over the same boxes.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The first profile; what only the second has weighs 0.
    pub before: Tree,
    /// The second; what only the first has weighs 0. It has the labels and boxes of `before`, in their order.
    pub after: Tree,
    /// What weights of the first are multiplied with to compare them.
    pub scale: f64,
    /// Average weight of a sample in the first and in the second.
    pub per_sample: [f64; 2],
    /// Standard deviations that a change must exceed to be more than chance.
    pub sigmas: f64,
}

/// How the first profile is made comparable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// To the total of the second, so that shares are compared.
    Normalized,
    /// By this number; 1 compares the weights as they are.
    By(f64),
}

/// A weight before and after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Before, scaled.
    pub before: f64,
    /// After.
    pub after: f64,
    /// Whether it may be chance.
    pub noise: bool,
}

impl Change {
    /// What there is more.
    pub fn delta(&self) -> f64 {
        self.after - self.before
    }
}

/// A function in both profiles.
#[derive(Clone, Debug)]
pub struct Row {
    /// The function.
    pub label: Label,
    /// Weight of the stacks that end in it.
    pub own: Change,
    /// Weight of the stacks it is in, each counted once.
    pub total: Change,
}

/// Which of a function's weights are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The one that changed more, upwards before downwards.
    #[default]
    Either,
    /// Of the stacks that end in it.
    Own,
    /// Of the stacks it is in.
    Total,
}

impl Row {
    /// The change that is looked at.
    pub fn by(&self, by: By) -> Change {
        match by {
            By::Own => self.own,
            By::Total => self.total,
            By::Either => {
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

/// Standard deviations usually asked for.
pub const SIGMAS: f64 = 2.0;

impl Difference {
    /// Puts two profiles over each other. Samples weigh 1 unless [`Difference::per_sample`] is set to something else.
    pub fn new(before: &Tree, after: &Tree, scale: Scale) -> Self {
        let mut placed = aligned(&[before, after]).into_iter();
        let mut next = || placed.next().expect("a tree for each");
        let (placed_before, placed_after) = (next(), next());
        let scale = match scale {
            Scale::Normalized if before.total > 0 && after.total > 0 => {
                after.total as f64 / before.total as f64
            }
            Scale::Normalized => 1.0,
            Scale::By(scale) => scale,
        };
        Self { before: placed_before, after: placed_after, scale, per_sample: [1.0; 2], sigmas: SIGMAS }
    }

    /// Totals of both, and how they are compared: normalised, or as they were recorded.
    pub fn totals(&self, normalized: bool) -> String {
        let Self { before, after, scale, .. } = self;
        let how = match normalized {
            false => "as recorded".to_owned(),
            true => format!("the first scaled by {scale:.4}"),
        };
        format!("{} → {} {}, {how}", before.total, after.total, after.unit)
    }

    /// Compares two weights: a change within [`Difference::sigmas`] standard deviations is noise. How many samples fall on
    /// something varies by the square root of their number.
    pub fn change(&self, before: u64, after: u64) -> Change {
        let scaled = before as f64 * self.scale;
        let variance = self.per_sample[0] * self.scale * scaled + self.per_sample[1] * after as f64;
        let delta = after as f64 - scaled;
        Change { before: scaled, after: after as f64, noise: delta.abs() <= self.sigmas * variance.sqrt() }
    }

    /// The change of the box at `position`: of all stacks through it.
    pub fn of_box(&self, position: usize) -> Change {
        self.change(self.before.nodes[position].total, self.after.nodes[position].total)
    }

    /// The change of the stacks that end in the box at `position`.
    pub fn of_box_alone(&self, position: usize) -> Change {
        self.change(self.before.nodes[position].own, self.after.nodes[position].own)
    }

    /// The change of all.
    pub fn all(&self) -> Change {
        self.change(self.before.total, self.after.total)
    }

    /// What 100 % is: the second profile if they were normalised, else the first.
    pub fn whole(&self) -> f64 {
        let before = self.before.total as f64 * self.scale;
        if before > 0.0 { before } else { self.after.total as f64 }
    }

    /// Weight of the paths that only the first has, scaled.
    pub fn vanished(&self) -> f64 {
        self.only(&self.before, &self.after) * self.scale
    }

    /// Weight of the paths that only the second has.
    pub fn appeared(&self) -> f64 {
        self.only(&self.after, &self.before)
    }

    fn only(&self, of: &Tree, other: &Tree) -> f64 {
        let nodes = of.nodes.iter().zip(&other.nodes);
        nodes.filter(|(_, other)| other.total == 0).map(|(node, _)| node.own as f64).sum()
    }

    /// All functions: first what is more than noise, those that changed most first.
    pub fn functions(&self, by: By) -> Vec<Row> {
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
            // Of those that call each other, the one that does the work.
            let own = b.own.delta().abs().total_cmp(&a.own.delta().abs());
            let name = |row: &Row| (row.label.text.clone(), row.label.module.clone(), row.label.kind);
            left.noise.cmp(&right.noise).then(sizes).then(own).then_with(|| name(a).cmp(&name(b)))
        });
        rows
    }

    /// The functions that grew by more than `percent` of [`Difference::whole`], and by more than noise.
    pub fn grown(&self, percent: f64, by: By) -> Vec<Row> {
        let limit = self.whole() * percent / 100.0;
        let mut rows = self.functions(by);
        rows.retain(|row| {
            let change = row.by(by);
            !change.noise && change.delta() > limit
        });
        rows
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
        difference.functions(By::Either).into_iter().map(|row| (row.label.text.clone(), row)).collect()
    }

    const BEFORE: &str = "gone;leaf 5\nroot;parent;a 10\nroot;parent;b 10\nroot;same 75\n";
    const AFTER: &str = "root;parent;a 30\nroot;parent;b 30\nroot;same 75\nroot;fresh 4\n";

    #[test]
    fn a_parent_changes_by_what_its_children_do() {
        let rows = by_name(&difference(BEFORE, AFTER, Scale::By(1.0)));
        let change = |name: &str| (rows[name].own.delta(), rows[name].total.delta());
        assert_eq!(change("parent"), (0.0, 40.0));
        assert_eq!(change("a"), (20.0, 20.0));
        assert_eq!(change("leaf"), (-5.0, -5.0));
        assert_eq!(change("same"), (0.0, 0.0));
        assert!(rows["same"].total.noise && !rows["parent"].total.noise);
    }

    #[test]
    fn changes_add_up_to_that_of_the_totals() {
        let difference = difference(BEFORE, AFTER, Scale::By(1.0));
        let own: f64 = (0..difference.after.nodes.len()).map(|i| difference.of_box_alone(i).delta()).sum();
        assert_eq!(own, 39.0);
        assert_eq!(difference.all().delta(), 39.0);
        assert_eq!((difference.vanished(), difference.appeared()), (5.0, 4.0));
    }

    #[test]
    fn twice_the_same_is_no_change_when_normalised() {
        let twice = BEFORE.replace("75", "150").replace("10", "20").replace(" 5", " 10");
        for (before, after) in [(BEFORE, &*twice), (&*twice, BEFORE)] {
            let difference = difference(before, after, Scale::Normalized);
            assert!(
                difference
                    .functions(By::Either)
                    .iter()
                    .all(|row| row.total.delta().abs() < 1e-9 && row.total.noise)
            );
        }
        // Single samples of the larger profile are not cut to nothing.
        let difference = difference("x 1\ny 999\n", "x 1\ny 1\n", Scale::Normalized);
        assert!(by_name(&difference)["x"].own.before > 0.0);
    }

    #[test]
    fn what_grew_by_more_than_is_allowed() {
        let difference = difference(BEFORE, AFTER, Scale::By(1.0));
        let grown = |percent: f64, by: By| -> Vec<String> {
            difference.grown(percent, by).iter().map(|row| row.label.text.to_string()).collect()
        };
        assert_eq!(grown(19.0, By::Own), ["a", "b"]);
        assert_eq!(grown(20.0, By::Own), [""; 0]);
        assert_eq!(grown(30.0, By::Total), ["root", "parent"]);
        assert_eq!(grown(19.0, By::Either), ["root", "parent", "a", "b"]);
        // `fresh`: 4 samples of nothing may be chance.
        assert!(!grown(1.0, By::Either).contains(&"fresh".to_owned()));
    }

    #[test]
    fn noise_goes_by_the_number_of_samples() {
        let noisy = |before: u64, after: u64, per_sample: f64| {
            let mut difference = difference("x 1\n", "x 1\n", Scale::By(1.0));
            difference.per_sample = [per_sample; 2];
            difference.change(before, after).noise
        };
        assert!(noisy(0, 1, 1.0) && noisy(0, 4, 1.0) && !noisy(0, 5, 1.0));
        assert!(noisy(100, 128, 1.0) && !noisy(100, 131, 1.0));
        // 5 ms more of 10 ms samples are half a sample.
        assert!(noisy(100_000_000, 105_000_000, 10_000_000.0));
        assert!(
            difference("x 1\n", "y 1\n", Scale::Normalized)
                .functions(By::Either)
                .iter()
                .all(|row| row.own.noise)
        );
    }
}
