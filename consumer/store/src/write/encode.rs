//! Encodes rows as Parquet files.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListBuilder, MapBuilder, MapFieldNames,
    PrimitiveBuilder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;

use super::dictionary::{Dictionary, Stack};
use super::rows::{Context, Lost, NONE, Row, Rows, Texts};
use crate::layout::{Day, Table};
use crate::schema;
use flightline_consumer::model::Unit;

/// Rows per batch.
const AT_A_TIME: usize = 1 << 16;

/// Maximum number of days in a delivery; more indicate a wrong clock.
const MOST_DAYS: usize = 62;

/// The encoded rows of one day.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) day: Day,
    /// Ids of stacks that may be missing in the store, and files of their frames, nodes and stacks.
    pub(super) fresh: Vec<i64>,
    pub(super) dictionary: Option<[Vec<u8>; 3]>,
    pub(super) losses: Option<Vec<u8>>,
    pub(super) samples: Vec<u8>,
    pub(super) rows: u64,
    pub(super) lost: u64,
}

/// Encodes all rows by day. `told` returns the footer of a day's samples; `always` is a day that gets a file
/// even without rows.
pub(super) fn encode(
    rows: &mut Rows,
    always: Option<Day>,
    known: impl Fn(Day, i64) -> bool,
    told: impl Fn(Day, &Rows) -> Result<String>,
) -> Result<Vec<Encoded>> {
    // Fast, since rows are nearly sorted.
    rows.rows.sort_by_key(|row| row.ts);
    rows.lost.sort_by_key(|lost| lost.ts);
    let days =
        rows.rows.iter().map(|row| row.ts).chain(rows.lost.iter().map(|lost| lost.ts)).map(Day::from_micros);
    let days: BTreeSet<Day> = days.chain(always).collect();
    if let (Some(first), Some(last)) = (days.first(), days.last())
        && days.len() > MOST_DAYS
    {
        bail!(
            "its samples are of {} days, {first} to {last}, more than {MOST_DAYS}: the clock was not right. \
             It is not taken in; `flightline cut` leaves out times",
            days.len()
        );
    }
    let within = |day: Day| move |ts: i64| Day::from_micros(ts) < day;
    let mut files = Vec::with_capacity(days.len());
    for day in days {
        let (before, after) = (within(day), |ts: i64| Day::from_micros(ts) <= day);
        let of_day = &rows.rows
            [rows.rows.partition_point(|row| before(row.ts))..rows.rows.partition_point(|row| after(row.ts))];
        let lost = &rows.lost[rows.lost.partition_point(|lost| before(lost.ts))
            ..rows.lost.partition_point(|lost| after(lost.ts))];
        let fresh = fresh(&rows.dictionary, of_day, |id| known(day, id));
        files.push(Encoded {
            day,
            fresh: fresh.iter().map(|stack| stack.id).collect(),
            dictionary: if fresh.is_empty() { None } else { Some(dictionary(&rows.dictionary, &fresh)?) },
            losses: if lost.is_empty() { None } else { Some(losses(rows, lost)?) },
            samples: samples(rows, of_day, told(day, rows)?)?,
            rows: of_day.len() as u64,
            lost: lost.len() as u64,
        });
    }
    Ok(files)
}

fn samples(rows: &Rows, of_day: &[Row], told: String) -> Result<Vec<u8>> {
    let columns: Vec<&str> = rows.labels.columns().collect();
    let mut fields = schema::columns(Table::Samples);
    fields.extend(columns.iter().map(|name| Field::new(*name, DataType::Utf8, true)));
    let others = of_day.iter().any(|row| !rows.contexts[row.context as usize].others.is_empty());
    if others {
        fields.push(Field::new(schema::LABELS, schema::map(), true));
    }
    // Label values of each context, by column.
    let mut labels = vec![NONE; rows.contexts.len() * columns.len()];
    for (number, context) in rows.contexts.iter().enumerate() {
        for &(column, value) in &context.labels {
            labels[number * columns.len() + column] = value;
        }
    }
    let texts = AllTexts::new(rows);
    // Dictionary codes of context ids, so that the text is not repeated in each row.
    let ids = |of: fn(&Context) -> &Option<String>| -> (Vec<u32>, ArrayRef) {
        let mut texts: Vec<&str> = Vec::new();
        let code = |context| match of(context) {
            Some(id) => {
                texts.push(id);
                texts.len() as u32 - 1
            }
            None => NONE,
        };
        let codes = rows.contexts.iter().map(code).collect();
        (codes, Arc::new(StringArray::from(texts)))
    };
    let (spans, roots, traces) =
        (ids(|context| &context.span), ids(|context| &context.root), ids(|context| &context.trace));
    let batches = pieces(of_day).map(|part| {
        let numbers =
            |of: fn(&Row) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(part.iter().map(of))) };
        let thread = |row: &Row| rows.threads.get(row.thread as usize);
        let context = |row: &Row| &rows.contexts[row.context as usize];
        let of_context = |(codes, ids): &(Vec<u32>, ArrayRef)| {
            coded(part.iter().map(|row| codes[row.context as usize]), ids)
        };
        let ts = TimestampMicrosecondArray::from_iter_values(part.iter().map(|row| row.ts));
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(ts.with_timezone("UTC")),
            Arc::new(Int64Array::from_iter_values(
                part.iter().map(|row| rows.dictionary.stacks[row.stack as usize].id),
            )),
            coded(part.iter().map(|row| row.event), &texts.events),
            coded(part.iter().map(|row| row.variant), &texts.variants),
            coded(part.iter().map(|row| row.state), &texts.states),
            coded(part.iter().map(|row| thread(row).map_or(NONE, |who| who.name)), &texts.names),
            Arc::new(part.iter().map(|row| thread(row)?.tid).collect::<Int64Array>()),
            numbers(|row| row.samples),
            numbers(|row| row.value),
            coded(part.iter().map(|row| unit_number(row.unit)), &texts.units),
            Arc::new(part.iter().map(|row| Some(row.duration).filter(|&ns| ns >= 0)).collect::<Int64Array>()),
            of_context(&spans),
            of_context(&roots),
            of_context(&traces),
            Arc::new(Int64Array::from_iter_values(part.iter().map(|row| chunk(rows, row.chunk)))),
        ];
        for column in 0..columns.len() {
            let codes = part.iter().map(|row| labels[row.context as usize * columns.len() + column]);
            arrays.push(coded(codes, &texts.values));
        }
        if others {
            arrays.push(maps(part.iter().map(context))?);
        }
        Ok(arrays)
    });
    file(Table::Samples, fields, Some(told), batches)
}

