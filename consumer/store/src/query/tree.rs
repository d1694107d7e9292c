//! Weights of stacks → tree. Each box is reached from its stacks once: own weights are put where stacks end, and added up downwards
//! afterwards, so no prefix is looked up for each stack that has it.

use std::sync::Arc;

use anyhow::Result;
use flightline_consumer::fold::{FoldOptions, NO_STACK};
use flightline_consumer::model::FrameKind;
use flightline_consumer::tree::{self, Builder, Label, LabelId, Tree};

use super::paths::{NONE, Paths};
use super::session::Session;
use super::weights::{Choice, Weights, weights};

/// Stands for a stack whose frames the store does not have.
pub const MISSING: &str = "[not in the store]";

/// A tree, and what could not be put into it as it was.
#[derive(Debug)]
pub struct Grown {
    /// The tree.
    pub tree: Tree,
    /// Weight of stacks that the store does not know; they are in the tree as [`MISSING`].
    pub missing: u64,
}

/// The tree of the samples chosen, frames named as `options` say.
///
/// # Errors
/// The condition is none, or the store cannot be read.
pub async fn grow(session: &Session, choice: Choice<'_>, options: &FoldOptions) -> Result<Grown> {
    let weights = weights(session, choice).await?;
    let stacks = weights.by_stack.keys().copied();
    let paths = Paths::read(session, choice.table, choice.filter, stacks, options).await?;
    Ok(paths.tree(&weights, choice.measure.unit()))
}

impl Paths {
    /// The tree of `weights`.
    pub fn tree(&self, weights: &Weights, unit: &str) -> Grown {
        let mut builder = Builder::with_room(self.steps.len());
        let mut own: Vec<u64> = vec![0; self.steps.len()];
        let mut used = vec![false; self.steps.len()];
        let mut missing = 0u64;
        for (stack, &weight) in &weights.by_stack {
            match self.ends.get(stack) {
                Some(&end) if end != NONE => {
                    own[end as usize] += weight;
                    let mut at = end as usize;
                    while !std::mem::replace(&mut used[at], true) && self.steps[at].parent != NONE {
                        at = self.steps[at].parent as usize;
                    }
                }
                Some(_) => builder.weigh(tree::NONE, weight),
                None => missing = missing.saturating_add(weight),
            }
        }
        let mut labels: Vec<Option<LabelId>> = vec![None; self.labels.len()];
        let mut boxes: Vec<u32> = Vec::with_capacity(self.steps.len());
        for (number, step) in self.steps.iter().enumerate() {
            if !used[number] {
                boxes.push(tree::NONE);
                continue;
            }
            let frame = step.frame as usize;
            let label = *labels[frame].get_or_insert_with(|| match &self.labels[frame] {
                Some(label) => builder.label(label.clone()),
                None => builder.label(marker(MISSING)),
            });
            let below = boxes.get(step.parent as usize).copied().unwrap_or(tree::NONE);
            let of_step = builder.child(below, label);
            builder.weigh(of_step, own[number]);
            boxes.push(of_step);
        }
        for (text, weight) in [(NO_STACK, weights.without), (MISSING, missing)] {
            if weight > 0 {
                let label = builder.label(marker(text));
                builder.add([label], weight);
            }
        }
        Grown { tree: builder.finish(unit), missing }
    }
}

fn marker(text: &str) -> Label {
    Label { text: Arc::from(text), module: None, kind: FrameKind::Marker }
}
