//! Builds stores from real recordings with a simple independent writer, and queries them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int32Array, Int64Array, ListBuilder, PrimitiveBuilder, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{Field, Int64Type, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::parquet::arrow::ArrowWriter;
use flightline_consumer::fold::{NO_STACK, TRUNCATED};
use flightline_consumer::folded;
use flightline_consumer::load::{LoadOptions, load};
use flightline_consumer::model::{Frame, FrameKind, Model, SampleKey};
use flightline_consumer::tree::Tree;
use flightline_store::query::{OpenOptions, Session};
use futures::TryStreamExt;
use jfr_format::read::Input;

/// Path of a fixture recording.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name)
}

/// Loads a recording.
pub fn model(path: &Path) -> Model {
    load(&mut Input::open(path).unwrap(), &LoadOptions::default(), |_| {}).unwrap().model
}

/// Loads a recording with source lines.
pub fn model_with_lines(path: &Path) -> Model {
    let options = LoadOptions { lines: true, ..LoadOptions::default() };
    load(&mut Input::open(path).unwrap(), &options, |_| {}).unwrap().model
}

/// Compares line by line and reports only the first difference; complete texts have thousands of lines.
pub fn same(got: &str, want: &str, of: &str) {
    if let Some((got, want)) = got.lines().zip(want.lines()).find(|(got, want)| got != want) {
        panic!("{of}:\n got {got}\nwant {want}");
    }
    assert_eq!(got.lines().count(), want.lines().count(), "{of}");
}

/// A sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// µs since 1970.
    pub ts: i64,
    pub event: String,
    /// Root first.
    pub stack: Vec<Frame>,
    pub labels: BTreeMap<String, String>,
}

/// The samples of a model, one millisecond apart.
pub fn samples(model: &Model, begin: i64) -> Vec<Sample> {
    let marker = |text: &str| Frame {
        function: text.into(),
        class: "".into(),
        kind: FrameKind::Marker,
        line: 0,
        place: None,
    };
    let stack = |key: &SampleKey| {
        let stack = key.stack.map(|id| model.stacks.get(id)).filter(|stack| !stack.frames.is_empty());
        let Some(stack) = stack else { return vec![marker(NO_STACK)] };
        let frames = stack.frames.iter().rev().map(|&id| model.frames.get(id).clone());
        stack.truncated.then(|| marker(TRUNCATED)).into_iter().chain(frames).collect()
    };
    let mut samples = Vec::new();
    for (key, weight) in &model.samples {
        for _ in 0..weight.count {
            samples.push(Sample {
                ts: begin + samples.len() as i64 * 1000,
                event: model.kinds.get(key.kind).name.to_string(),
                stack: stack(key),
                labels: BTreeMap::new(),
            });
        }
    }
    samples
}