fn losses(rows: &Rows, lost: &[Lost]) -> Result<Vec<u8>> {
    let batches = pieces(lost).map(|part| {
        let text = |of: fn(&Lost) -> Option<&Arc<str>>| -> ArrayRef {
            Arc::new(part.iter().map(|lost| of(lost).map(|text| &**text)).collect::<StringArray>())
        };
        let number = |of: fn(&Lost) -> Option<i64>| -> ArrayRef {
            Arc::new(part.iter().map(of).collect::<Int64Array>())
        };
        let ts = TimestampMicrosecondArray::from_iter_values(part.iter().map(|lost| lost.ts));
        Ok(vec![
            Arc::new(ts.with_timezone("UTC")) as ArrayRef,
            text(|lost| Some(&lost.told_by)),
            text(|lost| Some(&lost.cause)),
            text(|lost| lost.event.as_ref()),
            text(|lost| lost.thread.as_ref()),
            number(|lost| lost.events),
            number(|lost| lost.bytes),
            number(|lost| lost.cpu),
            Arc::new(Int64Array::from_iter_values(part.iter().map(|lost| chunk(rows, lost.chunk)))),
        ])
    });
    file(Table::Losses, schema::columns(Table::Losses), None, batches)
}

/// Returns the stacks of some rows that are not known, sorted by id.
fn fresh<'d>(dictionary: &'d Dictionary, rows: &[Row], known: impl Fn(i64) -> bool) -> Vec<&'d Stack> {
    let mut used = vec![false; dictionary.stacks.len()];
    for row in rows {
        used[row.stack as usize] = true;
    }
    let stacks = dictionary.stacks.iter().zip(used).filter(|(_, used)| *used).map(|(stack, _)| stack);
    let mut stacks: Vec<&Stack> = stacks.filter(|stack| !known(stack.id)).collect();
    stacks.sort_unstable_by_key(|stack| stack.id);
    stacks
}

