//! Queries of stores that contain real recordings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::kit::{self, Sample, answer, open, text};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use flightline_consumer::fold::{FoldOptions, fold};
use flightline_consumer::model::Frame;
use flightline_store::query::dialect::{self, Engine};
use flightline_store::query::function_share::{Question, Share, shares};
use flightline_store::query::tree::{MISSING, grow};
use flightline_store::query::weights::{Choice, Measure};
use flightline_store::query::{OpenOptions, Session};
use futures::TryStreamExt;

/// Day of the samples, in µs since 1970.
const DAY: i64 = 1_767_225_600_000_000; // 2026-01-01

async fn refusal(session: &Session, sql: &str) -> String {
    match session.stream(sql).await {
        Err(error) => format!("{error:#}"),
        Ok(rows) => match rows.try_collect::<Vec<_>>().await {
            Err(error) => error.to_string(),
            Ok(rows) => panic!("{sql} is answered: {rows:?}"),
        },
    }
}

/// Creates a store of a recording whose samples were written by two independent writers.
fn written_by_two(store: &Path, samples: &[Sample]) {
    let (odd, even): (Vec<_>, Vec<_>) = samples.iter().cloned().enumerate().partition(|(at, _)| at % 2 == 1);
    for (writer, half) in [("odd", odd), ("even", even)] {
        let half: Vec<Sample> = half.into_iter().map(|(_, sample)| sample).collect();
        kit::write(store, writer, "2026-01-01", "java", &half);
    }
}

/// Selects the samples that satisfy the condition.
fn of(filter: &str, measure: Measure) -> Choice<'_> {
    Choice { table: "samples", filter, measure }
}

