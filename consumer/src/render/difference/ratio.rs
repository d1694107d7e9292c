//! Two counters of the same stacks: as wide as one of them, coloured by how many of it there are for one of the other. Cycles per
//! instruction, for one: red where a program waits for its memory, blue where it does not.

use super::super::svg::thousands;
use crate::difference::{Change, Difference};

/// What is divided by what, and what that is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The counter that widths are of: the second profile, e.g. `cycles`.
    pub of: String,
    /// The one it is divided by: the first profile, e.g. `instructions`.
    pub over: String,
}

/// A box whose ratio is this many times the whole's, or this part of it, has the fullest colour.
pub(in super::super) const FULLEST: f64 = 4.0;

impl Ratio {
    /// `cycles per instruction`.
    pub fn name(&self) -> String {
        format!("{} per {}", self.of, self.over.strip_suffix('s').unwrap_or(&self.over))
    }

    /// Of a box; infinite if nothing of the other counter was seen there. `before` is scaled to the sum of the other counter.
    fn value(change: Change, scale: f64) -> f64 {
        change.after / change.before * scale
    }

    /// How red, from 0 to 1, or how blue, from 0 to -1; none if the ratio is that of all, or no other but by chance.
    pub(super) fn tint(change: Change) -> Option<f64> {
        if change.noise || change.before == change.after {
            return None;
        }
        Some(((change.after / change.before).ln() / FULLEST.ln()).clamp(-1.0, 1.0))
    }

    /// What is told under the pointer.
    pub(super) fn title(&self, name: &str, of: Change, difference: &Difference) -> String {
        let recorded = (of.before / difference.scale).round();
        let told = match Self::value(of, difference.scale) {
            value if value.is_finite() => format!("{value:.2} {}", self.name()),
            _ => format!("no {}", self.over),
        };
        // As written, which hides what rounding leaves of none.
        let other = of.before == 0.0 || (of.after / of.before - 1.0).abs() > 0.005;
        let noise = if of.noise && other { ", may be that of all" } else { "" };
        let share = of.after / difference.after.total.max(1) as f64 * 100.0;
        format!(
            "{name} ({} {}, {share:.2}%; {} {}; {told}{noise})",
            thousands(of.after as u64),
            self.of,
            thousands(recorded as u64),
            self.over
        )
    }

    /// A line for all: `1.50 cycles per instruction of all`.
    pub fn told(&self, difference: &Difference) -> String {
        let all = difference.after.total as f64 / difference.before.total as f64;
        format!("{all:.2} {} of all", self.name())
    }
}
