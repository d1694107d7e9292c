//! Weights of stacks → tree. Each box is reached from its stacks once: own weights are put where stacks end, and added up downwards
//! afterwards, so no prefix is looked up for each stack that has it.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use datafusion::arrow::array::{Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use flightline_consumer::fold::{self, FoldOptions, NO_STACK};
use flightline_consumer::model::{Frame, FrameKind};
use flightline_consumer::tree::{Builder, Label, LabelId, NONE, Tree};
use futures::TryStreamExt;
use jfr_format::pool::KeyHash;

use super::session::Session;
use super::table::StoreTable;
use super::weights::{Choice, Weights, ids, weights};

/// Stands for a stack whose frames the store does not have.
pub const MISSING: &str = "[not in the store]";
/// The parent of first frames.
const ROOT: i64 = 0;
/// Frames of a stack that are believed; more is a ring.
const DEEPEST: usize = 1 << 16;

/// Nodes and frames, by their ids.
#[derive(Debug, Default)]
pub struct Dictionary {
    /// Parent and frame.
    nodes: HashMap<i64, (i64, i64), KeyHash>,
    frames: HashMap<i64, Label, KeyHash>,
}

/// A tree, and what could not be put into it as it was.
#[derive(Debug)]
pub struct Grown {
    /// The tree.
    pub tree: Tree,
    /// Weight of stacks that the store does not know; they are in the tree as [`MISSING`].
    pub missing: u64,
}

impl Dictionary {
    /// Reads what the store knows of the stacks of samples of `table` for which `filter` may hold.
    ///
    /// # Errors
    /// The condition is none, or the store cannot be read.
    pub async fn read(session: &Session, table: &str, filter: &str, options: &FoldOptions) -> Result<Self> {
        let context = session.context();
        let mut dictionary = Self::default();
        let folders = session.folders(table, filter).await?;
        let nodes = &session.tables().get("nodes")?.clone().of_folders(&folders);
        for_each(context, nodes, &["node_id", "parent_id", "frame_hash"], |batch| {
            let [nodes, parents, frames] = [ids(batch, 0)?, ids(batch, 1)?, ids(batch, 2)?];
            dictionary.nodes.reserve(batch.num_rows());
            for row in 0..batch.num_rows() {
                let parent = if parents.is_valid(row) { parents.value(row) } else { ROOT };
                dictionary.nodes.insert(nodes.value(row), (parent, frames.value(row)));
            }
            Ok(())
        })
        .await?;
        let frames = &session.tables().get("frames")?.clone().of_folders(&folders);
        let columns = ["frame_hash", "class_name", "method_name", "type", "line"];
        for_each(context, frames, &columns, |batch| {
            let (hashes, lines) = (ids(batch, 0)?, ids(batch, 4)?);
            let [classes, methods, kinds] = [texts(batch, 1)?, texts(batch, 2)?, texts(batch, 3)?];
            for row in 0..batch.num_rows() {
                let frame = Frame {
                    function: methods.value(row).into(),
                    class: classes.value(row).into(),
                    kind: kind(kinds.value(row)),
                    line: i32::try_from(lines.value(row)).unwrap_or(0),
                };
                dictionary.frames.insert(hashes.value(row), fold::label(&frame, options));
            }
            Ok(())
        })
        .await?;
        Ok(dictionary)
    }

    /// The tree of `weights`.
    ///
    /// # Errors
    /// What the store knows of stacks goes round in a ring.
    pub fn tree(&self, weights: &Weights, unit: &str) -> Result<Grown> {
        let mut growing = Growing { of: self, builder: Builder::default(), placed: HashMap::default() };
        let mut missing = weights.total;
        for (&stack, &weight) in &weights.by_stack {
            if let Some(node) = growing.place(stack)? {
                growing.builder.weigh(node, weight);
                missing = missing.saturating_sub(weight);
            }
        }
        missing = missing.saturating_sub(weights.without);
        for (text, weight) in [(NO_STACK, weights.without), (MISSING, missing)] {
            if weight > 0 {
                let label = growing.marker(text);
                growing.builder.add([label], weight);
            }
        }
        Ok(Grown { tree: growing.builder.finish(unit), missing })
    }

