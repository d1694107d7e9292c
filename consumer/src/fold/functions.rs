//! Weights of functions, without building the tree of a flame graph.

use super::{FoldOptions, Folder, choose, scaled, unit};
use crate::error::Error;
use crate::model::{ASLEEP, Model, SampleKey};
use crate::tree::Label;

/// Weights of the functions in a model.
#[derive(Debug)]
pub(crate) struct Functions {
    /// All functions on a stack.
    pub functions: Vec<Function>,
    /// Weight of all samples.
    pub total: u64,
    /// Unit of the weights.
    pub unit: &'static str,
    /// Weight of the truncated stacks.
    pub truncated: u64,
    /// Weight of the samples without a stack.
    pub without_stack: u64,
    /// Number of samples of sleeping threads that are not selected ([`ASLEEP`]).
    pub asleep: u64,
}

/// A function and the weight of the stacks that contain it.
#[derive(Debug)]
pub(crate) struct Function {
    pub label: Label,
    /// Weight of the stacks that end in it.
    pub own: u64,
    /// Weight of all stacks that contain it, each counted once.
    pub total: u64,
}

/// Adds up the selected samples by function, inlined or not. Threads and states are ignored: `options`
/// must not have a filter.
///
/// # Errors
/// As for [`super::fold`].
pub(crate) fn functions(model: &Model, options: &FoldOptions) -> Result<Functions, Error> {
    let kinds = choose(model, options)?;
    let unit = unit(model, options, &kinds)?;
    let mut sum =
        Functions { functions: Vec::new(), total: 0, unit, truncated: 0, without_stack: 0, asleep: 0 };
    let mut of_stacks = vec![0u64; model.stacks.len()];
    for (key, weight) in model.samples.iter().filter(|(key, _)| kinds.contains(&key.kind)) {
        let weight = scaled(model, options, key, *weight);
        let of_stack = match key.stack {
            Some(stack) => &mut of_stacks[stack.index()],
            None => &mut sum.without_stack,
        };
        *of_stack = of_stack.saturating_add(weight);
        sum.total = sum.total.saturating_add(weight);
    }
    let is_asleep = |key: &SampleKey| model.kinds.get(key.kind).variant.as_deref() == Some(ASLEEP);
    let left_out = model.samples.iter().filter(|(key, _)| is_asleep(key) && !kinds.contains(&key.kind));
    sum.asleep = left_out.map(|(_, weight)| weight.count).fold(0, u64::saturating_add);
    let options = &FoldOptions { merge_inlined: true, ..options.clone() };
    let mut folder = Folder::new(model, options);
    let mut sums: Vec<Sum> = Vec::new();
    for ((id, stack), weight) in model.stacks.iter().zip(of_stacks).filter(|&(_, weight)| weight > 0) {
        if stack.frames.is_empty() {
            sum.without_stack = sum.without_stack.saturating_add(weight);
        } else if stack.truncated {
            sum.truncated = sum.truncated.saturating_add(weight);
        }
        // The leaf comes first.
        for (at, &frame) in stack.frames.iter().enumerate() {
            let label = folder.frame(frame).index();
            if label >= sums.len() {
                sums.resize(label + 1, Sum::default());
            }
            let of = &mut sums[label];
            if at == 0 {
                of.own = of.own.saturating_add(weight);
            }
            if of.latest != Some(id.index()) {
                of.latest = Some(id.index());
                of.total = of.total.saturating_add(weight);
            }
        }
    }
    let labels = folder.into_labels().into_iter();
    sum.functions =
        labels.zip(sums).map(|(label, Sum { own, total, .. })| Function { label, own, total }).collect();
    Ok(sum)
}

#[derive(Clone, Copy, Default)]
struct Sum {
    own: u64,
    total: u64,
    /// The stack that was counted last.
    latest: Option<usize>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use jfr_format::read::Input;

    use super::super::{NO_STACK, TRUNCATED, fold};
    use super::*;
    use crate::load::{LoadOptions, load};

    /// The result equals the weights in the tree of a flame graph.
    #[test]
    fn function_weights_match_flame_graph() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let model =
                load(&mut Input::open(&path).unwrap(), &LoadOptions::default(), |_| {}).unwrap().model;
            let options = FoldOptions { split_modules: true, ..FoldOptions::default() };
            let tree = fold(&model, &options).unwrap();
            let found = functions(&model, &options).unwrap();

            let mut expected = BTreeMap::new();
            for (id, own, total) in tree.by_label() {
                let label = &tree.labels[id.index()];
                if total > 0 && ![NO_STACK, TRUNCATED].contains(&&*label.text) {
                    let function = (label.text.clone(), label.module.clone(), label.kind.function_kind());
                    assert_eq!(expected.insert(function, (own, total)), None, "{}", path.display());
                }
            }
            let weights = found
                .functions
                .iter()
                .map(|f| ((f.label.text.clone(), f.label.module.clone(), f.label.kind), (f.own, f.total)));
            assert_eq!(weights.collect::<BTreeMap<_, _>>(), expected, "{}", path.display());
            let roots = |marker: &str| -> u64 {
                let roots = tree.nodes.iter().filter(|n| n.depth == 0 && &*tree.label(n).text == marker);
                roots.map(|n| n.total).sum()
            };
            let (cut, without) = (found.truncated, found.without_stack);
            assert_eq!((found.total, cut, without), (tree.total, roots(TRUNCATED), roots(NO_STACK)));
        }
    }
}
