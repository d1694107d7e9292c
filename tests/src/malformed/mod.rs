//! Recordings with one defect each, derived from a valid one; the bytes are the same every time.
//!
//! Each case states how many events can be recovered and what a reader must report about the rest; both were
//! determined by hand. The valid recording is `fixtures/cases/01_defs_before.jfr`: metadata, four
//! checkpoints, 15 samples of 3 threads.

mod checkpoints;
mod chunk;
mod events;
mod files;
mod headers;
mod metadata;
mod strings;
mod structs;

use chunk::{Chunk, sample, with};
pub use strings::of_one_text;

/// Adds a case: its name, the defect, the bytes, the number of events, the expected messages.
type Add<'a> = &'a mut dyn FnMut(&'static str, &'static str, Vec<u8>, u64, &'static [&'static str]);

/// Parts of messages that report no lost event: doubtful headers, undeclared types, and fields that only some
/// readers decode.
const LOSSLESS: &[&str] = &[
    "undeclared type",
    "the header says",
    "ticks per second",
    "in the middle of an update",
    "goes in a circle",
    "where no checkpoint is",
    "not in the chain",
    "the first is taken",
    "reading field",
];

/// A malformed recording.
#[derive(Debug)]
pub struct Case {
    /// The file's name, without extension.
    pub name: &'static str,
    /// The defect.
    pub wrong: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// The number of complete events of declared types.
    pub events: u64,
    /// Parts of the warnings that a reader must print, in any order; none if the file can be read without
    /// loss.
    pub told: &'static [&'static str],
}

impl Case {
    /// Returns true if all events of declared types can be recovered. Events of undeclared types do not
    /// count.
    pub fn lossless(&self) -> bool {
        self.told.iter().all(|text| LOSSLESS.iter().any(|harmless| text.contains(harmless)))
    }
}
/// All cases.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let case: Add<'_> =
        &mut |name, wrong, bytes, events, told| all.push(Case { name, wrong, bytes, events, told });
    case("sound", "nothing: the recording all others are made of", Chunk::sound().build().bytes, 15, &[]);
    files::add(case);
    headers::add(case);
    checkpoints::add(case);
    strings::add(case);
    events::add(case);
    metadata::add(case);
    structs::add(case);
    case("sound-again", "nothing: one sample more", with([sample()]), 16, &[]);
    all
}