    /// The stacks of `weights` that have a frame whose label is `wanted`, by their ids.
    pub fn stacks_with(&self, wanted: impl Fn(&Label) -> bool) -> impl FnMut(i64) -> bool {
        let frames: HashMap<i64, bool, KeyHash> =
            self.frames.iter().map(|(&hash, label)| (hash, wanted(label))).collect();
        let mut known: HashMap<i64, bool, KeyHash> = HashMap::from_iter([(ROOT, false)]);
        move |stack| {
            let mut path = Vec::new();
            let mut at = stack;
            let found = loop {
                if let Some(&found) = known.get(&at) {
                    break found;
                }
                let Some(&(parent, frame)) = self.nodes.get(&at).filter(|_| path.len() < DEEPEST) else {
                    break false;
                };
                path.push(at);
                if frames.get(&frame).is_some_and(|&found| found) {
                    break true;
                }
                at = parent;
            };
            known.extend(path.into_iter().map(|node| (node, found)));
            found
        }
    }
}

/// The tree of the samples chosen.
///
/// # Errors
/// The condition is none, or the store cannot be read.
pub async fn grow(session: &Session, dictionary: &Dictionary, choice: Choice<'_>) -> Result<Grown> {
    dictionary.tree(&weights(session, choice).await?, choice.measure.unit())
}

struct Growing<'d> {
    of: &'d Dictionary,
    builder: Builder,
    /// Boxes by node.
    placed: HashMap<i64, u32, KeyHash>,
}

impl Growing<'_> {
    /// The box in which a stack ends.
    fn place(&mut self, stack: i64) -> Result<Option<u32>> {
        let mut path = Vec::new();
        let mut at = stack;
        let mut box_below = loop {
            if at == ROOT {
                break NONE;
            }
            if let Some(&known) = self.placed.get(&at) {
                break known;
            }
            let Some(&(parent, frame)) = self.of.nodes.get(&at) else { return Ok(None) };
            if path.len() == DEEPEST {
                bail!("node {stack} of the store has more than {DEEPEST} nodes below it, or is below itself");
            }
            path.push((at, frame));
            at = parent;
        };
        for (node, frame) in path.into_iter().rev() {
            let label = match self.of.frames.get(&frame) {
                Some(label) => self.builder.label(label.clone()),
                None => self.marker(MISSING),
            };
            box_below = self.builder.child(box_below, label);
            self.placed.insert(node, box_below);
        }
        Ok(Some(box_below))
    }

    fn marker(&mut self, text: &str) -> LabelId {
        self.builder.label(Label { text: Arc::from(text), module: None, kind: FrameKind::Marker })
    }
}

/// Calls `take` with some columns of all of a table, rows that are there twice twice.
async fn for_each(
    context: &SessionContext,
    table: &StoreTable,
    columns: &[&str],
    mut take: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    use datafusion::catalog::TableProvider;

    let schema = table.schema();
    let projection = columns.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>()?;
    let plan = table.clone().raw().scan(&context.state(), Some(&projection), &[], None).await?;
    let mut batches = execute_stream(plan, context.task_ctx())?;
    while let Some(batch) = batches.try_next().await? {
        take(&batch)?;
    }
    Ok(())
}

fn texts(batch: &RecordBatch, column: usize) -> Result<StringArray> {
    let values = cast(batch.column(column), &DataType::Utf8)?;
    match values.as_any().downcast_ref::<StringArray>() {
        Some(values) => Ok(values.clone()),
        None => bail!("column {} is no text", batch.schema_ref().field(column).name()),
    }
}

/// The kind that the store calls so.
fn kind(name: &str) -> FrameKind {
    match name {
        "native" => FrameKind::Native,
        "kernel" => FrameKind::Kernel,
        "interpreted" => FrameKind::Interpreted,
        "compiled" => FrameKind::Compiled,
        "inlined" => FrameKind::Inlined,
        "native-inlined" => FrameKind::NativeInlined,
        "jit" => FrameKind::Jit,
        "marker" => FrameKind::Marker,
        _ => FrameKind::Unknown,
    }
}
