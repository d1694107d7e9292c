//! Tables as lines of text: DuckDB and Spark count the recording's data in them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{beside, run};
use flightline_tests::victim::flightline;
use flightline_tests::{canonical, skip};

use super::{table, top};

const LIMIT: Duration = Duration::from_secs(300);

/// Samples by thread, state and innermost function, tab-separated.
fn counted(recording: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in canonical::of_file(recording).unwrap().samples {
        let cells: Vec<&str> = line.split('\t').collect();
        let leaf = cells[4].split(';').next().unwrap();
        *counts.entry([cells[1], cells[3], leaf].join("\t")).or_default() += 1;
    }
    counts
}

#[test]
fn duckdb_and_spark_read_rows_and_text() {
    let setup = run(&mut Command::new(top().join("tests/store/setup.sh")), LIMIT);
    if !setup.status.success() {
        return skip::skip(&format!("DuckDB and Spark cannot be installed here: {}", setup.stderr));
    }
    let _place = beside();
    let recording = top().join("fixtures/recordings/flightline.jfr");
    let folder = tempfile::tempdir().unwrap();
    let events = ["--events", "jdk.ExecutionSample"];
    let made = [
        ("hdps", vec!["export", "--format", "hdps", "-o", "-"]),
        ("ndjson", [&["print", "--ndjson"], &events[..]].concat()),
        ("csv", [&["print", "--csv"], &events[..]].concat()),
    ]
    .map(|(name, args)| {
        let file = folder.path().join(name);
        let done = run(Command::new(flightline()).args(args).arg(&recording), LIMIT).expect_success(name);
        std::fs::write(&file, done.stdout).unwrap();
        file
    });
    let mut python = Command::new(top().join("target/store-engines/bin/python"));
    python.arg(top().join("tests/store/rows.py")).args(made);
    let told = run(&mut python, LIMIT).expect_success("rows.py").stdout_text();
    let mut answers: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for line in told.lines() {
        let (row, count) = line.rsplit_once('\t').expect("a count");
        let cells: Vec<&str> = row.splitn(3, '\t').collect();
        let of = answers.entry(cells[..2].join(", ")).or_default();
        of.insert(cells[2].to_owned(), count.parse().unwrap());
    }
    let counted = counted(&recording);
    let readers = table::READERS.iter().filter(|reader| ["DuckDB", "Spark"].contains(&reader.name)).count();
    assert_eq!(answers.len(), 3 * readers, "{told}");
    for (who, answer) in answers {
        assert_eq!(answer, counted, "{who}");
    }
}
