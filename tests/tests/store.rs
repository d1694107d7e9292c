//! A store through the command line: a job's task attempts, and which one was slow.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::run::{Finished, run, turn};
use flightline_tests::victim;

const LIMIT: Duration = Duration::from_secs(120);

/// `flightline` with the engine that the tests build.
fn flightline(arguments: &[&str]) -> Finished {
    let mut command = Command::new(victim::flightline());
    command.args(arguments).env("FLIGHTLINE_SQL", victim::target_dir().join("debug/flightline-sql"));
    run(&mut command, LIMIT)
}

fn answer(store: &str, table: &Path, sql: &str) -> Vec<Vec<String>> {
    let table = format!("tasks={}", table.display());
    let told = flightline(&["sql", "--store", store, "--table", &table, "--format", "csv", sql]);
    let text = told.expect_success(sql).stdout_text();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// The walk-through of `consumer/docs/store-walk-through.md`: what the samples say of each attempt is what the job's own table says, and the slow one's
/// stacks have what it was made slow by.
#[test]
fn a_slow_attempt_is_found_by_the_table_of_tasks() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (table, store) = (folder.path().join("tasks.csv"), folder.path().join("store"));
    let store = store.to_str().unwrap();
    let job = env!("CARGO_BIN_EXE_task_attempts");
    let recorded = Record::new()
        .option("-e")
        .option("cpu@1ms")
        .run(job, &["--size", "20000", "-", table.to_str().unwrap()]);
    let recorded = recorded.expect_code(0);
    let recording = &recorded.path;
    let add = [
        "store",
        "add",
        "--store",
        store,
        "--service",
        "etl",
        "--label",
        "cluster=c1",
        "--json",
        "--unfinished",
    ];
    let add: Vec<&str> = add.into_iter().chain([recording.to_str().unwrap()]).collect();
    let added = flightline(&add).expect_success("store add").stdout_text();
    let added: serde_json::Value = serde_json::from_str(&added).unwrap();
    assert!(added["samples"].as_u64().unwrap() > 100, "{added}");
    let again = flightline(&add).expect_success("store add").stdout_text();
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["samples"], &again["chunks_known"]), (&0.into(), &added["chunks"]));

    // Labels are columns; those of a sample agree with each other as the table says.
    let strangers = "SELECT count(*) FROM samples s LEFT JOIN tasks t ON s.label_attempt = t.attempt
        WHERE s.label_attempt IS NOT NULL AND (t.attempt IS NULL OR t.task <> s.label_task OR t.vertex <> s.label_vertex OR t.host <> s.label_host)";
    assert_eq!(answer(store, &table, strangers), [["0"]]);
    let by_attempt = "SELECT t.attempt, t.input_records, sum(s.value) / 1e9 AS cpu FROM samples s JOIN tasks t ON s.label_attempt = t.attempt
        WHERE s.event_type = 'jdk.ExecutionSample' AND s.unit = 'ns' GROUP BY ALL ORDER BY cpu DESC";
    let rows = answer(store, &table, by_attempt);
    assert!(rows.len() > 20, "{rows:?}");
    let cpu = |at: usize| rows[at][2].parse::<f64>().unwrap();
    assert!(rows[0][0].ends_with("_00_000007_0") && cpu(0) > 3.0 * cpu(1), "{rows:?}");

    let slow = "label_attempt = (SELECT attempt FROM tasks ORDER BY seconds DESC LIMIT 1)";
    let tasks = format!("tasks={}", table.display());
    let top = ["store", "top", "--store", store, "--table", &tasks, "--where", slow, "-n", "1"];
    let top = flightline(&top).expect_success("store top").stdout_text();
    assert!(top.lines().nth(2).unwrap().ends_with("task_attempts::fits"), "{top}");
    for (name, has) in [("slow.html", "</html>"), ("slow.folded", ";task_attempts::fits")] {
        let picture = folder.path().join(name);
        let flame =
            ["flame", "--store", store, "--table", &tasks, "--where", slow, "-o", picture.to_str().unwrap()];
        flightline(&flame).expect_success("flame --store");
        assert!(std::fs::read_to_string(picture).unwrap().contains(has), "{name}");
    }
    let refused = flightline(&["sql", "--store", store, "DROP TABLE samples"]);
    assert!(!refused.status.success());
}

/// Without the engine the command says what to do.
#[test]
fn without_the_engine_it_is_said_how_to_get_it() {
    let mut command = Command::new(victim::flightline());
    command.args(["sql", "SELECT 1", "--store", "x"]).env("FLIGHTLINE_SQL", "/nowhere/flightline-sql");
    let told = run(&mut command, LIMIT);
    assert!(!told.status.success());
    assert!(told.stderr.contains("cargo build --release -p flightline-store"), "{}", told.stderr);
}

/// Rows for platforms that have each sample as one: threads are chosen as everywhere.
#[test]
fn rows_of_chosen_threads() {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/jdk17.jfr");
    let rows = |choice: &[&str]| -> Vec<serde_json::Value> {
        let all = [
            "export",
            recording.to_str().unwrap(),
            "--format",
            "hdps",
            "-o",
            "-",
            "-e",
            "cpu",
            "--attribute",
            "task_id=t7",
        ];
        let all: Vec<&str> = all.iter().chain(choice).copied().collect();
        let text = flightline(&all).expect_success("export").stdout_text();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = rows(&[]);
    let main = rows(&["--only-thread", r"^\[cpu-1 "]);
    assert!(!main.is_empty() && main.len() < all.len(), "{} of {}", main.len(), all.len());
    assert!(main.iter().all(|row| row["thread"] == "cpu-1" && row["task_id"] == "t7"));
    assert_eq!(main, all.into_iter().filter(|row| row["thread"] == "cpu-1").collect::<Vec<_>>());
}
