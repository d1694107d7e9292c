//! Builds the tree from the weights of stacks. Self weights are set where stacks end and summed towards the
//! root afterwards, so that shared prefixes are visited only once.

use std::sync::Arc;

use anyhow::Result;
use flightline_consumer::fold::{FoldOptions, NO_STACK};
use flightline_consumer::model::FrameKind;
use flightline_consumer::tree::{self, Builder, Label, LabelId, Tree};

use super::paths::{NONE, Paths};
use super::session::Session;
use super::weights::{Choice, Weights, weights};

/// Represents a stack whose frames are not in the store.
pub const MISSING: &str = "[not in the store]";

/// A tree, and the weight that could not be resolved.
#[derive(Debug)]
pub struct Grown {
    /// The tree.
    pub tree: Tree,
    /// Weight of unknown stacks; the tree contains them as [`MISSING`].
    pub missing: u64,
}

/// Builds the tree of the selected samples, with frames named by `options`.
///
/// # Errors
/// Returns an error if the condition is invalid or the store cannot be read.
pub async fn grow(session: &Session, choice: Choice<'_>, options: &FoldOptions) -> Result<Grown> {
    let weights = weights(session, choice).await?;
    let stacks = weights.by_stack.keys().copied();
    let paths = Paths::read(session, choice.table, choice.filter, stacks, options).await?;
    Ok(paths.tree(&weights, choice.measure.unit()))
}

impl Paths {
    /// Builds the tree of `weights`.
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
        let (labels, alone) = self.labels(&mut builder);
        // The node of each step, and whether other steps may share it.
        let mut boxes: Vec<(u32, bool)> = Vec::with_capacity(self.steps.len());
        for (number, step) in self.steps.iter().enumerate() {
            if !used[number] {
                boxes.push((tree::NONE, true));
                continue;
            }
            let (below, shared) = boxes.get(step.parent as usize).copied().unwrap_or((tree::NONE, false));
            let label = labels[step.frame as usize];
            let shared = shared || !alone[label.index()];
            // A step that does not share its node needs no lookup; usually none do.
            let of_step = if shared { builder.child(below, label) } else { builder.append(below, label) };
            builder.weigh(of_step, own[number]);
            boxes.push((of_step, shared));
        }
        for (text, weight) in [(NO_STACK, weights.without), (MISSING, missing)] {
            if weight > 0 {
                let label = builder.label(marker(text));
                builder.add([label], weight);
            }
        }
        Grown { tree: builder.finish(unit), missing }
    }

    /// Returns the labels of frames, and for each whether only one frame has it.
    fn labels(&self, builder: &mut Builder) -> (Vec<LabelId>, Vec<bool>) {
        let mut alone: Vec<bool> = Vec::new();
        let mut of_frame = |label: &Option<Label>| {
            let known = label.as_ref().filter(|label| label.kind != FrameKind::Marker);
            let id = builder.label(label.clone().unwrap_or_else(|| marker(MISSING)));
            match alone.get_mut(id.index()) {
                Some(alone) => *alone = false,
                // Markers also occur next to the stacks.
                None => alone.push(known.is_some()),
            }
            id
        };
        let labels = self.labels.iter().map(&mut of_frame).collect();
        (labels, alone)
    }
}

fn marker(text: &str) -> Label {
    Label { text: Arc::from(text), module: None, kind: FrameKind::Marker }
}
