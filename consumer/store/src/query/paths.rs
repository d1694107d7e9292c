//! Resolves stacks to frames. An id identifies a stack in all files, so each is searched until one file has
//! it. A file's nodes are held only while its stacks are resolved; nodes that no stack needs are never
//! stored.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::{Array, StringArray};
use datafusion::arrow::buffer::ScalarBuffer;
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use flightline_consumer::fold::{self, FoldOptions};
use flightline_consumer::model::{Frame, FrameKind};
use flightline_consumer::tree::Label;
use futures::{StreamExt, TryStreamExt};
use jfr_format::pool::KeyHash;
use tokio::task::JoinSet;

use super::session::Session;
use super::table::StoreTable;
use super::weights::ids;

/// Parent of root frames.
const ROOT: i64 = 0;
/// Maximum stack depth; a longer path is a cycle.
const DEEPEST: usize = 1 << 16;
/// Number of files read ahead.
const AHEAD: usize = 4;
/// Size of the direct-mapped cache of frames, by hash.
const MET: usize = 1 << 14;
/// Rows per batch: most files fit into one.
const AT_A_TIME: usize = 1 << 20;
/// Number of interpolation steps, and the range around the guess to search.
const GUESSES: usize = 4;
const NEAR: usize = 64;
/// Columns to read.
const OF_NODES: &[&str] = &["node_id", "parent_id", "frame_hash", "depth"];
const OF_FRAMES: &[&str] = &["frame_hash", "class_name", "method_name", "type", "line"];
/// Represents no step.
pub(super) const NONE: u32 = u32::MAX;

/// A frame below its parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// [`NONE`] for root frames; otherwise smaller than the step's own index.
    pub(super) parent: u32,
    /// Index of the frame.
    pub(super) frame: u32,
}

/// Resolved stacks.
#[derive(Debug, Default)]
pub struct Paths {
    /// Parents before children.
    pub(super) steps: Vec<Step>,
    /// The last step of each stack.
    pub(super) ends: HashMap<i64, u32, KeyHash>,
    /// Frame labels; `None` if the store does not have the frame.
    pub(super) labels: Vec<Option<Label>>,
}

/// Nodes of one or more files.
#[derive(Default)]
struct Nodes {
    ids: ScalarBuffer<i64>,
    parents: ScalarBuffer<i64>,
    frames: ScalarBuffer<i64>,
    depths: ScalarBuffer<i64>,
    /// Where the nodes of each depth begin, if the rows are sorted by depth and id, as Flightline writes
    /// them. Then no hash map is needed.
    levels: Option<Vec<usize>>,
    /// Otherwise, rows by id.
    places: HashMap<i64, usize, KeyHash>,
}

/// State while files are read.
#[derive(Default)]
struct Search {
    paths: Paths,
    /// Stacks that are not resolved yet.
    left: HashSet<i64, KeyHash>,
    /// Step of each row of the last file.
    last: Option<(ScalarBuffer<i64>, Vec<u32>)>,
    /// Steps of nodes in earlier files.
    placed: HashMap<i64, u32, KeyHash>,
    /// Indices of frames.
    frames: HashMap<i64, u32, KeyHash>,
    /// Recently used frames, by hash.
    met: Vec<(i64, u32)>,
    /// Quickly rejects most nodes that do not end a requested stack.
    ends: Sieve,
    /// Rows of the stack being resolved.
    path: Vec<usize>,
    /// True if a node was found but its parent was not.
    torn: bool,
}

