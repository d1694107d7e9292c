//! Runs the same queries on the same files with DataFusion, DuckDB and Spark (two executors) and compares the
//! rows. The files were written by the writer from real recordings; other tests check their contents.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit;

const SQL: &str = env!("CARGO_BIN_EXE_flightline-sql");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs a command that must succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {told}");
    told
}

fn add(store: &Path, service: &str, labels: &[&str], recordings: &[&str]) {
    let mut command = Command::new(SQL);
    command.args(["add", "--unfinished", "--service", service, "--store"]).arg(store);
    command.args(labels.iter().flat_map(|label| ["--label", label]));
    command.args(recordings.iter().map(|name| kit::fixture(name)));
    run(&mut command);
}

#[test]
fn three_engines_return_equal_rows() {
    let repository = repository();
    let setup = Command::new(repository.join("tests/store/setup.sh")).output().unwrap();
    if !setup.status.success() {
        let why = String::from_utf8_lossy(&setup.stderr);
        assert!(env::var_os("FLIGHTLINE_NO_SKIP").is_none(), "no engines to compare with: {why}");
        eprintln!(
            "SKIPPED: three_engines_return_equal_rows: DuckDB and Spark cannot be installed here: {why}"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("a store");
    add(
        &store,
        "java",
        &["version=1", "host=h1"],
        &["jdk17-multichunk.jfr", "ap-java-cpu.jfr", "ap-java-wall.jfr"],
    );
    // Labels that the other files lack, and characters that are special in folder names and SQL.
    add(&store, "java", &["version=2", "Zone=eu'1"], &["jdk25.jfr", "jdk25-spans.jfr"]);
    add(&store, "a/b c=é%", &["host=h2"], &["ap-native-cpu.jfr", "flightline.jfr", "ap-native-mem.jfr"]);
    let many: Vec<String> = (0..70).map(|number| format!("k{number}=v{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    add(&store, "labels", &many, &["ap-native-wall.jfr"]);
    let told = run(Command::new(repository.join("target/store-engines/bin/python"))
        .arg(repository.join("tests/store/conformance.py"))
        .arg(&store)
        .args(["--sql", SQL])
        .args(["--where", "service = 'java' AND event_type = 'jdk.ExecutionSample'"])
        .args(["--where", "service = 'a/b c=é%'"])
        .args(["--where", "label_version = '2' OR label_host = 'h2'"]));
    assert!(told.contains("the same answers of datafusion,duckdb,spark"), "{told}");
}
