//! Generates docs/guide/reference/interoperability.md from the table.

use std::fmt::Write;

use super::table::{Cell, KINDS, Kind, READERS, Shown, cell, tests};

const HEAD: &str = "\
# Interoperability

This page compares each output of Flightline with each reader. `tests/tests/reading/matrix.rs` generates it from the table of its tests
(`BLESS=1 cargo test -p flightline-tests --test all matrix::` writes it). `.ci/run` runs the tests with the real programs. A cell
contains a mark for the comparison, and the numbers of the tests:

* `=` each sample is equal to the one of our own reader: time, thread, state, stack and weight; or each row, box or span.
* `Σ` the sums are equal: the weight of each stack or function, or the answers to queries.
* `○` the reader opens the output without a complaint and shows the expected content.
* `!` the note describes a difference.
* `(=)` as `=`, but compared by hand, because `.ci/run` cannot install the reader.
* `–` the reader does not accept this format; the letter refers to the formats that it accepts.

";

fn letter(reader: usize) -> char {
    (b'a' + u8::try_from(reader).expect("few readers")) as char
}

fn number(tests: &[Shown], test: Shown) -> usize {
    tests.iter().position(|one| *one == test).expect("a test of the table") + 1
}

/// The number of a note, in the order of first use.
fn note_number(notes: &mut Vec<&'static str>, note: &'static str) -> usize {
    let at = notes.iter().position(|one| *one == note).unwrap_or_else(|| {
        notes.push(note);
        notes.len() - 1
    });
    at + 1
}

fn text_of(cell: Cell, reader: usize, tests: &[Shown], notes: &mut Vec<&'static str>) -> String {
    match cell {
        Cell::NotTaken => format!("–<sup>{}</sup>", letter(reader)),
        Cell::Read { mark, by, note } => {
            let by: Vec<String> = by.iter().map(|test| number(tests, *test).to_string()).collect();
            let note = note.map(|note| format!("<sup>note {}</sup>", note_number(notes, note)));
            format!("{} {}{}", mark.sign(), by.join(", "), note.unwrap_or_default())
        }
    }
}

fn row(kind: &Kind, tests: &[Shown], notes: &mut Vec<&'static str>) -> String {
    let cells = READERS.iter().enumerate().map(|(i, reader)| text_of(cell(kind, reader), i, tests, notes));
    let cells: Vec<String> = cells.collect();
    format!("| {} (`{}`) | {} |\n", kind.name, kind.command, cells.join(" | "))
}

/// The whole document.
pub fn written() -> String {
    let tests = tests();
    let mut notes = Vec::new();
    let mut out = HEAD.to_owned();
    let names: Vec<&str> = READERS.iter().map(|reader| reader.name).collect();
    _ = writeln!(out, "| output | {} |", names.join(" | "));
    _ = writeln!(out, "|---|{}", "---|".repeat(READERS.len()));
    for kind in &KINDS {
        out.push_str(&row(kind, &tests, &mut notes));
    }
    out.push_str("\n## Notes\n\n");
    for (i, note) in notes.iter().enumerate() {
        _ = writeln!(out, "{}. {note}.", i + 1);
    }
    out.push_str("\n## Tests\n\n");
    for (i, Shown(file, name)) in tests.iter().enumerate() {
        _ = writeln!(out, "{}. [{file}](../../../{file}): `{name}`", i + 1);
    }
    out.push_str("\n## Readers\n\n| | reader | description | accepted formats |\n|---|---|---|---|\n");
    for (i, reader) in READERS.iter().enumerate() {
        _ = writeln!(out, "| {} | {} | {} | {} |", letter(i), reader.name, reader.about, reader.takes);
    }
    out.push_str(TAIL);
    out
}

const TAIL: &str = "
## Not compared

* Perfetto is on no package registry, and `chrome://tracing` does not open in Debian's Chromium. Two other programs that read trace events are
  compared. Times are whole multiples of 1/1024 µs, so that sums of durations are exact.
* [Programs in Rust, Java, Python and Go that follow a stream](../tasks/follow-recordings.md#following-a-recording-from-another-process) have
  tests of their own.
* [Recordings of the JDK and of async-profiler](../../../fixtures/README.md), and malformed recordings, are tests of our readers.
";
