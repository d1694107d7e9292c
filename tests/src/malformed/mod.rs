//! Recordings with one thing wrong each, made from a sound one byte for byte the same every time.
//!
//! Each case says by hand how many events can still be had and what a reader must tell about the rest. The sound
//! recording is `fixtures/cases/01_defs_before.jfr`: metadata, four checkpoints, 15 samples of 3 threads.

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

/// Takes a case: name, what is wrong, bytes, events, what is told.
type Add<'a> = &'a mut dyn FnMut(&'static str, &'static str, Vec<u8>, u64, &'static [&'static str]);

/// In what is told of doubts, of events nobody can read, and by those alone who look at fields.
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
    /// Of the file, without extension.
    pub name: &'static str,
    /// What is wrong.
    pub wrong: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// Events that are there as a whole and of a declared type.
    pub events: u64,
    /// Parts of the warnings a reader must give, in any order; none if the file can be read without loss.
    pub told: &'static [&'static str],
}

impl Case {
    /// Whether all of declared types can be had; events of undeclared types belong to whoever declares them.
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
