//! An open store.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::file_format::options::{CsvReadOptions, JsonReadOptions, ParquetReadOptions};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::files::{self, Tables};
use crate::storage::while_files_change;

/// Memory of a query; beyond it, the engine spills to disk.
const MEMORY: usize = 2 << 30;

/// Options for opening a store.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Number of threads; by default the number of CPUs.
    pub threads: Option<usize>,
    /// Maximum memory of a query in bytes.
    pub memory: Option<usize>,
    /// Condition on samples; excluded days and services are not visible. Empty: all are visible.
    pub only: String,
}

/// A store and its SQL engine.
pub struct Session {
    context: SessionContext,
    tables: Tables,
}

impl Session {
    /// Opens the store in a directory or at the URL of an object store.
    ///
    /// # Errors
    /// Returns an error if there is no store or it cannot be read.
    pub async fn open(store: &str, options: &OpenOptions) -> Result<Self> {
        let mut config = SessionConfig::new().with_information_schema(true);
        if let Some(threads) = options.threads {
            config = config.with_target_partitions(threads.max(1));
        }
        config.options_mut().execution.parquet.pushdown_filters = true;
        let pool = FairSpillPool::new(options.memory.unwrap_or(MEMORY));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc()?;
        let context = SessionContext::new_with_config_rt(config, runtime);
        let tables = while_files_change(|| files::open(store, &options.only, &context)).await?;
        for (name, table) in tables.all() {
            context.register_table(name, Arc::new(table.clone()))?;
        }
        Ok(Self { context, tables })
    }

    /// Registers a table of the user: a CSV, Parquet or JSON file, by its extension.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or the name is that of a table of the store.
    pub async fn add_table(&self, name: &str, file: &Path) -> Result<()> {
        if self.tables.all().any(|(taken, _)| taken == name) {
            bail!("{name} is a table of the store: give {} another name", file.display());
        }
        let path = file.to_str().with_context(|| format!("{} is no text", file.display()))?;
        if !path.contains("://") && !file.exists() {
            bail!("there is no file {path}");
        }
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or("");
        let cannot = || format!("cannot read {path} as a table");
        match ending.to_ascii_lowercase().as_str() {
            "csv" => self.context.register_csv(name, path, CsvReadOptions::new()).await,
            "tsv" => {
                let options = CsvReadOptions::new().delimiter(b'\t').file_extension("tsv");
                self.context.register_csv(name, path, options).await
            }
            "parquet" => self.context.register_parquet(name, path, ParquetReadOptions::default()).await,
            "json" | "ndjson" | "jsonl" => {
                let options = JsonReadOptions { file_extension: ending, ..JsonReadOptions::default() };
                self.context.register_json(name, path, options).await
            }
            _ => bail!("{path}: tables are read from .csv, .tsv, .parquet, .json and .ndjson"),
        }
        .with_context(cannot)
    }

    /// Plans a query. Only read-only statements are accepted.
    ///
    /// # Errors
    /// Returns an error if the SQL is invalid or refers to unknown tables or columns.
    pub async fn plan(&self, sql: &str) -> Result<DataFrame> {
        let only_read =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        Ok(self.context.sql_with_options(sql, only_read).await?)
    }

    /// Runs a query and streams the result.
    ///
    /// # Errors
    /// See [`Session::plan`].
    pub async fn stream(&self, sql: &str) -> Result<SendableRecordBatchStream> {
        Ok(self.plan(sql).await?.execute_stream().await?)
    }

    /// Returns the folders that may have rows of `table` where the condition holds.
    ///
    /// # Errors
    /// Returns an error if the condition is invalid for that table.
    pub async fn folders(&self, table: &str, filter: &str) -> Result<BTreeSet<Vec<String>>> {
        let sql = format!("SELECT * FROM {table} WHERE {}", condition(filter)?);
        let (state, plan) = self.plan(&sql).await?.into_parts();
        let mut filters = Vec::new();
        state.optimize(&plan)?.apply(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && scan.table_name.table() == table
            {
                filters.extend(unnormalize_cols(scan.filters.iter().cloned()));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(self.tables.get(table)?.folders(&state, &filters)?)
    }

    /// Returns the tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Returns DataFusion's session.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }
}

/// Validates a condition for use in a query; an empty one becomes `true`.
///
/// # Errors
/// Returns an error if it is not a single SQL condition.
pub fn condition(text: &str) -> Result<String> {
    if text.trim().is_empty() {
        return Ok("true".to_owned());
    }
    let cannot = || format!("{text:?} is no condition of SQL, as service = 'x' AND day = '2026-01-31'");
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).with_context(cannot)?;
    let expression = parser.parse_expr().with_context(cannot)?;
    if parser.peek_token().token != Token::EOF {
        bail!("{}: there is more behind it", cannot());
    }
    Ok(format!("({expression})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_must_be_a_single_expression() {
        assert_eq!(condition("a = 1 or b = 'x;y'").unwrap(), "(a = 1 OR b = 'x;y')");
        assert_eq!(condition(" ").unwrap(), "true");
        assert_eq!(condition("true -- or not").unwrap(), "(true)");
        for more in ["true) OR (true", "true; DROP TABLE samples", "true GROUP BY a", "select 1", "'"] {
            assert!(condition(more).is_err(), "{more}");
        }
    }
}
