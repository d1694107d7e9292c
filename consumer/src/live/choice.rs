//! Selects samples of a stream.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::item::{Item, Sample, Stack};
use crate::fold::{Filter, FoldOptions, NO_STACK, NO_THREAD, TRUNCATED, UNKNOWN_PROCESS, label};
use crate::model::Thread;

/// Maximum number of cached threads and stacks.
const MOST: usize = 1 << 14;

/// Decides which samples pass a filter and lie within a time range. Filters are applied to the names used
/// in folded text.
#[derive(Debug)]
pub struct Choice {
    filter: Filter,
    range: [i64; 2],
    /// By address. The stored references keep an address from being reused.
    threads: HashMap<usize, (Arc<Thread>, bool), KeyHash>,
    stacks: HashMap<usize, (Arc<Stack>, bool), KeyHash>,
}

impl Choice {
    /// Selects samples that pass `filter` and lie within `range` (inclusive, in ns since 1970).
    pub fn new(filter: Filter, range: [i64; 2]) -> Self {
        Self { filter, range, threads: HashMap::default(), stacks: HashMap::default() }
    }

    /// Returns true if an item is a selected sample, or is not a sample.
    pub fn wants(&mut self, item: &Item) -> bool {
        match item {
            Item::Sample(sample) => self.wants_sample(sample),
            _ => true,
        }
    }

    fn wants_sample(&mut self, sample: &Sample) -> bool {
        let state = sample.state.as_deref().unwrap_or("");
        (self.range[0]..=self.range[1]).contains(&sample.time.epoch_nanos)
            && self.filter.matches_state(state)
            && self.wants_thread(sample.thread.as_ref())
            && self.wants_stack(sample.stack.as_ref())
    }

    fn wants_thread(&mut self, thread: Option<&Arc<Thread>>) -> bool {
        let filter = &self.filter;
        if filter.thread.is_none() && filter.process.is_none() {
            return true;
        }
        let Some(thread) = thread else { return filter.matches_thread(NO_THREAD, UNKNOWN_PROCESS) };
        known(&mut self.threads, thread, |thread| {
            filter.matches_thread(&thread.label(), thread.group.as_deref().unwrap_or(UNKNOWN_PROCESS))
        })
    }

    fn wants_stack(&mut self, stack: Option<&Arc<Stack>>) -> bool {
        let filter = &self.filter;
        if filter.include.is_empty() && filter.exclude.is_empty() {
            return true;
        }
        let Some(stack) = stack.filter(|stack| !stack.frames.is_empty()) else {
            return filter.frames([NO_STACK].into_iter());
        };
        known(&mut self.stacks, stack, |stack| {
            let options = FoldOptions::default();
            let frames = stack.frames.iter();
            let names: Vec<Arc<str>> = frames.map(|frame| label(&frame.to_model(), &options).text).collect();
            let cut = stack.truncated.then_some(TRUNCATED);
            filter.frames(cut.into_iter().chain(names.iter().map(|name| &**name)))
        })
    }
}

fn known<T>(
    all: &mut HashMap<usize, (Arc<T>, bool), KeyHash>,
    one: &Arc<T>,
    wants: impl FnOnce(&T) -> bool,
) -> bool {
    let address = Arc::as_ptr(one).addr();
    if let Some((_, known)) = all.get(&address) {
        return *known;
    }
    if all.len() >= MOST {
        all.clear();
    }
    let wanted = wants(one);
    all.insert(address, (one.clone(), wanted));
    wanted
}