impl Paths {
    /// Resolves `stacks`, which belong to samples in `table` where `filter` holds.
    ///
    /// # Errors
    /// Returns an error if the condition is invalid, the store cannot be read, or a stack contains a cycle.
    pub async fn read(
        session: &Session,
        table: &str,
        filter: &str,
        stacks: impl IntoIterator<Item = i64>,
        options: &FoldOptions,
    ) -> Result<Self> {
        let mut search = Search::new(stacks);
        let folders = session.folders(table, filter).await?;
        let nodes = session.tables().get("nodes")?.clone().with_folders(&folders);
        let files = nodes.each_file();
        let mut read = ahead(session.context(), files.clone(), OF_NODES);
        let mut looked_at = 0;
        while !search.left.is_empty()
            && let Some(batches) = read.next().await
        {
            looked_at += 1;
            search.take(&Nodes::from_batches(&batches?)?)?;
        }
        drop(read);
        nodes.passed_over(files.len() - looked_at);
        if search.torn && !search.left.is_empty() {
            // Other writers may split a stack over several files.
            let all = ahead(session.context(), files, OF_NODES);
            let all: Vec<RecordBatch> = all.try_collect::<Vec<_>>().await?.into_iter().flatten().collect();
            search.take(&Nodes::from_batches(&all)?)?;
        }
        let Search { mut paths, frames: mut unnamed, .. } = search;
        paths.labels.resize(unnamed.len(), None);
        let frames = session.tables().get("frames")?.clone().with_folders(&folders);
        let files = frames.each_file();
        let count = files.len();
        let mut read = ahead(session.context(), files, OF_FRAMES);
        let mut looked_at = 0;
        while !unnamed.is_empty()
            && let Some(batches) = read.next().await
        {
            looked_at += 1;
            for batch in batches? {
                paths.name(&batch, &mut unnamed, options)?;
            }
        }
        frames.passed_over(count - looked_at);
        Ok(paths)
    }

    /// Resolves frame names.
    fn name(
        &mut self,
        batch: &RecordBatch,
        unnamed: &mut HashMap<i64, u32, KeyHash>,
        options: &FoldOptions,
    ) -> Result<()> {
        let (hashes, lines) = (ids(batch, 0)?, ids(batch, 4)?);
        let [classes, methods, kinds] = [texts(batch, 1)?, texts(batch, 2)?, texts(batch, 3)?];
        for row in 0..batch.num_rows() {
            let Some(number) = unnamed.remove(&hashes.value(row)) else { continue };
            let frame = Frame {
                function: methods.value(row).into(),
                class: classes.value(row).into(),
                kind: FrameKind::named(kinds.value(row)),
                line: i32::try_from(lines.value(row)).unwrap_or(0),
                place: None,
            };
            self.labels[number as usize] = Some(fold::label(&frame, options));
        }
        Ok(())
    }

    /// Returns a predicate for the stacks with a frame whose label satisfies `wanted`.
    pub fn stacks_with(&self, wanted: impl Fn(&Label) -> bool) -> impl Fn(i64) -> bool {
        let labels: Vec<bool> = self.labels.iter().map(|label| label.as_ref().is_some_and(&wanted)).collect();
        let mut steps: Vec<bool> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let below = steps.get(step.parent as usize).is_some_and(|&below| below);
            steps.push(below || labels[step.frame as usize]);
        }
        move |stack| self.ends.get(&stack).is_some_and(|&end| end != NONE && steps[end as usize])
    }
}

impl Nodes {
    fn from_batches(batches: &[RecordBatch]) -> Result<Self> {
        let Some(first) = batches.first() else { return Ok(Self::default()) };
        let all = match batches {
            [one] => one.clone(),
            _ => concat_batches(first.schema_ref(), batches)?,
        };
        // Treat null as no parent.
        let column = |at: usize| -> Result<ScalarBuffer<i64>> {
            let values = ids(&all, at)?;
            Ok(match values.null_count() {
                0 => values.values().clone(),
                _ => values.iter().map(|value| value.unwrap_or(ROOT)).collect(),
            })
        };
        let mut nodes = Self {
            ids: column(0)?,
            parents: column(1)?,
            frames: column(2)?,
            depths: column(3)?,
            ..Self::default()
        };
        nodes.levels = nodes.levels();
        if nodes.levels.is_none() {
            nodes.places = nodes.ids.iter().enumerate().map(|(row, &id)| (id, row)).collect();
        }
        Ok(nodes)
    }

