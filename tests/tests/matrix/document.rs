//! Generates docs/interop.md from the table.

use std::fmt::Write;

use super::table::{Cell, KINDS, Kind, READERS, Shown, cell, tests};

const HEAD: &str = "\
# Everything we write × everything that reads

Made by `tests/tests/matrix.rs` of the table that its tests are made of (`BLESS=1 cargo test -p flightline-tests --test all matrix::` writes it anew). A cell
is a mark, what was compared, and the numbers of the tests that show it, with the real programs, in every run of `.ci/run`:

* `=` sample for sample: time, thread, state, stack and weight of each, or each row, box or span; as our own reader has them.
* `Σ` what is added up: the weight of each stack or function, or the answers to questions.
* `○` it opens, without a complaint, and shows what it should.
* `!` as the note tells.
* `(=)` as `=`, but seen by hand: the reader is on no registry, so `.ci/run` cannot have it.
* `–` the reader takes no such thing: the letter says what it takes.

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
    _ = writeln!(out, "| what | {} |", names.join(" | "));
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
        _ = writeln!(out, "{}. [{file}](../{file}): `{name}`", i + 1);
    }
    out.push_str("\n## Readers\n\n| | reader | what it is | what it takes |\n|---|---|---|---|\n");
    for (i, reader) in READERS.iter().enumerate() {
        _ = writeln!(out, "| {} | {} | {} | {} |", letter(i), reader.name, reader.about, reader.takes);
    }
    out.push_str(TAIL);
    out
}

const TAIL: &str = "
## What is not here

* Perfetto, on no registry, and `chrome://tracing`, which does not open in Debian's Chromium. What is written for them is read by the two others that
  read trace events; times are whole numbers of 1/1024 µs, so that who adds them up gets ends in the right order.
* Rust, Java, Python and Go programs that follow a stream: [following a recording](../consumer/docs/stream.md#following-a-recording-from-another-process).
* What we read of others: [recordings](../fixtures/README.md) of the JDK and of async-profiler, and malformed ones.
";
