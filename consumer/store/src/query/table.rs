//! A table of the store as DataFusion sees it: exactly the files that are handed over, those left out that cannot have what is asked for.

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

use super::once::OncePerId;
use crate::schema::TIME;

/// The column by which rows of chunks are left out.
const CHUNK: &str = "chunk";

/// A file of a table.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Where it is.
    pub meta: ObjectMeta,
    /// Values of the table's partition columns, in their order.
    pub partition: Vec<String>,
    /// Rows in it.
    pub rows: u64,
    /// First and last time in it, in µs since 1970, if it has times.
    pub times: Option<(i64, i64)>,
    /// Chunks whose rows are another file's.
    pub except: Vec<i64>,
}

impl DataFile {
    /// Its name in its folder.
    pub fn name(&self) -> &str {
        self.meta.location.filename().unwrap_or_default()
    }
}

/// What queries have read.
#[derive(Debug, Default)]
pub struct Tally {
    read: AtomicU64,
    passed_over: AtomicU64,
}

impl Tally {
    /// Files read, and files that could not have what was asked for.
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
    /// The table of `files`, all below `url`. Columns that a file lacks are null in its rows.
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

    /// The same, of rows with the same `id` only one: writers do not ask each other what is there.
    #[must_use]
    pub fn once_per(mut self, id: &str) -> Self {
        self.id = self.schema.file_schema().index_of(id).ok();
        self
    }

    /// The same with each row as often as it is there.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.id = None;
        self
    }

    /// What queries have read of it.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Number of files, rows and bytes in it.
    pub fn size(&self) -> (u64, u64, u64) {
        let sum = |of: fn(&DataFile) -> u64| self.files.iter().map(of).sum();
        (self.files.len() as u64, sum(|file| file.rows), sum(|file| file.meta.size))
    }

    /// The folders, by the values of what they are partitioned by, that may have rows for which all of `filters` hold. Filters that ask other
    /// tables hold everywhere.
    ///
    /// # Errors
    /// A filter is none of this table's.
    pub fn folders(&self, state: &dyn Session, filters: &[Expr]) -> Result<BTreeSet<Vec<String>>> {
        let of_table = DFSchema::try_from(self.schema())?;
        let plain = filters.iter().filter(|filter| !asks_others(filter)).cloned();
        let predicate =
            conjunction(plain).map(|filter| state.create_physical_expr(filter, &of_table)).transpose()?;
        Ok(self.kept(predicate.as_ref()).into_iter().map(|file| file.partition.clone()).collect())
    }

    /// The same with the files of these folders only.
    #[must_use]
    pub fn of_folders(mut self, folders: &BTreeSet<Vec<String>>) -> Self {
        self.files = self.files.iter().filter(|file| folders.contains(&file.partition)).cloned().collect();
        self
    }

    /// A table for each of its files.
    pub fn each_file(&self) -> Vec<Self> {
        let of = |file: &DataFile| Self { files: Arc::new([file.clone()]), ..self.clone() };
        self.files.iter().map(of).collect()
    }

    /// Notes that so many files did not have to be read.
    pub fn passed_over(&self, files: usize) {
        self.tally.passed_over.fetch_add(files as u64, Ordering::Relaxed);
    }

    /// The files that may have rows for which `predicate` holds.
    fn kept(&self, predicate: Option<&Arc<dyn PhysicalExpr>>) -> Vec<&DataFile> {
        let pruning = predicate.and_then(|predicate| {
            let builder = PruningPredicateBuilder::new().with_file_schema(self.schema());
            builder.build(predicate.clone())
        });
        let known = Known { table: self };
        // Whoever cannot tell reads all.
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
        let kept = self.kept(predicate.as_ref());
        self.tally.read.fetch_add(kept.len() as u64, Ordering::Relaxed);
        self.tally.passed_over.fetch_add((self.files.len() - kept.len()) as u64, Ordering::Relaxed);

        let mut columns: Vec<usize> = match projection {
            Some(columns) => columns.clone(),
            None => (0..schema.fields().len()).collect(),
        };
        let wanted = columns.len();
        // One file has no id twice; of several the id is looked at even if nobody asks for it.
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
            scans.push(self.scan_of(state, &whole, &columns, limit)?);
        }
        for file in parts {
            scans.push(self.scan_of_part(state, file, &columns)?);
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
    /// Rows of some files.
    fn scan_of(
        &self,
        state: &dyn Session,
        files: &[&DataFile],
        columns: &[usize],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows: u64 = files.iter().map(|file| file.rows).sum();
        let mut statistics = Statistics::new_unknown(&self.schema());
        // Good enough for the order of joins; a count reads the files, as what is known of them may be wrong.
        statistics.num_rows = Precision::Inexact(rows as usize);
        let of_files: Vec<PartitionedFile> = files.iter().map(|file| self.partitioned(file)).collect();
        let groups = FileGroup::new(of_files).split_files(state.config().target_partitions());
        let options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        // Filters on rows come from the optimizer.
        let source = ParquetSource::new(self.schema.clone()).with_table_parquet_options(options);
        let scan = FileScanConfigBuilder::new(self.url.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(Some(columns.to_vec()))?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }

    /// Rows of a file without those of chunks that are another file's.
    fn scan_of_part(
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
        let scan = self.scan_of(state, &[file], &with_chunk, None)?;
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

/// Whether an expression has a question in it.
fn asks_others(expression: &Expr) -> bool {
    let asks =
        |part: &Expr| Ok(matches!(part, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)));
    expression.exists(asks).unwrap_or(true)
}

/// What is known of files without opening them.
struct Known<'t> {
    table: &'t StoreTable,
}

impl Known<'_> {
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

impl PruningStatistics for Known<'_> {
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
