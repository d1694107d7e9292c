//! Two counters of the same stacks: widths show one of them, and colours its ratio to the other. With
//! cycles per instruction, for example, red boxes wait for memory, and blue ones do not.

use super::super::svg::thousands;
use crate::difference::{Change, Difference};

/// The two counters of the ratio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The counter that widths show: the second profile, e.g. `cycles`.
    pub of: String,
    /// The divisor: the first profile, e.g. `instructions`.
    pub over: String,
}

/// The factor between the ratio of a box and the total ratio at which the colour is strongest.
pub(in super::super) const FULLEST: f64 = 4.0;

impl Ratio {
    /// `cycles per instruction`.
    pub fn name(&self) -> String {
        format!("{} per {}", self.of, self.over.strip_suffix('s').unwrap_or(&self.over))
    }

    /// The ratio of a box; infinite if the divisor is 0 there. `before` is scaled to the total of the
    /// other counter.
    fn value(change: Change, scale: f64) -> f64 {
        change.after / change.before * scale
    }

    /// Returns the strength of red (0 to 1) or of blue (0 to -1); `None` if the ratio equals the total
    /// ratio or the difference may be noise.
    pub(super) fn tint(change: Change) -> Option<f64> {
        if change.noise || change.before == change.after {
            return None;
        }
        Some(((change.after / change.before).ln() / FULLEST.ln()).clamp(-1.0, 1.0))
    }

    /// Tooltip of a box.
    pub(super) fn title(&self, name: &str, of: Change, difference: &Difference) -> String {
        let recorded = (of.before / difference.scale).round();
        let told = match Self::value(of, difference.scale) {
            value if value.is_finite() => format!("{value:.2} {}", self.name()),
            _ => format!("no {}", self.over),
        };
        // Compares the text as shown, which hides rounding errors.
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

    /// A line for the total: `1.50 cycles per instruction of all`.
    pub fn total_line(&self, difference: &Difference) -> String {
        let all = difference.after.total as f64 / difference.before.total as f64;
        format!("{all:.2} {} of all", self.name())
    }
}
