//! Calls of `flightline` in the examples of documents, compared with the command's help.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::documents::{links, root};
use crate::run::run;
use crate::victim;

/// The folder of the user's guide, relative to the project's root.
const GUIDE: &str = "docs/guide";
/// The documents of real use.
const JOURNEYS: &str = "docs/guide/case-studies";

/// The calls in a document.
#[derive(Debug)]
pub struct Document {
    /// The document's path, relative to the project's root.
    pub path: String,
    /// Its calls of `flightline`, without that word.
    pub calls: Vec<String>,
}

impl Document {
    /// Reads a document in which each line that begins with `flightline` is a call.
    #[must_use]
    pub fn of_lines(path: &str) -> Self {
        Self { calls: calls(&text(path)), path: path.to_owned() }
    }

    /// Reads a document whose calls are between code fences.
    #[must_use]
    pub fn of_fences(path: &str) -> Self {
        Self { calls: calls_between_fences(&text(path)), path: path.to_owned() }
    }
}

/// Returns the README.
#[must_use]
pub fn readme() -> Document {
    Document::of_lines("README.md")
}

/// Returns the list of commands, which has an example of each.
#[must_use]
pub fn commands() -> Document {
    Document::of_lines("docs/guide/reference/commands.md")
}

/// Returns the guide's pages, without the list of commands and the case studies. Their calls are between
/// code fences.
#[must_use]
pub fn details() -> Vec<Document> {
    let pages = guide_pages().into_iter();
    let pages = pages.filter(|page| !page.starts_with("case-studies") && page != "reference/commands.md");
    pages.map(|page| Document::of_fences(&format!("{GUIDE}/{page}"))).collect()
}

/// Returns the pages that the guide's summary lists, relative to the guide's folder.
#[must_use]
pub fn guide_pages() -> Vec<String> {
    links(&text(&format!("{GUIDE}/SUMMARY.md"))).map(str::to_owned).collect()
}

/// Returns the documents of real use.
#[must_use]
pub fn journeys() -> Vec<Document> {
    let entries = std::fs::read_dir(root().join(JOURNEYS)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.ends_with(".md"))
        .map(|name| Document::of_fences(&format!("{JOURNEYS}/{name}")))
        .collect()
}

/// Returns true if the help of a call's command is in `flightline-sql`, which the store's workspace builds.
#[must_use]
pub fn needs_sql(call: &str) -> bool {
    let mut words = call.split_whitespace();
    match words.next() {
        Some("sql" | "store") => true,
        Some("flame") => words.any(|word| word == "--store"),
        _ => false,
    }
}

/// Returns a call's command: its first word.
#[must_use]
pub fn command_of(call: &str) -> &str {
    call.split_whitespace().next().unwrap_or_default()
}

/// Returns the help of `flightline` for `args`; `sql` is the path of `flightline-sql`.
#[must_use]
pub fn help(args: &[&str], sql: Option<&Path>) -> String {
    let mut command = Command::new(victim::flightline());
    command.args(args).arg("--help");
    if let Some(sql) = sql {
        command.env("FLIGHTLINE_SQL", sql);
    }
    run(&mut command, Duration::from_secs(20)).stdout_text()
}

/// Asserts that the command of `call` and its options exist; returns the number of options.
pub fn check(call: &str, sql: Option<&Path>) -> usize {
    let words: Vec<&str> = call.split_whitespace().collect();
    let name = match words[0] {
        "store" => words[..2].join(" "),
        name => name.to_owned(),
    };
    let mut args: Vec<&str> = name.split(' ').collect();
    if name == "flame" && needs_sql(call) {
        args.extend(["--store", "x"]);
    }
    let help = help(&args, sql);
    assert!(help.contains(&format!("Usage: flightline {name}")), "{name} of {call:?}: {help}");
    let mut options = 0;
    // The words after these belong to another program. A quoted argument does not begin with a hyphen.
    let own = call.split(' ').take_while(|word| !["--", "|", ">"].contains(word));
    for word in own.filter(|word| word.len() > 1 && word.starts_with('-')) {
        // A number is a time before the end, as in `--to -30`.
        if word[1..].starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        // The help has `--off-cpu[=<MIN>]` for `--off-cpu=1ms`.
        let word = word.split('=').next().unwrap_or(word);
        let known = help.split([' ', '\n', ',', '[', '=']).any(|known| known == word);
        assert!(known, "{word} of {call:?} is not in the help of {name}");
        options += 1;
    }
    options
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the calls of `flightline` in a text, without comments. A line that ends with a backslash continues.
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

/// Returns the calls between the code fences of a text.
fn calls_between_fences(text: &str) -> Vec<String> {
    text.split("```").skip(1).step_by(2).flat_map(calls).collect()
}