/// Writes `samples` as one writer does, with all their stacks, nodes and frames, even if another writer has
/// written them.
pub fn write(store: &Path, writer: &str, day: &str, service: &str, samples: &[Sample]) {
    let (mut stacks, mut nodes, mut frames) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut ids = Vec::new();
    for sample in samples {
        let mut parent = 0;
        let mut prefixes = Vec::new();
        for (depth, frame) in sample.stack.iter().enumerate() {
            let hash = id(frame);
            frames.insert(hash, frame.clone());
            let node = id(&(parent, hash));
            nodes.insert(node, (parent, hash, depth as i32 + 1));
            prefixes.push(node);
            parent = node;
        }
        stacks.insert(parent, prefixes);
        ids.push(parent);
    }
    let text = |of: &dyn Fn(&Sample) -> Option<String>| -> ArrayRef {
        Arc::new(samples.iter().map(of).collect::<StringArray>())
    };
    let ts: TimestampMicrosecondArray = samples.iter().map(|sample| Some(sample.ts)).collect();
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("ts".into(), Arc::new(ts.with_timezone("UTC"))),
        ("stack_id".into(), Arc::new(Int64Array::from(ids))),
        ("event_type".into(), text(&|sample| Some(sample.event.clone()))),
        ("samples".into(), Arc::new(Int64Array::from(vec![1; samples.len()]))),
        ("value".into(), Arc::new(Int64Array::from(vec![10; samples.len()]))),
    ];
    let mut keys: Vec<&String> = samples.iter().flat_map(|sample| sample.labels.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        columns.push((format!("label_{key}"), text(&|sample| sample.labels.get(key).cloned())));
    }
    file(&store.join(format!("samples/day={day}/service={service}/{writer}.parquet")), columns);

    let mut prefixes = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
    for path in stacks.values() {
        prefixes.values().append_slice(path);
        prefixes.append(true);
    }
    let numbers = |numbers: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(numbers)) };
    let columns = vec![
        ("stack_id".into(), numbers(stacks.keys().copied().collect())),
        ("prefix_ids".into(), Arc::new(prefixes.finish()) as ArrayRef),
    ];
    file(&store.join(format!("stacks/day={day}/service={service}/{writer}.parquet")), columns);
    let depths: Int32Array = nodes.values().map(|&(_, _, depth)| Some(depth)).collect();
    let columns = vec![
        ("node_id".into(), numbers(nodes.keys().copied().collect())),
        ("parent_id".into(), numbers(nodes.values().map(|node| node.0).collect())),
        ("frame_hash".into(), numbers(nodes.values().map(|node| node.1).collect())),
        ("depth".into(), Arc::new(depths) as ArrayRef),
    ];
    file(&store.join(format!("nodes/day={day}/service={service}/{writer}.parquet")), columns);
    let text = |of: fn(&Frame) -> &str| -> ArrayRef {
        Arc::new(frames.values().map(|frame| Some(of(frame))).collect::<StringArray>())
    };
    let lines: Int32Array = frames.values().map(|frame| Some(frame.line)).collect();
    let columns = vec![
        ("frame_hash".into(), numbers(frames.keys().copied().collect())),
        ("class_name".into(), text(|frame| &frame.class)),
        ("method_name".into(), text(|frame| &frame.function)),
        ("line".into(), Arc::new(lines) as ArrayRef),
        ("type".into(), text(|frame| frame.kind.name())),
    ];
    file(&store.join(format!("frames/day={day}/service={service}/{writer}.parquet")), columns);
}

fn file(path: &Path, columns: Vec<(String, ArrayRef)>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let field = |(name, column): &(String, ArrayRef)| Field::new(name, column.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, column)| column).collect());
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema, None).unwrap();
    writer.write(&batch.unwrap()).unwrap();
    writer.close().unwrap();
}

/// Writes a file with one row and one integer column.
pub fn one_column(path: &Path, name: &str, value: i64) {
    file(path, vec![(name.to_owned(), Arc::new(Int64Array::from(vec![value])))]);
}

/// Returns the error of opening a store.
pub async fn unopened(store: &Path) -> String {
    match Session::open(store.to_str().unwrap(), &OpenOptions::default()).await {
        Ok(_) => panic!("it is opened"),
        Err(error) => format!("{error:#}"),
    }
}

fn id(of: &impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() as i64
}

/// Formats a tree as folded text.
pub fn text(tree: &Tree) -> String {
    let mut out = Vec::new();
    folded::write(tree, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Opens a store.
pub async fn open(store: &Path) -> Session {
    Session::open(store.to_str().unwrap(), &OpenOptions::default()).await.unwrap()
}

/// Returns the rows of a query, with commas between values.
pub async fn answer(session: &Session, sql: &str) -> String {
    try_answer(session, sql).await.unwrap()
}

/// Returns the rows of a query or its error.
pub async fn try_answer(session: &Session, sql: &str) -> anyhow::Result<String> {
    let batches: Vec<_> = session.stream(sql).await?.try_collect().await?;
    let table = pretty_format_batches(&batches)?.to_string();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join(","));
    Ok(cells.collect::<Vec<_>>().join("\n"))
}

/// The files of a store.
pub fn files(store: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![store.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                // The lock file.
                false if path.ends_with("_maintenance") => {}
                false => found.push(path.strip_prefix(store).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}
