//! The README's commands do what it says, and examples in documents name options that exist.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{run, turn};
use flightline_tests::shown::{root, shown};
use flightline_tests::{skip, victim};

const README: &str = include_str!("../../README.md");
/// What the README sends to for every command.
const COMMANDS: &str = include_str!("../../docs/commands.md");
/// Those where the details of commands are.
const DETAILS: [&str; 5] = [
    include_str!("../../recorder/docs/outside.md"),
    include_str!("../../recorder/docs/steering.md"),
    include_str!("../../recorder/docs/always-on.md"),
    include_str!("../../consumer/docs/stream.md"),
    include_str!("../../consumer/docs/spans.md"),
];

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
    if !skip::have("perl") {
        return skip::skip("no perl here: the README's first command");
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

fn help(args: &[&str]) -> String {
    let mut command = Command::new(victim::flightline());
    // What asks stores is built with the tests, and not beside the command.
    command.args(args).arg("--help").env("FLIGHTLINE_SQL", victim::target_dir().join("debug/flightline-sql"));
    run(&mut command, Duration::from_secs(20)).stdout_text()
}

/// The calls of `flightline` in examples: what follows its name, up to a comment; lines that go on are one.
fn calls(text: &str) -> Vec<String> {
    let mut calls = Vec::new();
    let text = text.replace("\\\n", " ");
    for line in text.lines() {
        let (line, _) = line.split_once(" # ").unwrap_or((line, ""));
        let line = line.trim_start();
        if line.starts_with("flightline ") || line.contains("/flightline ") {
            calls.extend(line.split("flightline ").skip(1).map(str::to_owned));
        }
    }
    calls
}

/// Asserts that the command and its options are there; gives the command's name and how many options it has.
fn known(call: &str) -> (String, usize) {
    let words: Vec<&str> = call.split_whitespace().collect();
    let name = match words[0] {
        "store" => words[..2].join(" "),
        name => name.to_owned(),
    };
    let mut asked: Vec<&str> = name.split(' ').collect();
    if name == "flame" && words.contains(&"--store") {
        asked.extend(["--store", "x"]);
    }
    let help = help(&asked);
    assert!(help.contains(&format!("Usage: flightline {name}")), "{name} of {call:?}: {help}");
    let mut options = 0;
    // What follows is another program's; what is in quotes is no option.
    let own = call.split([' ']).take_while(|word| !["--", "|", ">"].contains(word));
    for word in own.filter(|word| word.len() > 1 && word.starts_with('-')) {
        // A number is a time before the end, as in `--to -30`.
        if word[1..].starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        // As `--off-cpu=1ms`, which the help calls `--off-cpu[=<MIN>]`.
        let word = word.split('=').next().unwrap_or(word);
        let known = help.split([' ', '\n', ',', '[', '=']).any(|known| known == word);
        assert!(known, "{word} of {call:?} is not in the help of {name}");
        options += 1;
    }
    (words[0].to_owned(), options)
}

/// The calls in a document: every other piece between fences is commands and what they say.
fn calls_between_fences(text: &str) -> Vec<String> {
    text.split("```").skip(1).step_by(2).flat_map(calls).collect()
}

/// Every command and option in examples of the README and of what it sends to exists; the README names every command, and its
/// list of commands has an example of each.
#[test]
fn examples_are_of_commands_that_exist() {
    let all = help(&[]);
    let (_, commands) = all.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let commands = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let commands: BTreeSet<&str> =
        commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(commands.len() > 10, "{all}");
    let not_named: Vec<&&str> = commands
        .iter()
        .filter(|name| {
            !README.contains(&format!("`{name}`")) && !README.contains(&format!("flightline {name} "))
        })
        .collect();
    assert!(not_named.is_empty(), "the README does not name {not_named:?}");

    assert!(README.contains("](docs/commands.md)"), "the README does not send to the list of commands");
    let mut without_example = commands;
    let mut options = 0;
    for call in calls(COMMANDS) {
        let (name, more) = known(&call);
        without_example.remove(name.as_str());
        options += more;
    }
    assert!(without_example.is_empty(), "no example of {without_example:?}");
    assert!(options > 40, "{options}");

    let options: usize = calls(README).iter().map(|call| known(call).1).sum();
    assert!(options > 15, "{options}");
    for text in DETAILS {
        calls_between_fences(text).iter().for_each(|call| drop(known(call)));
    }
}

/// So they do in what tells of real use.
#[test]
fn commands_of_the_journeys_exist() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/journeys");
    let (mut journeys, mut options) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let calls = calls_between_fences(&text);
        assert!(calls.len() > 1, "{}", path.display());
        options += calls.iter().map(|call| known(call).1).sum::<usize>();
        journeys += 1;
    }
    assert!(journeys >= 6 && options > 20, "{journeys} journeys, {options} options");
}

/// What was asked, and by which tests it is shown: these exist, are tests and are run (`flightline_tests::shown` tells how they are named).
#[test]
fn tables_of_requirements_name_tests_that_exist() {
    let folder = root().join("consumer/docs");
    let (mut seen, mut missing) = (0, Vec::new());
    for list in ["picture", "stream", "off-cpu", "service", "store"] {
        let file = format!("{list}-requirements.md");
        for line in std::fs::read_to_string(folder.join(&file)).unwrap().lines() {
            let found = shown(line, &folder);
            seen += found.tests;
            missing.extend(found.missing.into_iter().map(|what| format!("{file}: {what}")));
        }
    }
    assert!(seen > 250, "{seen} tests named");
    assert!(missing.is_empty(), "{missing:#?}");
}
