//! A store as large as one likes, to measure questions with: `cargo run --release -p flightline-store --example make_store -- DIR [SAMPLES] [STACKS]`.
//! As in the comparison of layouts: 50,000 stacks, zipf(1), 40 frames deep, 12,000 frames, 10 services, 2 days, 20 hosts, 4000 tasks; labels
//! fall at random, which is the worst case.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int16Array, Int32Array, Int64Array, ListBuilder, PrimitiveBuilder, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{Field, Int64Type, Schema};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, Encoding};
use datafusion::parquet::file::properties::WriterProperties;

const FRAMES: u64 = 12_000;
const SERVICES: usize = 10;
const DAYS: [(&str, i64); 2] = [("2025-11-20", 1_763_596_800), ("2025-11-21", 1_763_683_200)];
/// Rows of a row group, and of a batch.
const GROUP: usize = 250_000;

/// Steele's splitmix64: numbers at random, and hashes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| arguments.get(at).map_or(or, |text| text.parse().expect("a number"));
    let store = Path::new(arguments.first().expect("the folder to write"));
    let (samples, stacks) = (number(1, 5_000_000), number(2, 50_000));
    let mut random = Random(1);
    let ids = stacks_of(store, stacks, &mut random);
    let weights: Vec<f64> = (1..=stacks)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        })
        .collect();
    let each = samples / (SERVICES * DAYS.len());
    for (day, begin) in DAYS {
        for service in 0..SERVICES {
            let mut writer = None;
            let mut left = each;
            let mut from = begin * 1_000_000;
            while left > 0 {
                let rows = left.min(GROUP);
                let until = from + 86_400_000_000 * rows as i64 / each as i64;
                let batch = batch(rows, (from, until), &ids, &weights, &mut random);
                let name = format!("samples/day={day}/service=svc{service}/made-0.parquet");
                let writer = writer.get_or_insert_with(|| writer_of(&store.join(name), &batch));
                writer.write(&batch).expect("written");
                (left, from) = (left - rows, until);
            }
            writer.expect("samples").close().expect("written");
        }
    }
}

/// Writes stacks, nodes and frames; the ids of stacks.
fn stacks_of(store: &Path, stacks: usize, random: &mut Random) -> Vec<i64> {
    let mut nodes: HashMap<i64, (i64, i64, i16)> = HashMap::new();
    let mut paths: Vec<Vec<i64>> = Vec::with_capacity(stacks);
    while paths.len() < stacks {
        // Most of a stack it has in common with another one.
        let mut path = match paths.len() as u64 {
            0 => Vec::new(),
            known => paths[random.below(known) as usize].clone(),
        };
        path.truncate((10 + random.below(40)) as usize);
        for _ in 0..1 + random.below(20) {
            let frame = mixed(random.below(FRAMES) + 1) as i64;
            let parent = path.last().copied().unwrap_or(0);
            let node = mixed(parent as u64 ^ (frame as u64).rotate_left(17)) as i64;
            path.push(node);
            nodes.insert(node, (parent, frame, path.len() as i16));
        }
        paths.push(path);
    }
    let numbers = |numbers: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(numbers)) };
    let ids: Vec<i64> = paths.iter().map(|path| path[path.len() - 1]).collect();
    let mut unique: HashMap<i64, &Vec<i64>> = HashMap::new();
    unique.extend(ids.iter().copied().zip(&paths));
    let mut prefixes = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
    for path in unique.values() {
        prefixes.values().append_slice(path);
        prefixes.append(true);
    }
    let prefixes: ArrayRef = Arc::new(prefixes.finish());
    let stack_ids = numbers(unique.keys().copied().collect());
    whole(&store.join("stacks/made-0.parquet"), vec![("stack_id", stack_ids), ("prefix_ids", prefixes)]);
    let depths: ArrayRef = Arc::new(nodes.values().map(|node| Some(node.2)).collect::<Int16Array>());
    let columns = vec![
        ("node_id", numbers(nodes.keys().copied().collect())),
        ("parent_id", numbers(nodes.values().map(|node| node.0).collect())),
        ("frame_hash", numbers(nodes.values().map(|node| node.1).collect())),
        ("depth", depths),
    ];
    whole(&store.join("nodes/made-0.parquet"), columns);
    let text = |of: &dyn Fn(u64) -> String| -> ArrayRef {
        Arc::new((0..FRAMES).map(|frame| Some(of(frame))).collect::<StringArray>())
    };
    let lines: ArrayRef = Arc::new((0..FRAMES).map(|frame| Some(frame as i32 % 900)).collect::<Int32Array>());
    let columns = vec![
        ("frame_hash", numbers((0..FRAMES).map(|frame| mixed(frame + 1) as i64).collect())),
        ("class_name", text(&|frame| format!("com.example.module{}.Class{}", frame % 97, frame / 8))),
        ("method_name", text(&|frame| format!("method{frame}"))),
        ("line", lines),
        ("type", text(&|frame| if frame % 3 == 0 { "native" } else { "compiled" }.to_owned())),
    ];
    whole(&store.join("frames/made-0.parquet"), columns);
    eprintln!("{} stacks, {} nodes", unique.len(), nodes.len());
    ids
}

fn batch(
    rows: usize,
    (from, until): (i64, i64),
    ids: &[i64],
    weights: &[f64],
    random: &mut Random,
) -> RecordBatch {
    let mut times: Vec<i64> = (0..rows).map(|_| from + random.below((until - from) as u64) as i64).collect();
    times.sort_unstable();
    let all = weights[weights.len() - 1];
    let stacks: Int64Array = (0..rows)
        .map(|_| {
            let at = (random.next() >> 11) as f64 / (1u64 << 53) as f64 * all;
            Some(ids[weights.partition_point(|&sum| sum < at).min(ids.len() - 1)])
        })
        .collect();
    let mut text = |name: &str, of: u64| -> ArrayRef {
        Arc::new((0..rows).map(|_| Some(format!("{name}{}", random.below(of)))).collect::<StringArray>())
    };
    let (host, task, thread) = (text("host", 20), text("task", 4000), text("thread", 200));
    let event =
        |_| Some(if random.below(2) == 0 { "jdk.ExecutionSample" } else { "jdk.ObjectAllocationSample" });
    let events: ArrayRef = Arc::new((0..rows).map(event).collect::<StringArray>());
    let values: ArrayRef = Arc::new(Int64Array::from(vec![10_000_000; rows]));
    record(vec![
        ("ts", Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")) as ArrayRef),
        ("stack_id", Arc::new(stacks)),
        ("event_type", events),
        ("thread", thread),
        ("value", values),
        ("label_host", host),
        ("label_task", task),
    ])
}

fn record(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let field = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), false);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns).expect("columns of one length")
}

fn whole(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = record(columns);
    let mut writer = writer_of(path, &batch);
    writer.write(&batch).expect("written");
    writer.close().expect("written");
}

fn writer_of(path: &Path, batch: &RecordBatch) -> ArrowWriter<File> {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_max_row_group_row_count(Some(GROUP))
        .set_column_dictionary_enabled("ts".into(), false)
        .set_column_encoding("ts".into(), Encoding::DELTA_BINARY_PACKED)
        .build();
    let file = File::create(path).expect("a file");
    ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer")
}
