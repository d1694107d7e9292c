//! Columns of the tables and their encoding.
//!
//! Timestamps are UTC µs, delta-encoded, as are numbers that rarely change; all other columns use
//! dictionaries (measurements: `docs/guide/tasks/store.md`). The files contain no Arrow schema, so engines see
//! plain Parquet types.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::parquet::basic::{Compression, Encoding, ZstdLevel};
use datafusion::parquet::file::metadata::KeyValue;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::footer;
use crate::layout::Table;

/// Column with the timestamp.
pub const TIME: &str = "ts";
/// Prefix of label columns, which keeps them apart from other columns.
pub const LABEL: &str = "label_";
/// Map column with the labels that have no column of their own.
pub const LABELS: &str = "labels";
/// Maximum number of labels with their own column in a file; the others are in [`LABELS`].
pub const MOST_LABELS: usize = 64;
/// Rows per row group.
pub const GROUP: usize = 250_000;
/// Maximum size of a column's dictionary in bytes; beyond it, values are stored plainly.
const DICTIONARY: usize = 16 << 20;

/// Type of timestamps.
pub fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Type of [`LABELS`].
pub fn map() -> DataType {
    let entry = |name: &str, nullable| Arc::new(Field::new(name, DataType::Utf8, nullable));
    let entries = DataType::Struct(vec![entry("key", false), entry("value", true)].into());
    DataType::Map(Arc::new(Field::new("key_value", entries, false)), false)
}

fn list() -> DataType {
    DataType::List(Arc::new(Field::new("element", DataType::Int64, true)))
}

/// The fixed columns of a table, in order. Samples and aggregated tables also have label columns.
pub fn columns(table: Table) -> Vec<Field> {
    use DataType::{Boolean, Int32, Int64, Utf8};
    let has = |name: &str, of: DataType| Field::new(name, of, false);
    let may = |name: &str, of: DataType| Field::new(name, of, true);
    match table {
        Table::Samples => vec![
            has(TIME, time()),
            has("stack_id", Int64),
            has("event_type", Utf8),
            may("variant", Utf8),
            may("state", Utf8),
            may("thread", Utf8),
            may("tid", Int64),
            has("samples", Int64),
            has("value", Int64),
            has("unit", Utf8),
            may("duration_ns", Int64),
            may("span_id", Utf8),
            may("root_span_id", Utf8),
            may("trace_id", Utf8),
            has("chunk", Int64),
        ],
        Table::Minutes | Table::Hours | Table::Days => vec![
            has(TIME, time()),
            has("stack_id", Int64),
            has("event_type", Utf8),
            may("variant", Utf8),
            may("state", Utf8),
            has("samples", Int64),
            has("value", Int64),
            has("unit", Utf8),
        ],
        Table::Stacks => vec![
            has("stack_id", Int64),
            has("depth", Int32),
            has("truncated", Boolean),
            has("prefix_ids", list()),
        ],
        Table::Nodes => {
            vec![
                has("node_id", Int64),
                has("parent_id", Int64),
                has("frame_hash", Int64),
                has("depth", Int32),
            ]
        }
        Table::Frames => vec![
            has("frame_hash", Int64),
            has("class_name", Utf8),
            has("method_name", Utf8),
            has("line", Int32),
            has("type", Utf8),
        ],
        Table::Losses => vec![
            has(TIME, time()),
            has("told_by", Utf8),
            has("cause", Utf8),
            may("event_type", Utf8),
            may("thread", Utf8),
            may("events", Int64),
            may("bytes", Int64),
            may("cpu_ns", Int64),
            has("chunk", Int64),
        ],
    }
}

/// Returns the column of a label: in lower case, because some engines ignore case, with only characters that
/// need no quotes.
pub fn label_column(key: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9') => c,
        _ => '_',
    };
    LABEL.chars().chain(key.chars().map(plain)).collect()
}

/// Returns the schema of columns.
pub fn schema(fields: Vec<Field>) -> Arc<Schema> {
    Arc::new(Schema::new(fields))
}

/// Parquet writer properties; `footer_text` is stored in the footer.
pub fn properties(table: Table, footer_text: Option<String>) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("flightline {}", env!("CARGO_PKG_VERSION")))
        .set_max_row_group_row_count(Some(GROUP))
        .set_dictionary_page_size_limit(DICTIONARY);
    // Values are unique.
    if let Some(id) = table.id() {
        properties = properties.set_column_dictionary_enabled(id.into(), false);
    }
    if matches!(table, Table::Samples | Table::Losses) {
        properties = properties
            .set_column_dictionary_enabled(TIME.into(), false)
            .set_column_encoding(TIME.into(), Encoding::DELTA_BINARY_PACKED);
        // These numbers rarely change, so their differences compress to nothing, and encoding needs no
        // dictionary lookup.
        for column in
            ["samples", "chunk"].iter().filter(|name| columns(table).iter().any(|of| of.name() == *name))
        {
            properties = properties
                .set_column_dictionary_enabled((*column).into(), false)
                .set_column_encoding((*column).into(), Encoding::DELTA_BINARY_PACKED);
        }
        // Minimum and maximum are useless for hashes and for columns that are similar in all files. Labels
        // and types have them, since they help to skip files.
        let telling = |name: &str| [TIME, "event_type", "chunk"].contains(&name);
        for field in columns(table).iter().filter(|field| !telling(field.name())) {
            let column = field.name().as_str().into();
            properties = properties.set_column_statistics_enabled(column, EnabledStatistics::None);
        }
    }
    properties
        .set_key_value_metadata(
            footer_text.map(|footer_text| vec![KeyValue::new(footer::KEY.to_owned(), footer_text)]),
        )
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_columns_never_collide_with_other_columns() {
        assert_eq!(label_column("ts"), "label_ts");
        assert_eq!(label_column("http.Method"), "label_http_method");
        assert_eq!(label_column("é'\"; DROP"), "label______drop");
        for table in Table::ALL {
            assert!(
                columns(table).iter().all(|field| !field.name().starts_with(LABEL) && field.name() != LABELS)
            );
        }
    }
}