#[tokio::test]
async fn store_flame_graph_equals_recording() {
    let mut compared = 0;
    for name in
        ["jdk25.jfr", "jdk17-multichunk.jfr", "ap-java-cpu.jfr", "ap-native-mem.jfr", "flightline.jfr"]
    {
        let folder = tempfile::tempdir().unwrap();
        let model = kit::model(&kit::fixture(name));
        written_by_two(folder.path(), &kit::samples(&model, DAY));
        let session = open(folder.path()).await;
        for (_, kind) in model.kinds.iter() {
            for lines in [false, true] {
                let events = vec![kind.name.to_string()];
                let options = FoldOptions { lines, events, ..FoldOptions::default() };
                let want = text(&fold(&model, &options).unwrap());
                let filter = format!("event_type = '{}'", kind.name);
                let grown = grow(&session, of(&filter, Measure::Samples), &options).await.unwrap();
                assert_eq!(text(&grown.tree), want, "{name}: {}", kind.name);
                assert_eq!(grown.missing, 0);
                compared += want.lines().count();
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

/// Number of samples per call path, with all properties of its frames.
fn boxes(samples: &[Sample]) -> BTreeMap<String, i64> {
    let mut boxes = BTreeMap::new();
    for sample in samples {
        let mut path = String::new();
        for frame in &sample.stack {
            path += &format!(";{}|{}|{}|{}", frame.class, frame.function, frame.line, frame.kind.name());
            *boxes.entry(path.clone()).or_default() += 1;
        }
    }
    boxes
}

#[tokio::test]
async fn portable_sql_counts_each_box_once_for_every_writer() {
    let folder = tempfile::tempdir().unwrap();
    let samples = kit::samples(&kit::model(&kit::fixture("jdk25.jfr")), DAY);
    written_by_two(folder.path(), &samples);
    let session = open(folder.path()).await;
    for percent in [0.0, 1.0] {
        let sql = dialect::flame(Engine::DataFusion, of("", Measure::Samples), percent).unwrap();
        let mut paths = BTreeMap::from([(0, String::new())]);
        let mut seen = BTreeMap::new();
        let mut rows = session.stream(&sql).await.unwrap();
        while let Some(batch) = rows.try_next().await.unwrap() {
            let number = |at: usize| batch.column(at).as_primitive::<Int64Type>();
            let cast = |at: usize| {
                let to = datafusion::arrow::datatypes::DataType::Utf8;
                datafusion::arrow::compute::cast(batch.column(at), &to).unwrap()
            };
            let [classes, methods, lines, kinds] = [cast(3), cast(4), cast(5), cast(6)];
            for row in 0..batch.num_rows() {
                let [class, method, line, kind] =
                    [&classes, &methods, &lines, &kinds].map(|column| column.as_string::<i32>().value(row));
                let path = format!("{};{class}|{method}|{line}|{kind}", paths[&number(0).value(row)]);
                let depth = batch.column(2).as_primitive::<Int32Type>().value(row);
                assert_eq!(path.split(';').count(), depth as usize + 1);
                assert!(paths.insert(number(1).value(row), path.clone()).is_none(), "{path} is there once");
                seen.insert(path, number(7).value(row));
            }
        }
        let mut want = boxes(&samples);
        want.retain(|_, count| *count as f64 * 100.0 / samples.len() as f64 >= percent);
        assert!(want.len() > 20);
        assert_eq!(seen, want);
    }
    for (table, id) in [("nodes", "node_id"), ("stacks", "stack_id")] {
        // With and without the id in the selected columns.
        let distinct = answer(&session, &format!("SELECT count(DISTINCT {id}) FROM {table}")).await;
        assert_eq!(answer(&session, &format!("SELECT count(*) FROM {table}")).await, distinct);
        let (_, rows, _) = session.tables().get(table).unwrap().size();
        assert!(rows > distinct.parse::<u64>().unwrap(), "both writers wrote some of {table}");
    }
}

/// A stack of functions, root first.
fn stack(functions: &str) -> Vec<Frame> {
    let frame = |function: &str| Frame {
        function: function.into(),
        class: "".into(),
        kind: flightline_consumer::model::FrameKind::Native,
        line: 0,
        place: None,
    };
    functions.split(';').map(frame).collect()
}

fn sample(ts: i64, functions: &str, labels: &[(&str, &str)]) -> Sample {
    let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    Sample { ts, event: "jdk.ExecutionSample".to_owned(), stack: stack(functions), labels }
}

/// Two days, two services, versions and tasks.
fn small(store: &Path) {
    let at = |day: i64, second: i64| DAY + (day * 86_400 + second) * 1_000_000;
    let v1 = [("version", "1"), ("task", "a")];
    let v2 = [("version", "2"), ("task", "b")];
    kit::write(
        store,
        "w1",
        "2026-01-01",
        "api",
        &[
            sample(at(0, 0), "main;serve;parse", &v1),
            sample(at(0, 10), "main;serve", &v1),
            sample(at(0, 3599), "main;idle", &v1),
            sample(at(0, 3600), "main;serve;parse", &v2),
        ],
    );
    kit::write(store, "w2", "2026-01-01", "db", &[sample(at(0, 1), "main;query", &[])]);
    kit::write(
        store,
        "w3",
        "2026-01-02",
        "api",
        &[sample(at(1, 0), "main;serve;parse", &v2), sample(at(1, 1), "main;serve;parse;alloc", &v2)],
    );
}

#[tokio::test]
async fn files_that_cannot_match_are_skipped_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    for (filter, rows, read) in [
        ("day = '2026-01-01'", 5, 2),
        ("service = 'db'", 1, 1),
        ("day = '2026-01-02' AND service = 'api'", 2, 1),
        ("day >= '2026-01-02' OR service = 'db'", 3, 2),
        ("ts < TIMESTAMP '2026-01-01T00:00:01Z'", 1, 1),
        ("ts >= TIMESTAMP '2026-01-01T01:00:00Z'", 3, 2),
        ("service = 'none'", 0, 0),
        ("label_version = '2'", 3, 3),
    ] {
        let session = open(folder.path()).await;
        let sql = format!("SELECT count(*) FROM samples WHERE {filter}");
        assert_eq!(answer(&session, &sql).await, rows.to_string(), "{filter}");
        let tally = session.tables().get("samples").unwrap().tally().files();
        assert_eq!(tally, (read, 3 - read), "{filter}");
    }
}

#[tokio::test]
async fn label_missing_in_some_files_is_null() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let session = open(folder.path()).await;
    let by_version = "SELECT label_version, count(*) FROM samples GROUP BY 1 ORDER BY 1 NULLS FIRST";
    assert_eq!(answer(&session, by_version).await, ",1\n1,3\n2,3");
}

#[tokio::test]
async fn user_tables_select_samples() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let session = open(folder.path()).await;
    let tasks = folder.path().join("tasks.csv");
    fs::write(&tasks, "task,seconds\na,3\nb,30\n").unwrap();
    session.add_table("tasks", &tasks).await.unwrap();
    let slow = "label_task IN (SELECT task FROM tasks WHERE seconds > 10)";
    let grown = grow(&session, of(slow, Measure::Samples), &FoldOptions::default()).await.unwrap();
    assert_eq!(text(&grown.tree), "main;serve;parse 2\nmain;serve;parse;alloc 1\n");
    let by_value = grow(&session, of(slow, Measure::Value), &FoldOptions::default()).await.unwrap();
    assert_eq!(text(&by_value.tree), "main;serve;parse 20\nmain;serve;parse;alloc 10\n");
    let joined = "SELECT t.task, t.seconds, count(*) FROM samples s JOIN tasks t ON s.label_task = t.task GROUP BY 1, 2 ORDER BY 1";
    assert_eq!(answer(&session, joined).await, "a,3,3\nb,30,3");
    let error = session.add_table("samples", &tasks).await.unwrap_err();
    assert!(error.to_string().contains("samples"), "{error}");
    let error = session.add_table("x", Path::new("/none.csv")).await.unwrap_err();
    assert!(error.to_string().contains("/none.csv"), "{error}");
}

#[tokio::test]
async fn shares_of_a_function_by_version_over_time() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let session = open(folder.path()).await;
    let question =
        Question { choice: of("service = 'api'", Measure::Samples), by: "label_version", every: 3600 };
    let of_parse =
        shares(&session, &question, &FoldOptions::default(), |label| &*label.text == "parse").await.unwrap();
    let hour = |hour: i64| DAY / 1_000_000 + hour * 3600;
    let row = |at: i64, version: &str, of_function: u64, total: u64| {
        ((hour(at), version.to_owned()), Share { of_function, total })
    };
    assert_eq!(of_parse, BTreeMap::from([row(0, "1", 1, 3), row(1, "2", 1, 1), row(24, "2", 2, 2)]));
}