/// Encodes frames, nodes and stacks, each sorted by id.
fn dictionary(dictionary: &Dictionary, stacks: &[&Stack]) -> Result<[Vec<u8>; 3]> {
    let mut nodes: Vec<i64> = stacks.iter().flat_map(|stack| stack.path.iter().copied()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut nodes: Vec<_> = nodes.into_iter().map(|id| (id, dictionary.nodes[&id])).collect();
    let mut frames: Vec<i64> = nodes.iter().map(|(_, node)| node.frame).collect();
    frames.sort_unstable();
    frames.dedup();
    // Parents before children: neighbours are similar and compress well.
    nodes.sort_by_key(|(_, node)| node.depth);

    let of_frames = pieces(&frames).map(|part| {
        let of = |id: &i64| &dictionary.frames[id];
        let text = |text: fn(&super::dictionary::Frame) -> &str| -> ArrayRef {
            Arc::new(part.iter().map(|id| Some(text(of(id)))).collect::<StringArray>())
        };
        Ok(vec![
            Arc::new(Int64Array::from(part.to_vec())) as ArrayRef,
            text(|frame| &frame.class),
            text(|frame| &frame.function),
            Arc::new(Int32Array::from_iter_values(part.iter().map(|id| of(id).line))),
            text(|frame| frame.kind.name()),
        ])
    });
    let of_nodes = pieces(&nodes).map(|part| {
        let ids = Int64Array::from_iter_values(part.iter().map(|(id, _)| *id));
        let parents = Int64Array::from_iter_values(part.iter().map(|(_, node)| node.parent));
        let frames = Int64Array::from_iter_values(part.iter().map(|(_, node)| node.frame));
        let depths = Int32Array::from_iter_values(part.iter().map(|(_, node)| node.depth));
        Ok(vec![Arc::new(ids) as ArrayRef, Arc::new(parents), Arc::new(frames), Arc::new(depths)])
    });
    let of_stacks = pieces(stacks).map(|part| {
        let element = Field::new("element", DataType::Int64, true);
        let mut paths = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new()).with_field(element);
        for stack in part {
            paths.values().append_slice(&stack.path);
            paths.append(true);
        }
        let ids = Int64Array::from_iter_values(part.iter().map(|stack| stack.id));
        let depths = Int32Array::from_iter_values(part.iter().map(|stack| stack.path.len() as i32));
        let truncated: BooleanArray = part.iter().map(|stack| Some(stack.truncated)).collect();
        Ok(vec![Arc::new(ids) as ArrayRef, Arc::new(depths), Arc::new(truncated), Arc::new(paths.finish())])
    });
    Ok([
        file(Table::Frames, schema::columns(Table::Frames), None, of_frames)?,
        file(Table::Nodes, schema::columns(Table::Nodes), None, of_nodes)?,
        file(Table::Stacks, schema::columns(Table::Stacks), None, of_stacks)?,
    ])
}

/// Splits rows into batches; returns one empty batch if there are no rows, so that the file has columns.
fn pieces<T>(rows: &[T]) -> impl Iterator<Item = &[T]> {
    let none = rows.is_empty().then_some(rows);
    rows.chunks(AT_A_TIME).chain(none)
}

/// Writes batches to a file.
fn file(
    table: Table,
    fields: Vec<Field>,
    told: Option<String>,
    batches: impl Iterator<Item = Result<Vec<ArrayRef>>>,
) -> Result<Vec<u8>> {
    let cannot = || format!("cannot write rows of {}", table.name());
    let options = ArrowWriterOptions::new()
        .with_properties(schema::properties(table, told))
        .with_skip_arrow_metadata(true);
    let mut writer: Option<ArrowWriter<Vec<u8>>> = None;
    for arrays in batches {
        let arrays = arrays?;
        // Types as in the fields, except for dictionary-encoded strings.
        let given = fields
            .iter()
            .zip(&arrays)
            .map(|(field, array)| field.clone().with_data_type(array.data_type().clone()));
        let of_batch = Arc::new(Schema::new(given.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(of_batch.clone(), arrays).with_context(cannot)?;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => none.insert(ArrowWriter::try_new_with_options(Vec::new(), of_batch, options.clone())?),
        };
        writer.write(&batch).with_context(cannot)?;
    }
    writer.context("no rows")?.into_inner().with_context(cannot)
}

const UNITS: [Unit; 4] = [Unit::Samples, Unit::Nanoseconds, Unit::Bytes, Unit::Events];

fn unit_number(unit: Unit) -> u32 {
    UNITS.iter().position(|&of| of == unit).map_or(NONE, |at| at as u32)
}

struct AllTexts {
    events: ArrayRef,
    variants: ArrayRef,
    states: ArrayRef,
    names: ArrayRef,
    values: ArrayRef,
    units: ArrayRef,
}

impl AllTexts {
    fn new(rows: &Rows) -> Self {
        let all = |texts: &Texts| -> ArrayRef {
            Arc::new(texts.all.iter().map(|text| Some(&**text)).collect::<StringArray>())
        };
        Self {
            events: all(&rows.events),
            variants: all(&rows.variants),
            states: all(&rows.states),
            names: all(&rows.names),
            values: all(&rows.values),
            units: Arc::new(StringArray::from(UNITS.map(Unit::name).to_vec())),
        }
    }
}

/// Creates a string column from dictionary codes.
fn coded(codes: impl Iterator<Item = u32>, texts: &ArrayRef) -> ArrayRef {
    let keys: Int32Array = codes.map(|code| i32::try_from(code).ok()).collect();
    match DictionaryArray::<Int32Type>::try_new(keys, texts.clone()) {
        Ok(array) => Arc::new(array),
        // All codes are valid.
        Err(error) => unreachable!("{error}"),
    }
}

fn maps<'c>(contexts: impl Iterator<Item = &'c Context>) -> Result<ArrayRef> {
    let names = MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() };
    let mut maps = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for context in contexts {
        for (key, value) in &context.others {
            maps.keys().append_value(key);
            maps.values().append_value(value);
        }
        maps.append(!context.others.is_empty())?;
    }
    Ok(Arc::new(maps.finish()))
}

fn chunk(rows: &Rows, number: u32) -> i64 {
    rows.chunks.get(number as usize).map_or(0, |id| id.0.cast_signed())
}
