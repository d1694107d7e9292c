//! Commands of `flightline` for stores that work without `flightline-sql`. `consumer/store/tests/command.rs` tests the others.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{beside, run};
use flightline_tests::victim;

const LIMIT: Duration = Duration::from_secs(120);

/// Without `flightline-sql` the error names the command that builds it.
#[test]
fn missing_sql_engine_error_names_build_command() {
    let _place = beside();
    let mut command = Command::new(victim::flightline());
    command.args(["sql", "SELECT 1", "--store", "x"]).env("FLIGHTLINE_SQL", "/nowhere/flightline-sql");
    let failed = run(&mut command, LIMIT);
    assert!(!failed.status.success());
    let build = "cargo build --release --manifest-path consumer/store/Cargo.toml --target-dir target";
    assert!(failed.stderr.contains(build), "{}", failed.stderr);
}

/// `export --format hdps` writes the rows of the threads that `--only-thread` selects.
#[test]
fn only_thread_option_selects_exported_rows() {
    let _place = beside();
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
        let exported = run(Command::new(victim::flightline()).args(&all), LIMIT);
        let text = exported.expect_success("export").stdout_text();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = rows(&[]);
    let main = rows(&["--only-thread", r"^\[cpu-1 "]);
    assert!(!main.is_empty() && main.len() < all.len(), "{} of {}", main.len(), all.len());
    assert!(main.iter().all(|row| row["thread"] == "cpu-1" && row["task_id"] == "t7"));
    assert_eq!(main, all.into_iter().filter(|row| row["thread"] == "cpu-1").collect::<Vec<_>>());
}