#[tokio::test]
async fn queries_change_no_files() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let session = open(folder.path()).await;
    let out = folder.path().join("out.csv");
    for sql in [
        format!("COPY samples TO '{}'", out.display()),
        "INSERT INTO frames SELECT * FROM frames".to_owned(),
        format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{}'", out.display()),
        "CREATE TABLE t AS SELECT 1".to_owned(),
        "DROP TABLE samples".to_owned(),
        "SET datafusion.execution.batch_size = 1".to_owned(),
    ] {
        let told = refusal(&session, &sql).await;
        assert!(told.contains("not supported"), "{sql}: {told}");
    }
    assert!(!out.exists());
    let told = refusal(&session, "SELECT label_none FROM samples").await;
    assert!(told.contains("label_none"), "{told}");
}

#[tokio::test]
async fn folders_excluded_by_condition_are_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    for table in ["samples", "nodes", "frames", "stacks"] {
        fs::write(folder.path().join(table).join("day=2026-01-01/service=db/torn.parquet"), b"torn").unwrap();
    }
    assert!(kit::unopened(folder.path()).await.contains("torn.parquet"));
    let only = "service = 'api' AND label_version = '2'";
    let options = OpenOptions { only: only.to_owned(), ..OpenOptions::default() };
    let session = Session::open(folder.path().to_str().unwrap(), &options).await.unwrap();
    let grown = grow(&session, of(only, Measure::Samples), &FoldOptions::default()).await.unwrap();
    assert_eq!(text(&grown.tree), "main;serve;parse 2\nmain;serve;parse;alloc 1\n");
    // Samples, nodes and frames: two files of each are read, two in the excluded folder are skipped.
    assert_eq!(session.tables().files(), (6, 6));
}

#[tokio::test]
async fn damaged_files_are_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let torn = folder.path().join("samples/day=2026-01-01/service=db/torn.parquet");
    fs::write(&torn, b"PAR1 and no more").unwrap();
    let told = kit::unopened(folder.path()).await;
    assert!(told.contains("torn.parquet"), "{told}");
    // Incomplete files and caches are ignored.
    fs::rename(&torn, torn.with_file_name(".torn.parquet")).unwrap();
    fs::write(folder.path().join("samples/_cache.json"), "{}").unwrap();
    let session = open(folder.path()).await;
    assert_eq!(answer(&session, "SELECT count(*) FROM samples").await, "7");

    fs::remove_file(folder.path().join("nodes/day=2026-01-02/service=api/w3.parquet")).unwrap();
    let session = open(folder.path()).await;
    let filter = "service = 'api' AND label_version = '2'";
    let grown = grow(&session, of(filter, Measure::Samples), &FoldOptions::default()).await.unwrap();
    assert_eq!(text(&grown.tree), format!("{MISSING} 1\nmain;serve;parse 2\n"));
    assert_eq!((grown.missing, grown.tree.total), (1, 3));

    for table in ["samples", "stacks", "nodes", "frames"] {
        fs::remove_dir_all(folder.path().join(table)).unwrap();
    }
    assert!(kit::unopened(folder.path()).await.contains("is no store"));
    assert!(kit::unopened(Path::new("/none")).await.contains("there is no store /none"));
}
