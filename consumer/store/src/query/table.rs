//! A table of the store for DataFusion: a fixed list of files, without those that cannot match.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, BooleanArray, StringArray, TimestampMicrosecondArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, Result, ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, ParquetSource, wrap_partition_type_in_dict,
    wrap_partition_value_in_dict,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::ObjectMeta;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{self, PhysicalExpr};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;

use super::deduplication::OncePerId;
use crate::schema::TIME;

/// Column by which the rows of duplicate chunks are excluded.
const CHUNK: &str = "chunk";

/// A file of a table.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Its location.
    pub meta: ObjectMeta,
    /// Values of the table's partition columns, in their order.
    pub partition: Vec<String>,
    /// Number of rows.
    pub rows: u64,
    /// First and last timestamp in µs since 1970, if it has timestamps.
    pub times: Option<(i64, i64)>,
    /// Chunks that another file provides.
    pub except: Vec<i64>,
}

impl DataFile {
    /// Name within its folder.
    pub fn name(&self) -> &str {
        self.meta.location.filename().unwrap_or_default()
    }
}

/// Counters of queries.
#[derive(Debug, Default)]
pub struct Tally {
    read: AtomicU64,
    passed_over: AtomicU64,
}

impl Tally {
    /// Returns the numbers of files read and skipped.
    pub fn files(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.passed_over.load(Ordering::Relaxed))
    }
}

/// A table of the store.
#[derive(Clone, Debug)]
pub struct StoreTable {
    url: ObjectStoreUrl,
    schema: TableSchema,
    partitioned_by: Vec<String>,
    files: Arc<[DataFile]>,
    id: Option<usize>,
    tally: Arc<Tally>,
}

impl StoreTable {
    /// Creates the table of `files`, all below `url`. Columns that a file lacks are null in its rows.
    pub fn new(
        url: ObjectStoreUrl,
        columns: SchemaRef,
        partitioned_by: &[&str],
        files: Vec<DataFile>,
    ) -> Self {
        let of_partition = |name: &&str| -> FieldRef {
            Arc::new(Field::new(*name, wrap_partition_type_in_dict(DataType::Utf8), false))
        };
        let partition: Vec<FieldRef> = partitioned_by.iter().map(of_partition).collect();
        let schema = TableSchema::builder(columns).with_table_partition_cols(partition).build();
        let partitioned_by = partitioned_by.iter().map(|&name| name.to_owned()).collect();
        Self { url, schema, partitioned_by, files: files.into(), id: None, tally: Arc::default() }
    }

    /// Deduplicates rows by `id`, since writers do not coordinate.
    #[must_use]
    pub fn once_per(mut self, id: &str) -> Self {
        self.id = self.schema.file_schema().index_of(id).ok();
        self
    }

    /// Keeps duplicate rows.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.id = None;
        self
    }

    /// Returns the counters of queries.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Returns the numbers of files, rows and bytes.
    pub fn size(&self) -> (u64, u64, u64) {
        let sum = |of: fn(&DataFile) -> u64| self.files.iter().map(of).sum();
        (self.files.len() as u64, sum(|file| file.rows), sum(|file| file.meta.size))
    }

    /// Returns the partition values of folders that may have rows where all `filters` hold. Filters with
    /// subqueries are ignored.
    ///
    /// # Errors
    /// Returns an error if a filter does not fit this table.
    pub fn folders(&self, state: &dyn Session, filters: &[Expr]) -> Result<BTreeSet<Vec<String>>> {
        let of_table = DFSchema::try_from(self.schema())?;
        let plain = filters.iter().filter(|filter| !asks_others(filter)).cloned();
        let predicate =
            conjunction(plain).map(|filter| state.create_physical_expr(filter, &of_table)).transpose()?;
        Ok(self.files_matching(predicate.as_ref()).into_iter().map(|file| file.partition.clone()).collect())
    }

    /// Restricts the table to these folders.
    #[must_use]
    pub fn with_folders(mut self, folders: &BTreeSet<Vec<String>>) -> Self {
        self.files = self.files.iter().filter(|file| folders.contains(&file.partition)).cloned().collect();
        self
    }

    /// Returns a table for each file.
    pub fn each_file(&self) -> Vec<Self> {
        let of = |file: &DataFile| Self { files: Arc::new([file.clone()]), ..self.clone() };
        self.files.iter().map(of).collect()
    }

    /// Counts files that were skipped.
    pub fn passed_over(&self, files: usize) {
        self.tally.passed_over.fetch_add(files as u64, Ordering::Relaxed);
    }

    /// Returns the files that may have rows where `predicate` holds.
    fn files_matching(&self, predicate: Option<&Arc<dyn PhysicalExpr>>) -> Vec<&DataFile> {
        let pruning = predicate.and_then(|predicate| {
            let builder = PruningPredicateBuilder::new().with_file_schema(self.schema());
            builder.build(predicate.clone())
        });
        let known = PrunedTable { table: self };
        // Read all files if pruning is not possible.
        let kept = pruning.and_then(|pruning| pruning.prune(&known).ok());
        match kept {
            Some(kept) => {
                self.files.iter().zip(kept).filter(|(_, kept)| *kept).map(|(file, _)| file).collect()
            }
            None => self.files.iter().collect(),
        }
    }
}

