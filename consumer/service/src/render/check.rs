//! Validates uploaded recordings and summarizes their contents. Memory is bounded whatever the bytes: the
//! file is mapped, only a chunk's types are held, and the number of counted names and time steps is limited.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use bytes::Bytes;
use flightline_consumer::fold;
use flightline_consumer::load::is_sample;
use flightline_consumer::off_cpu;
use jfr_format::read::{Binding, Chunk, ChunkIndex, Class, Recording, ValidatedEvent};

use super::off_cpu::GRAPHS;
use super::{Error, Source};
use crate::window::Histogram;

/// Maximum number of event types with stacks counted by name.
const MOST_TYPES: usize = 1 << 12;
/// Types of CPU and wall-clock samples; the rate of other events says little.
const STEADY: [&str; 5] = [
    "jdk.ExecutionSample",
    "jdk.CPUTimeSample",
    "profiler.WallClockSample",
    "datadog.ExecutionSample",
    "datadog.MethodSample",
];
const MILLI: i64 = 1_000_000;

/// Contents of a valid recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// Number of chunks.
    pub chunks: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of events, without metadata and constants.
    pub events: u64,
    /// Start of the first chunk or event, UTC ms, not before 1970.
    pub first_ms: i64,
    /// End of the last chunk or event, UTC ms, rounded up.
    pub last_ms: i64,
    /// Number of events by type, for types with stack traces.
    pub types: BTreeMap<String, u64>,
    /// Samples over time: CPU and wall-clock samples if there are any, otherwise all.
    pub line: Histogram,
}

/// Why a recording is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotWhole {
    /// Position in bytes.
    pub offset: u64,
    /// The problem.
    what: String,
}

impl NotWhole {
    /// Returns the problem and its position, without a message around them.
    pub fn flaw(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for NotWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "This is not a whole JFR recording: {}. Send it again, or repair it with flightline repair.",
            self.what
        )
    }
}

impl std::error::Error for NotWhole {}

impl From<NotWhole> for String {
    fn from(error: NotWhole) -> Self {
        error.to_string()
    }
}

impl Checked {
    /// Values for [`super::RenderOptions::event`].
    pub fn offered(&self) -> Vec<String> {
        offered(&self.types)
    }
}

/// Validates an open regular file.
///
/// # Errors
/// Returns the problem and its position if the file is not a valid recording.
pub fn check(file: &Source) -> Result<Checked, NotWhole> {
    let cannot = |what: String| NotWhole { offset: 0, what };
    match file.metadata() {
        Ok(metadata) if !metadata.is_file() => return Err(cannot("it is not a file".into())),
        Err(error) => return Err(cannot(error.to_string())),
        Ok(_) => {}
    }
    let recording = Recording::file(file).map_err(|error| cannot(error.to_string()))?;
    checked(&recording)
}

/// Validates bytes in memory.
///
/// # Errors
/// See [`check`].
pub fn check_bytes(bytes: Bytes) -> Result<Checked, NotWhole> {
    checked(&Recording::bytes(bytes))
}

/// Returns the values for [`super::RenderOptions::event`] that recordings offer: groups of events first, then single
/// event types with stacks.
///
/// # Errors
/// Returns an error if a recording is not valid.
pub fn events(recordings: &[Source]) -> Result<Vec<String>, Error> {
    let mut types: BTreeMap<String, u64> = BTreeMap::new();
    for recording in recordings {
        let checked = check(recording).map_err(|error| Error::Read(error.to_string()))?;
        for (name, events) in checked.types {
            *types.entry(name).or_default() += events;
        }
    }
    Ok(offered(&types))
}

fn offered(types: &BTreeMap<String, u64>) -> Vec<String> {
    let mut offered = fold::offered(types);
    let of_graphs = [off_cpu::EVENT, off_cpu::OPEN_EVENT];
    if offered.iter().any(|name| name == off_cpu::EVENT) {
        offered.retain(|name| !of_graphs.contains(&name.as_str()));
        // After CPU samples, which are requested most.
        let at = usize::from(offered.first().is_some_and(|name| name == "cpu"));
        offered.splice(at..at, GRAPHS.map(|(name, _)| name.to_owned()));
    }
    offered
}

fn checked(recording: &Recording) -> Result<Checked, NotWhole> {
    let mut counting = Counting::default();
    let whole = recording
        .validate(|event| counting.take(&event))
        .map_err(|error| NotWhole { offset: error.at(), what: error.to_string() })?;
    let (first, last) = (counting.first.min(whole.start_nanos), counting.last.max(whole.end_nanos));
    let line = if counting.steady.is_empty() { counting.other } else { counting.steady };
    Ok(Checked {
        chunks: whole.chunks,
        bytes: recording.size(),
        events: whole.events,
        first_ms: first.div_euclid(MILLI).max(0),
        last_ms: last.div_euclid(MILLI).max(0),
        types: counting.names.into_iter().zip(counting.counts).filter(|(_, events)| *events > 0).collect(),
        line,
    })
}

/// Counters over a recording's events.
struct Counting {
    chunk: Option<ChunkIndex>,
    /// Types of the current chunk by id.
    kinds: HashMap<u64, Kind>,
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    counts: Vec<u64>,
    steady: Histogram,
    other: Histogram,
    first: i64,
    last: i64,
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            chunk: None,
            kinds: HashMap::new(),
            numbers: HashMap::new(),
            names: Vec::new(),
            counts: Vec::new(),
            steady: Histogram::default(),
            other: Histogram::default(),
            first: i64::MAX,
            last: i64::MIN,
        }
    }
}

/// How events of a type are counted.
struct Kind {
    /// Index of its name; `None` if it has no stack traces or there are too many types.
    counted: Option<usize>,
    steady: bool,
    /// Reads an event's sample count and stack key.
    fields: Binding,
}

impl Counting {
    fn take(&mut self, event: &ValidatedEvent<'_>) {
        if let Some((start, end)) = event.time {
            self.first = self.first.min(start);
            self.last = self.last.max(end);
        }
        if self.chunk != Some(event.chunk.index) {
            self.chunk = Some(event.chunk.index);
            self.kinds.clear();
        }
        let kind = match self.kinds.get(&event.class.id) {
            Some(kind) => kind,
            None => {
                let kind = self.kind(event.chunk, event.class);
                self.kinds.entry(event.class.id).or_insert(kind)
            }
        };
        let Some(at) = kind.counted else { return };
        let [samples, stack] = kind.fields.read(event.chunk, event.payload).unwrap_or_default();
        // Some events, such as the start of a thread, may have a stack but usually have none.
        if stack == Some(0) && !kind.steady {
            return;
        }
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        if let Some((start, _)) = event.time {
            let line = if kind.steady { &mut self.steady } else { &mut self.other };
            line.add(start.div_euclid(MILLI), samples.unwrap_or(1));
        }
    }

    fn kind(&mut self, chunk: &Chunk, class: &Class) -> Kind {
        let next = self.names.len();
        let counted = match self.numbers.get(&*class.name) {
            _ if !is_sample(class) => None,
            Some(&at) => Some(at),
            None if next < MOST_TYPES => {
                self.numbers.insert(class.name.to_string(), next);
                self.names.push(class.name.to_string());
                self.counts.push(0);
                Some(next)
            }
            None => None,
        };
        let field = if class.name.starts_with("datadog.") { "weight" } else { "samples" };
        let fields = Binding::new(chunk, class, &[field, "stackTrace"]);
        Kind { counted, steady: STEADY.contains(&&*class.name), fields }
    }
}