    fn levels(&self) -> Option<Vec<usize>> {
        let mut begins = vec![0];
        let mut before: Option<(i64, i64)> = None;
        for (row, (&depth, &id)) in self.depths.iter().zip(self.ids.iter()).enumerate() {
            match before {
                Some((same, smaller)) if same == depth && smaller < id => {}
                None if depth == 1 => {}
                Some((above, _)) if above.checked_add(1) == Some(depth) => begins.push(row),
                _ => return None,
            }
            before = Some((depth, id));
        }
        begins.push(self.ids.len());
        Some(begins)
    }

    /// Returns the row of a node.
    fn find(&self, id: i64, depth: i64) -> Option<usize> {
        let Some(levels) = &self.levels else { return self.places.get(&id).copied() };
        let level = usize::try_from(depth.checked_sub(1)?).ok()?;
        let begin = *levels.get(level)?;
        let of_depth = self.ids.get(begin..*levels.get(level + 1)?)?;
        Some(begin + position(of_depth, id)?)
    }
}

/// Interpolation search in `sorted` (Peterson 1957): ids are hashes, so they are evenly distributed.
fn position(sorted: &[i64], id: i64) -> Option<usize> {
    let (mut begin, mut end) = (0, sorted.len());
    for _ in 0..GUESSES {
        if end - begin < NEAR {
            break;
        }
        let (first, last) = (sorted[begin], sorted[end - 1]);
        if id < first || id > last {
            return None;
        }
        let part = (id.abs_diff(first)) as f64 / (last.abs_diff(first)) as f64;
        let guess = begin + ((end - 1 - begin) as f64 * part) as usize;
        // The id is usually near the guess.
        let (low, high) = (guess.saturating_sub(NEAR / 2).max(begin), (guess + NEAR / 2).min(end - 1));
        match (sorted[low] <= id, id <= sorted[high]) {
            (true, true) => (begin, end) = (low, high + 1),
            (false, _) => end = low,
            (_, false) => begin = high + 1,
        }
    }
    Some(begin + sorted[begin..end].binary_search(&id).ok()?)
}

/// Bloom filter with one hash: fits into the CPU cache, unlike a map.
#[derive(Default)]
struct Sieve {
    bits: Vec<u64>,
    shift: u32,
}

impl Sieve {
    fn new(numbers: &HashSet<i64, KeyHash>) -> Self {
        // One bit in sixteen is set.
        let bits = (numbers.len() * 16).next_power_of_two().max(64);
        let mut sieve = Self { bits: vec![0; bits / 64], shift: 64 - bits.ilog2() };
        for &number in numbers {
            let bit = sieve.bit(number);
            sieve.bits[bit / 64] |= 1 << (bit % 64);
        }
        sieve
    }

