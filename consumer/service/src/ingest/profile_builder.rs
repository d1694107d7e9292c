//! Collects samples of other profilers in bounded memory before they are written as a recording.

use std::collections::HashMap;

use jfr_format::schema::frame_type;

use super::{Error, cut};

/// Maximum number of samples in a profile.
const MOST_SAMPLES: usize = 1 << 20;
/// Maximum number of frames in all stacks.
const MOST_FRAMES: usize = 4 << 20;
/// Maximum depth of a stack; frames nearer to the root are dropped.
pub(super) const DEEPEST: usize = 2048;
/// Maximum characters of a name.
const LONGEST: usize = 4096;
/// Maximum characters of a thread name.
const LONGEST_THREAD: usize = 256;
/// Maximum number of sample kinds.
const MOST_KINDS: usize = 64;

/// A frame; names are indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub(super) name: u32,
    pub(super) module: u32,
    pub(super) line: i32,
    pub(super) kernel: bool,
}

impl Frame {
    pub(super) fn kind(self) -> u64 {
        if self.kernel { frame_type::KERNEL } else { frame_type::CPP }
    }
}

/// Quantity that a kind of samples measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// CPU time, ns.
    Cpu,
    /// CPU samples of unknown weight.
    Samples,
    /// Wall-clock time, ns.
    Wall,
    /// Allocated bytes.
    Alloc,
    /// Live bytes.
    Live,
    /// Any other quantity, with its name.
    Other(String),
}

impl Measure {
    /// Parses the names and units of pprof and OTLP. Also returns the factor by which values must be
    /// multiplied.
    pub(super) fn parse(name: &str, unit: &str) -> (Self, u64) {
        let nanos = match unit {
            "nanoseconds" | "ns" => 1,
            "microseconds" | "us" => 1_000,
            "milliseconds" | "ms" => 1_000_000,
            "seconds" | "s" => 1_000_000_000,
            _ => 0,
        };
        let lower = name.to_ascii_lowercase();
        let has = |word: &str| lower.contains(word);
        match (unit, nanos) {
            (_, 1..) if has("cpu") && !has("off") => (Self::Cpu, nanos),
            (_, 1..) if has("wall") || lower == "time" => (Self::Wall, nanos),
            ("bytes", _) if has("inuse") || has("live") || has("heap") => (Self::Live, 1),
            ("bytes", _) => (Self::Alloc, 1),
            ("count" | "" | "samples", _) if lower.is_empty() || lower == "samples" || lower == "cpu" => {
                (Self::Samples, 1)
            }
            ("count" | "", _) => (Self::Other(cut(name, 100)), 1),
            (_, 1..) => (Self::Other(format!("{} (ns)", cut(name, 100))), nanos),
            (unit, _) => (Self::Other(format!("{} ({})", cut(name, 100), cut(unit, 40))), 1),
        }
    }
}

/// A sample, or several aggregated ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) kind: usize,
    pub(super) stack: u32,
    /// 0 if unknown.
    pub(super) thread: u32,
    /// ns since 1970, if known.
    pub(super) time: Option<i64>,
    pub(super) value: u64,
}

/// Maps indices of another table to names, so that each name is looked up once.
#[derive(Debug, Default)]
pub(super) struct NameCache(HashMap<i64, u32>);

impl NameCache {
    pub(super) fn name(
        &mut self,
        index: i64,
        text: &str,
        builder: &mut ProfileBuilder,
    ) -> Result<u32, Error> {
        if let Some(&known) = self.0.get(&index) {
            return Ok(known);
        }
        let number = builder.name(text)?;
        self.0.insert(index, number);
        Ok(number)
    }
}

/// Samples of one target.
#[derive(Debug)]
pub(super) struct ProfileBuilder {
    /// Remaining bytes for names.
    room: usize,
    frames: usize,
    numbers: HashMap<Box<str>, u32>,
    /// Index 0 is the empty name.
    pub(super) names: Vec<Box<str>>,
    /// Leaf first.
    pub(super) stacks: Vec<Vec<Frame>>,
    /// Name and TID of each; index 0 is the unknown thread.
    pub(super) threads: Vec<(u32, i64)>,
    thread_numbers: HashMap<(u32, i64), u32>,
    pub(super) kinds: Vec<Measure>,
    pub(super) samples: Vec<Sample>,
}

impl ProfileBuilder {
    /// `room` limits the bytes of all names.
    pub(super) fn new(room: usize) -> Self {
        Self {
            room,
            frames: 0,
            numbers: HashMap::from([("".into(), 0)]),
            names: vec!["".into()],
            stacks: Vec::new(),
            threads: vec![(0, 0)],
            thread_numbers: HashMap::from([((0, 0), 0)]),
            kinds: Vec::new(),
            samples: Vec::new(),
        }
    }

    pub(super) fn name(&mut self, text: &str) -> Result<u32, Error> {
        // Truncate before the lookup, since a message can repeat a long name many times.
        let end = text.char_indices().nth(LONGEST).map_or(text.len(), |(at, _)| at);
        let text = &text[..end];
        if let Some(&known) = self.numbers.get(text) {
            return Ok(known);
        }
        let text: Box<str> = text.into();
        self.room = self.room.checked_sub(text.len()).ok_or_else(|| too_many("names"))?;
        let number = u32::try_from(self.names.len()).map_err(|_| too_many("names"))?;
        self.names.push(text.clone());
        self.numbers.insert(text, number);
        Ok(number)
    }

    /// Adds a stack, leaf first.
    pub(super) fn stack(&mut self, mut frames: Vec<Frame>) -> Result<u32, Error> {
        frames.truncate(DEEPEST + 1);
        self.frames = self.frames.saturating_add(frames.len());
        if self.frames > MOST_FRAMES {
            return Err(too_many("frames"));
        }
        let number = u32::try_from(self.stacks.len()).map_err(|_| too_many("stacks"))?;
        self.stacks.push(frames);
        Ok(number)
    }

    pub(super) fn thread(&mut self, name: &str, id: i64) -> Result<u32, Error> {
        let end = name.char_indices().nth(LONGEST_THREAD).map_or(name.len(), |(at, _)| at);
        let key = (self.name(&name[..end])?, id);
        let next = u32::try_from(self.threads.len()).map_err(|_| too_many("threads"))?;
        let number = *self.thread_numbers.entry(key).or_insert(next);
        if number == next {
            self.threads.push(key);
        }
        Ok(number)
    }

    pub(super) fn kind(&mut self, measure: Measure) -> Result<usize, Error> {
        if let Some(known) = self.kinds.iter().position(|kind| *kind == measure) {
            return Ok(known);
        }
        if self.kinds.len() >= MOST_KINDS {
            return Err(too_many("kinds of samples"));
        }
        self.kinds.push(measure);
        Ok(self.kinds.len() - 1)
    }

    pub(super) fn sample(&mut self, sample: Sample) -> Result<(), Error> {
        if sample.value == 0 {
            return Ok(());
        }
        if self.samples.len() >= MOST_SAMPLES {
            return Err(too_many("samples"));
        }
        self.samples.push(sample);
        Ok(())
    }

    /// Returns true if the stack was truncated.
    pub(super) fn is_cut(frames: &[Frame]) -> bool {
        frames.len() > DEEPEST
    }
}

fn too_many(what: &str) -> Error {
    Error::TooLarge(format!("The profile has too many {what}; send profiles more often, or in parts."))
}
