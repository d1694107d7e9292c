//! Deduplicates rows by id. An id is a hash of the row's content, so rows with the same id are equal.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, Partitioning, PlanProperties,
};
use futures::StreamExt;
use jfr_format::pool::KeyHash;

/// Passes only the first row of each id.
#[derive(Debug)]
pub struct OncePerId {
    input: Arc<dyn ExecutionPlan>,
    id: usize,
    columns: usize,
    properties: Arc<PlanProperties>,
}

impl OncePerId {
    /// Projects `input` to its first `columns` columns and deduplicates by the id in column `id`.
    ///
    /// # Errors
    /// Returns an error if `input` has fewer columns.
    pub fn try_new(input: Arc<dyn ExecutionPlan>, id: usize, columns: usize) -> Result<Self> {
        let kept: Vec<usize> = (0..columns).collect();
        let schema = Arc::new(input.schema().project(&kept)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self { input, id, columns, properties: Arc::new(properties) })
    }
}

impl DisplayAs for OncePerId {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OncePerId: id={}", self.input.schema().field(self.id).name())
    }
}

impl ExecutionPlan for OncePerId {
    fn name(&self) -> &str {
        "OncePerId"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::try_new(input, self.id, self.columns)?)),
            Err(children) => internal_err!("OncePerId has one input, not {}", children.len()),
        }
    }

    /// Rows with the same id are equal, so filters may run before the deduplication.
    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(filters, &self.children())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (id, columns) = (self.id, self.columns);
        let mut seen: HashSet<i64, KeyHash> = HashSet::default();
        let rows = self.input.execute(partition, context)?;
        let rows = rows.map(move |batch| first_rows(&batch?, id, columns, &mut seen));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// Returns the rows whose id has not occurred before.
fn first_rows(
    batch: &RecordBatch,
    id: usize,
    columns: usize,
    seen: &mut HashSet<i64, KeyHash>,
) -> Result<RecordBatch> {
    let Some(ids) = batch.column(id).as_any().downcast_ref::<Int64Array>() else {
        return exec_err!("column {} is no 64-bit id", batch.schema_ref().field(id).name());
    };
    let fresh: BooleanArray = ids.iter().map(|id| Some(id.is_none_or(|id| seen.insert(id)))).collect();
    let kept: Vec<usize> = (0..columns).collect();
    let batch = batch.project(&kept)?;
    if fresh.true_count() == fresh.len() {
        return Ok(batch);
    }
    Ok(filter_record_batch(&batch, &fresh)?)
}