    fn bit(&self, number: i64) -> usize {
        // Fibonacci hashing (Knuth 6.4).
        (number.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn may_have(&self, number: i64) -> bool {
        let bit = self.bit(number);
        self.bits.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

impl Search {
    fn new(stacks: impl IntoIterator<Item = i64>) -> Self {
        let left: HashSet<i64, KeyHash> = stacks.into_iter().collect();
        let met = vec![(0, NONE); MET];
        let mut search = Self { ends: Sieve::new(&left), left, met, ..Self::default() };
        if search.left.remove(&ROOT) {
            search.paths.ends.insert(ROOT, NONE);
        }
        search
    }

    /// Resolves the stacks that end in these nodes.
    fn take(&mut self, nodes: &Nodes) -> Result<()> {
        // Deferred, because usually there is only one file.
        if let Some((ids, steps)) = self.last.take() {
            let placed = ids.iter().zip(steps).filter(|&(_, step)| step != NONE);
            self.placed.extend(placed.map(|(&id, step)| (id, step)));
        }
        let mut steps = vec![NONE; nodes.ids.len()];
        for (row, &id) in nodes.ids.iter().enumerate() {
            if self.ends.may_have(id)
                && self.left.contains(&id)
                && let Some(end) = self.place(nodes, &mut steps, row)?
            {
                self.paths.ends.insert(id, end);
                self.left.remove(&id);
            }
        }
        self.last = Some((nodes.ids.clone(), steps));
        Ok(())
    }

    /// Resolves a stack to its last step; `None` if part of it is not in `nodes`. `steps` are the steps of
    /// the rows.
    fn place(&mut self, nodes: &Nodes, steps: &mut [u32], mut row: usize) -> Result<Option<u32>> {
        self.path.clear();
        let mut end = loop {
            let id = nodes.ids[row];
            if steps[row] != NONE {
                break steps[row];
            }
            if let Some(&known) = self.placed.get(&id) {
                break known;
            }
            if self.path.len() == DEEPEST {
                bail!("node {id} of the store has more than {DEEPEST} nodes below it, or is below itself");
            }
            self.path.push(row);
            let parent = nodes.parents[row];
            if parent == ROOT {
                break NONE;
            }
            match nodes.find(parent, nodes.depths[row].saturating_sub(1)) {
                Some(place) => row = place,
                None => {
                    // Another stack may have resolved it.
                    if let Some(&known) = self.placed.get(&parent) {
                        break known;
                    }
                    self.torn = true;
                    return Ok(None);
                }
            }
        };
        let Self { path, frames, met, paths, .. } = self;
        for &row in path.iter().rev() {
            let hash = nodes.frames[row];
            // Most frames are in the cache.
            let slot = &mut met[hash as usize % MET];
            if slot.0 != hash || slot.1 == NONE {
                let next = frames.len() as u32;
                *slot = (hash, *frames.entry(hash).or_insert(next));
            }
            paths.steps.push(Step { parent: end, frame: slot.1 });
            end = u32::try_from(paths.steps.len() - 1).context("more than 4 billion nodes")?;
            steps[row] = end;
        }
        Ok(Some(end))
    }
}

/// Reads columns file by file, prefetching the next files.
fn ahead(
    context: &SessionContext,
    files: Vec<StoreTable>,
    columns: &'static [&'static str],
) -> impl futures::Stream<Item = Result<Vec<RecordBatch>>> + Unpin + use<> {
    let context = context.clone();
    let read = move |file: StoreTable| {
        // Cancelled when the stream is dropped.
        let mut task = JoinSet::new();
        task.spawn(read_all(context.clone(), file, columns));
        async move { task.join_next().await.context("no answer")?? }
    };
    futures::stream::iter(files).map(read).buffered(AHEAD)
}

async fn read_all(context: SessionContext, file: StoreTable, columns: &[&str]) -> Result<Vec<RecordBatch>> {
    let schema = file.schema();
    let projection = columns.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>()?;
    let mut state = context.state();
    *state.config_mut() = state.config().clone().with_batch_size(AT_A_TIME);
    let plan = file.raw().scan(&state, Some(&projection), &[], None).await?;
    Ok(execute_stream(plan, state.task_ctx())?.try_collect().await?)
}

fn texts(batch: &RecordBatch, column: usize) -> Result<StringArray> {
    let values = cast(batch.column(column), &DataType::Utf8)?;
    match values.as_any().downcast_ref::<StringArray>() {
        Some(values) => Ok(values.clone()),
        None => bail!("column {} is no text", batch.schema_ref().field(column).name()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array};

    use super::*;

    /// Rows of id, parent, frame and depth.
    fn nodes(rows: &[[i64; 4]]) -> Nodes {
        let column = |at: usize| rows.iter().map(move |row| row[at]);
        let of = |at: usize| Arc::new(column(at).collect::<Int64Array>()) as ArrayRef;
        let depths: Int32Array = column(3).map(|depth| depth as i32).collect();
        let columns = [("a", of(0)), ("b", of(1)), ("c", of(2)), ("d", Arc::new(depths) as ArrayRef)];
        Nodes::from_batches(&[RecordBatch::try_from_iter(columns).unwrap()]).unwrap()
    }

    /// The frames of a stack, innermost first.
    fn frames(search: &Search, stack: i64) -> Vec<i64> {
        let by_number: HashMap<u32, i64> = search.frames.iter().map(|(&frame, &n)| (n, frame)).collect();
        let mut at = search.paths.ends[&stack];
        let mut frames = Vec::new();
        while at != NONE {
            let step = search.paths.steps[at as usize];
            frames.push(by_number[&step.frame]);
            at = step.parent;
        }
        frames
    }

    #[test]
    fn stacks_are_found_in_any_row_order() {
        let rows = [[7, 0, 70, 1], [9, 0, 90, 1], [3, 9, 30, 2], [5, 7, 50, 2], [4, 3, 40, 3]];
        let mut others = rows;
        others.reverse();
        for (rows, sorted) in [(rows, true), (others, false)] {
            let nodes = nodes(&rows);
            assert_eq!(nodes.levels.is_some(), sorted);
            let mut search = Search::new([4, 5, 9, 0, 8]);
            search.take(&nodes).unwrap();
            assert_eq!(frames(&search, 4), [40, 30, 90]);
            assert_eq!(frames(&search, 5), [50, 70]);
            assert_eq!(frames(&search, 9), [90]);
            assert_eq!(search.paths.ends[&0], NONE);
            assert_eq!((search.left, search.torn), ([8].into_iter().collect(), false));
        }
    }

    #[test]
    fn stack_split_across_two_files_is_resolved() {
        let (one, two) = ([[9, 0, 90, 1], [3, 9, 30, 2]], [[4, 3, 40, 3]]);
        let mut search = Search::new([4]);
        search.take(&nodes(&two)).unwrap();
        search.take(&nodes(&one)).unwrap();
        assert!(search.torn && search.left.contains(&4));
        search.take(&nodes(&[two.as_slice(), one.as_slice()].concat())).unwrap();
        assert_eq!(frames(&search, 4), [40, 30, 90]);
    }

    #[test]
    fn cyclic_stack_is_reported() {
        let mut search = Search::new([1]);
        let told = search.take(&nodes(&[[2, 1, 5, 2], [1, 2, 5, 1]])).unwrap_err().to_string();
        assert!(told.contains("below itself"), "{told}");
        // Resolution terminates even if depths do not decrease.
        let mut search = Search::new([1]);
        search.take(&nodes(&[[1, 2, 5, 1], [2, 1, 5, 2]])).unwrap();
        assert!(search.torn && search.paths.ends.is_empty());
    }

    #[test]
    fn ids_are_found_in_any_distribution() {
        let spread: Vec<i64> =
            (0..5000).map(|n: i64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)).collect();
        let skewed: Vec<i64> = (0..5000).map(|n: i64| n * n * n).chain([i64::MIN, i64::MAX]).collect();
        for mut ids in [spread, skewed, (0..200).collect(), vec![5], Vec::new()] {
            ids.sort_unstable();
            for (at, &id) in ids.iter().enumerate() {
                assert_eq!(position(&ids, id), Some(at));
                for other in [id.wrapping_add(1), id.wrapping_sub(1)] {
                    assert_eq!(position(&ids, other), ids.binary_search(&other).ok());
                }
            }
            assert_eq!(position(&ids, -77), ids.binary_search(&-77).ok());
        }
    }

    #[test]
    fn sieve_accepts_its_own_ids_and_few_others() {
        let own: HashSet<i64, KeyHash> = (0..1000).map(|n| n * n).collect();
        let sieve = Sieve::new(&own);
        assert!(own.iter().all(|&number| sieve.may_have(number)));
        let others = (0..100_000i64).filter(|n| !own.contains(n) && sieve.may_have(*n)).count();
        assert!(others < 20_000, "{others}");
        assert!(!Sieve::new(&HashSet::default()).may_have(1));
    }
}
