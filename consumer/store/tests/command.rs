//! Commands of `flightline` that start `flightline-sql`.
//!
//! `FLIGHTLINE_BIN` names the main workspace's `target/debug/flightline`, which has the examples next to it;
//! `.ci/store` builds them.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use flate2::read::ZlibDecoder;
use flightline_tests::examples::{self, Document};
use flightline_tests::record::Record;
use flightline_tests::run::{Finished, run, turn};
use flightline_tests::victim;
use serde_json::Value;

use crate::kit;

const SQL: &str = env!("CARGO_BIN_EXE_flightline-sql");
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `flightline` with the `flightline-sql` of this build.
fn flightline(arguments: &[&str]) -> Finished {
    let mut command = Command::new(victim::flightline());
    command.args(arguments).env("FLIGHTLINE_SQL", SQL);
    run(&mut command, LIMIT)
}

/// Returns the rows of a CSV answer, without the header.
fn rows(finished: Finished) -> Vec<Vec<String>> {
    let text = finished.expect_success("sql").stdout_text();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn answer(store: &str, table: &Path, sql: &str) -> Vec<Vec<String>> {
    let table = format!("tasks={}", table.display());
    rows(flightline(&["sql", "--store", store, "--table", &table, "--format", "csv", sql]))
}

/// Runs the commands of `docs/guide/tasks/store-example.md`. The samples' labels agree with the job's own
/// table, and the stacks of the slow attempt contain the function that made it slow.
#[test]
fn slow_attempt_is_found_with_the_task_table() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (table, store) = (folder.path().join("tasks.csv"), folder.path().join("store"));
    let store = store.to_str().unwrap();
    let job = victim::flightline().with_file_name("examples/task_attempts");
    let recorded = Record::new()
        .option("-e")
        .option("cpu@1ms")
        .run(job.to_str().unwrap(), &["--size", "20000", "-", table.to_str().unwrap()]);
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
    let added: Value = serde_json::from_str(&added).unwrap();
    assert!(added["samples"].as_u64().unwrap() > 100, "{added}");
    let again = flightline(&add).expect_success("store add").stdout_text();
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["samples"], &again["chunks_known"]), (&0.into(), &added["chunks"]));

    // Labels are columns; those of a sample agree with each other as in the table.
    let strangers = "SELECT count(*) FROM samples s LEFT JOIN tasks t ON s.label_attempt = t.attempt
        WHERE s.label_attempt IS NOT NULL AND (t.attempt IS NULL OR t.task <> s.label_task OR t.vertex <> s.label_vertex OR t.host <> s.label_host)";
    assert_eq!(answer(store, &table, strangers), [["0"]]);
    let by_attempt = "SELECT t.attempt, t.input_records, sum(s.value) / 1e9 AS cpu FROM samples s JOIN tasks t ON s.label_attempt = t.attempt
        WHERE s.event_type = 'jdk.ExecutionSample' AND s.unit = 'ns' GROUP BY ALL ORDER BY cpu DESC";
    let attempts = answer(store, &table, by_attempt);
    assert!(attempts.len() > 20, "{attempts:?}");
    let cpu = |at: usize| attempts[at][2].parse::<f64>().unwrap();
    assert!(attempts[0][0].ends_with("_00_000007_0") && cpu(0) > 3.0 * cpu(1), "{attempts:?}");

    let slow = "label_attempt = (SELECT attempt FROM tasks ORDER BY seconds DESC LIMIT 1)";
    let tasks = format!("tasks={}", table.display());
    let top = ["store", "top", "--store", store, "--table", &tasks, "--where", slow, "-n", "1"];
    let top = flightline(&top).expect_success("store top").stdout_text();
    assert!(top.lines().nth(2).unwrap().ends_with("task_attempts::fits"), "{top}");
    for (name, has) in [("slow.html", "</html>"), ("slow.folded", ";task_attempts::fits")] {
        let graph = folder.path().join(name);
        let flame =
            ["flame", "--store", store, "--table", &tasks, "--where", slow, "-o", graph.to_str().unwrap()];
        flightline(&flame).expect_success("flame --store");
        assert!(std::fs::read_to_string(graph).unwrap().contains(has), "{name}");
    }
    let refused = flightline(&["sql", "--store", store, "DROP TABLE samples"]);
    assert!(!refused.status.success());
}

/// Returns the text of the page's script element `id`.
fn script<'p>(page: &'p str, id: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no element {id}"));
    let (_, rest) = rest.split_once('>').unwrap();
    rest.split_once("</script>").unwrap().0
}

/// The page has the functions that `flightline fold` prints for the same recordings, and as many samples as
/// SQL counts.
#[test]
fn store_flame_graph_matches_its_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let (store, page) = (folder.path().join("store"), folder.path().join("x.html"));
    let (store, page) = (store.to_str().unwrap(), page.to_str().unwrap());
    let mut functions = BTreeSet::new();
    let mut folded_samples = 0;
    for (service, name) in [("java", "ap-java-cpu.jfr"), ("native", "ap-native-cpu.jfr")] {
        let recording = kit::fixture(name);
        let recording = recording.to_str().unwrap();
        flightline(&["store", "add", "--store", store, "--service", service, recording])
            .expect_success("store add");
        let folded = flightline(&["fold", "-e", "jdk.ExecutionSample", recording])
            .expect_success("fold")
            .stdout_text();
        for line in folded.lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            functions.extend(stack.split(';').map(str::to_owned));
            folded_samples += count.parse::<u64>().unwrap();
        }
    }
    let count = "SELECT sum(samples) FROM samples WHERE event_type = 'jdk.ExecutionSample'";
    let count = rows(flightline(&["sql", "--store", store, "--format", "csv", count]));
    let count: u64 = count[0][0].parse().unwrap();
    assert_eq!(count, folded_samples);

    flightline(&["flame", "--store", store, "-e", "jdk.ExecutionSample", "-o", page])
        .expect_success("flame --store");
    let page = std::fs::read_to_string(page).unwrap();
    let profile: Value = serde_json::from_str(script(&page, "profile")).unwrap();
    assert_eq!(profile["measures"][0]["total"], count, "{profile}");
    let deflated = base64::prelude::BASE64_STANDARD.decode(script(&page, "frames").trim()).unwrap();
    let mut frames = String::new();
    ZlibDecoder::new(&*deflated).read_to_string(&mut frames).unwrap();
    let frames: Value = serde_json::from_str(&frames).unwrap();
    let drawn: BTreeSet<String> =
        frames["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    assert!(functions.contains("Work.inner") && functions.len() > 50, "{functions:?}");
    assert_eq!(drawn, functions);
}

/// Checks the calls that `tests/tests/source_tree/readme.rs` skips, in the same documents and in those of the store.
#[test]
fn store_examples_use_existing_commands_and_options() {
    let mut documents = vec![examples::readme(), examples::commands()];
    documents.extend(examples::details());
    documents.extend(examples::journeys());
    let of_store = ["store.md", "store-questions.md", "store-maintenance.md"];
    documents.extend(of_store.map(|name| Document::of_fences(&format!("docs/guide/tasks/{name}"))));
    let calls =
        documents.iter().flat_map(|document| &document.calls).filter(|call| examples::needs_sql(call));
    let mut commands = BTreeSet::new();
    let mut options = 0;
    for call in calls {
        options += examples::check(call, Some(Path::new(SQL)));
        commands.insert(examples::command_of(call));
    }
    assert_eq!(commands, BTreeSet::from(["flame", "sql", "store"]));
    assert!(options > 40, "{options}");
}
