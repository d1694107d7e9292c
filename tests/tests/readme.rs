//! The README's commands do what it says, and its examples name options that exist.

use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{run, turn};
use flightline_tests::{skip, victim};

const README: &str = include_str!("../../README.md");

fn command_line(beginning: &str) -> &'static str {
    README
        .lines()
        .find(|l| l.starts_with(beginning))
        .unwrap_or_else(|| panic!("README has no command {beginning:?}"))
}

/// The first command, after its build: a recording of a real program, drawn.
#[test]
fn the_first_command() {
    let _turn = turn();
    if !skip::have("python3") {
        return skip::skip("no python3 here: the README's first command");
    }
    let line = command_line("cargo build --release && target/release/flightline record ");
    let (_, tail) = line.split_once("&& target/release/flightline ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    let script = format!("\"$FLIGHTLINE\" {tail}");
    shell.args(["-c", &script]).env("FLIGHTLINE", victim::flightline()).current_dir(folder.path());
    let finished = run(&mut shell, Duration::from_secs(120)).expect_success("the README's first command");
    assert!(finished.stderr.contains("samples"), "{}", finished.stderr);
    let page = std::fs::read_to_string(folder.path().join("flame.html")).unwrap();
    assert!(page.contains("</html>") && page.len() > 10_000, "{} bytes", page.len());
}

/// Every `flightline` subcommand that the README names exists.
#[test]
fn subcommands_exist() {
    let help = run(Command::new(victim::flightline()).arg("--help"), Duration::from_secs(20));
    let help = help.stdout_text();
    for name in ["record", "flame", "fold", "summary", "print", "metadata"] {
        assert!(
            README.contains(&format!("flightline {name}"))
                || README.contains(&format!("|{name}"))
                || name == "metadata"
        );
        assert!(help.lines().any(|l| l.trim_start().starts_with(name)), "{name} is not in --help:\n{help}");
    }
}
