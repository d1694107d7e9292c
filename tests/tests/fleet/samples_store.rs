//! `flightline serve --store`, with a script in place of `flightline-sql`.

use std::fs::{create_dir, write};
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::http::send;
use flightline_tests::run::{beside, run};
use flightline_tests::served::Served;
use flightline_tests::victim::flightline;
use tempfile::TempDir;

#[test]
fn store_queries_run_configured_command() {
    let _place = beside();
    let folder = TempDir::with_prefix("flightline-store-").unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (store, command) = (path("a store"), path("flightline-sql"));
    create_dir(&store).unwrap();
    write(&command, "#!/bin/sh\nfor word; do echo \"[$word]\"; done\n").unwrap();
    let permitted = Command::new("chmod").args(["755", &command]).status();
    assert!(permitted.unwrap().success());
    let service = Served::start_with(&["--store", &store], &[("FLIGHTLINE_SQL", &command)]);
    assert_eq!(send(service.port, "GET", "/v1/targets", &[], b"").json()["store"], true);
    let answer = send(service.port, "GET", "/v1/store/sql?service=o%27shop&engine=duckdb", &[], b"");
    let words = format!(
        "[flame]\n[--store={store}]\n[--where=service = 'o''shop']\n[--min-percent=0]\n[--sql]\n[--engine=duckdb]\n"
    );
    assert_eq!((answer.status, answer.text()), (200, words));
    let without = Served::start(&[]);
    assert_eq!(send(without.port, "GET", "/v1/targets", &[], b"").json()["store"], false);
    let answer = send(without.port, "GET", "/v1/store", &[], b"");
    assert_eq!(
        (answer.status, &*answer.sentence()),
        (404, "The service has no profile store; start it with --store DIR.")
    );
}

#[test]
fn service_without_store_or_command_does_not_start() {
    let _place = beside();
    let folder = TempDir::with_prefix("flightline-store-").unwrap();
    let begin = |store: &str, place: &str| {
        let mut command = Command::new(flightline());
        command
            .args(["serve", "--no-token", "--listen", "127.0.0.1:0", "--store", store, "--dir"])
            .arg(folder.path());
        run(command.env("FLIGHTLINE_SQL", place).stdin(Stdio::null()), Duration::from_secs(60))
    };
    let here = folder.path().to_str().unwrap();
    let done = begin("/nowhere", "/bin/true");
    assert!(done.code() == 1 && done.stderr.contains("/nowhere"), "{}", done.stderr);
    let done = begin(here, "/nowhere");
    assert!(done.code() == 1 && done.stderr.contains("consumer/store/Cargo.toml"), "{}", done.stderr);
}