#[async_trait]
impl TableProvider for StoreTable {
    fn schema(&self) -> SchemaRef {
        self.schema.table_schema().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let of_table = DFSchema::try_from(schema.clone())?;
        let predicate = conjunction(filters.iter().cloned())
            .map(|filter| state.create_physical_expr(filter, &of_table))
            .transpose()?;
        let kept = self.files_matching(predicate.as_ref());
        self.tally.read.fetch_add(kept.len() as u64, Ordering::Relaxed);
        self.tally.passed_over.fetch_add((self.files.len() - kept.len()) as u64, Ordering::Relaxed);

        let mut columns: Vec<usize> = match projection {
            Some(columns) => columns.clone(),
            None => (0..schema.fields().len()).collect(),
        };
        let wanted = columns.len();
        // A single file has no duplicate ids. For several, read the id column even if it was not requested.
        let id_at = self.id.filter(|_| kept.len() > 1).map(|id| {
            columns.iter().position(|&column| column == id).unwrap_or_else(|| {
                columns.push(id);
                wanted
            })
        });
        if kept.is_empty() {
            let projected = schema.project(&columns[..wanted])?;
            return Ok(Arc::new(EmptyExec::new(Arc::new(projected))));
        }
        let (whole, parts): (Vec<&DataFile>, Vec<&DataFile>) =
            kept.into_iter().partition(|file| file.except.is_empty());
        let limit = limit.filter(|_| filters.is_empty() && id_at.is_none());
        let mut scans: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        if !whole.is_empty() {
            scans.push(self.scan_files(state, &whole, &columns, limit)?);
        }
        for file in parts {
            scans.push(self.scan_partly(state, file, &columns)?);
        }
        let scan = match scans.len() {
            1 => scans.swap_remove(0),
            _ => UnionExec::try_new(scans)?,
        };
        match id_at {
            Some(id_at) => Ok(Arc::new(OncePerId::try_new(scan, id_at, wanted)?)),
            None => Ok(scan),
        }
    }
}

impl StoreTable {
    /// Scans some files.
    fn scan_files(
        &self,
        state: &dyn Session,
        files: &[&DataFile],
        columns: &[usize],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows: u64 = files.iter().map(|file| file.rows).sum();
        let mut statistics = Statistics::new_unknown(&self.schema());
        // Accurate enough to order joins. Counting must read the files, since the metadata may be wrong.
        statistics.num_rows = Precision::Inexact(rows as usize);
        let of_files: Vec<PartitionedFile> = files.iter().map(|file| self.partitioned(file)).collect();
        let groups = FileGroup::new(of_files).split_files(state.config().target_partitions());
        let options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        // The optimizer adds row filters.
        let source = ParquetSource::new(self.schema.clone()).with_table_parquet_options(options);
        let scan = FileScanConfigBuilder::new(self.url.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(Some(columns.to_vec()))?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }

    /// Scans a file without the chunks that another file provides.
    fn scan_partly(
        &self,
        state: &dyn Session,
        file: &DataFile,
        columns: &[usize],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let chunk = schema.index_of(CHUNK)?;
        let mut with_chunk = columns.to_vec();
        let at = columns.iter().position(|&column| column == chunk).unwrap_or_else(|| {
            with_chunk.push(chunk);
            columns.len()
        });
        let scan = self.scan_files(state, &[file], &with_chunk, None)?;
        let column: Arc<dyn PhysicalExpr> = Arc::new(PhysicalColumn::new(CHUNK, at));
        let others = file.except.iter().map(|&chunk| physical_expr::expressions::lit(chunk)).collect();
        let of_file = physical_expr::expressions::in_list(column, others, &true, &scan.schema())?;
        let kept: Arc<dyn ExecutionPlan> = Arc::new(FilterExec::try_new(of_file, scan)?);
        let wanted = |at: usize| {
            let name = schema.field(columns[at]).name();
            (Arc::new(PhysicalColumn::new(name, at)) as Arc<dyn PhysicalExpr>, name.clone())
        };
        let wanted: Vec<_> = (0..columns.len()).map(wanted).collect();
        Ok(Arc::new(ProjectionExec::try_new(wanted, kept)?))
    }

    fn partitioned(&self, file: &DataFile) -> PartitionedFile {
        let value = |value: &String| wrap_partition_value_in_dict(ScalarValue::Utf8(Some(value.clone())));
        let values = file.partition.iter().take(self.partitioned_by.len()).map(value).collect();
        PartitionedFile::new_from_meta(file.meta.clone()).with_partition_values(values)
    }
}

/// Returns true if an expression contains a subquery.
fn asks_others(expression: &Expr) -> bool {
    let asks =
        |part: &Expr| Ok(matches!(part, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)));
    expression.exists(asks).unwrap_or(true)
}

/// Statistics of files that have not been opened.
struct PrunedTable<'t> {
    table: &'t StoreTable,
}

impl PrunedTable<'_> {
    fn bound(&self, column: &Column, of_times: fn((i64, i64)) -> i64) -> Option<ArrayRef> {
        let files = &self.table.files;
        if column.name == TIME {
            let times = files.iter().map(|file| file.times.map(of_times));
            let times: TimestampMicrosecondArray = times.collect();
            return Some(Arc::new(times.with_timezone("UTC")));
        }
        let at = self.table.partitioned_by.iter().position(|name| *name == column.name)?;
        let values = files.iter().map(|file| file.partition.get(at).map(String::as_str));
        Some(Arc::new(values.collect::<StringArray>()))
    }
}

impl PruningStatistics for PrunedTable<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bound(column, |(first, _)| first)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bound(column, |(_, last)| last)
    }

    fn num_containers(&self) -> usize {
        self.table.files.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let never = column.name == TIME || self.table.partitioned_by.contains(&column.name);
        never.then(|| Arc::new(UInt64Array::from(vec![0; self.table.files.len()])) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from_iter_values(self.table.files.iter().map(|file| file.rows))))
    }

    #[allow(clippy::mutable_key_type)] // the trait's
    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
