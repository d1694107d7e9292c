//! One line per `jdk.ExecutionSample`, the same text as the programs of `tests/readers` print, by our own decoder.
//!
//! Epoch nanoseconds, thread name, OS thread id, state, frames leaf first; tab-separated. `?` is an unresolved reference.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use jfr_format::error::Error;
use jfr_format::event::{EventRef, StructRef, Value};
use jfr_format::read::{Input, Item};

const UNRESOLVED: &str = "?";

/// The contents of a recording, as lines to compare.
#[derive(Debug, Default)]
pub struct Contents {
    /// Canonical lines in the order of delivery.
    pub samples: Vec<String>,
    /// The same lines and those of `profiler.WallClockSample`, each with the number of samples that it
    /// represents.
    pub weighted: Vec<String>,
    /// When each was delivered, nanoseconds since 1970.
    pub arrived: Vec<i64>,
    /// Events by type name; metadata and checkpoints left out.
    pub types: std::collections::BTreeMap<String, u64>,
    /// The warnings of the reader.
    pub warnings: Vec<String>,
}

/// Reads a file through the mapped driver.
///
/// # Errors
/// The file cannot be opened.
pub fn of_file(path: &Path) -> Result<Contents, Error> {
    let mut contents = Contents::default();
    let mut input = Input::open(path)?;
    while let Some(item) = input.next()? {
        contents.take(item);
    }
    Ok(contents)
}

/// Reads a stream through the streaming driver.
///
/// # Errors
/// The stream cannot be read.
pub fn of_stream(stream: impl std::io::Read) -> Result<Contents, Error> {
    let mut contents = Contents::default();
    let mut input = Input::stream(stream);
    while let Some(item) = input.next()? {
        contents.take(item);
    }
    Ok(contents)
}

impl Contents {
    fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Events(batch) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as i64;
                for event in batch.events() {
                    let name = &*event.class().name;
                    *self.types.entry(name.to_owned()).or_default() += 1;
                    let sample = name == "jdk.ExecutionSample";
                    if !sample && name != "profiler.WallClockSample" {
                        continue;
                    }
                    match line(&event).and_then(|line| Ok((weight(&event)?, line))) {
                        Ok((weight, line)) => {
                            self.weighted.push(format!("{line}\t{weight}"));
                            if sample {
                                self.samples.push(line);
                                self.arrived.push(now);
                            }
                        }
                        Err(e) => self.warnings.push(e.to_string()),
                    }
                }
            }
            Item::Warning(warning) => self.warnings.push(warning.to_string()),
            Item::ChunkStart(_) | Item::ChunkEnd(_) => {}
        }
    }

    /// The delays from sampling to delivery, in ns, ascending.
    pub fn delays(&self) -> Vec<i64> {
        let taken = self.samples.iter().map(|line| time_of(line));
        let mut delays: Vec<i64> = self.arrived.iter().zip(taken).map(|(at, taken)| at - taken).collect();
        delays.sort_unstable();
        delays
    }

    /// The samples in byte order, as with `LC_ALL=C sort`.
    pub fn sorted(&self) -> Vec<String> {
        let mut lines = self.samples.clone();
        lines.sort_unstable();
        lines
    }
}

/// The time of a canonical line, nanoseconds since 1970.
pub fn time_of(line: &str) -> i64 {
    line.split('\t').next().and_then(|time| time.parse().ok()).unwrap_or_default()
}

/// Returns the number of samples that an event represents.
fn weight(event: &EventRef<'_>) -> Result<i64, Error> {
    Ok(event.field("samples")?.and_then(|v| v.as_i64()).unwrap_or(1))
}

fn line(event: &EventRef<'_>) -> Result<String, Error> {
    let time = event.start_nanos().unwrap_or_default();
    let (mut name, mut id) = (UNRESOLVED.to_owned(), UNRESOLVED.to_owned());
    if let Some(thread) = record(event.field("sampledThread")?)? {
        name = match text(thread.field("javaName")?)? {
            Some(java) if !java.is_empty() => java,
            _ => text(thread.field("osName")?)?.unwrap_or_else(|| UNRESOLVED.to_owned()),
        };
        id = thread.field("osThreadId")?.and_then(|v| v.as_i64()).unwrap_or_default().to_string();
    }
    let state = text(event.field("state")?)?.unwrap_or_else(|| UNRESOLVED.to_owned());
    let stack = record(event.field("stackTrace")?)?;
    let frames = stack.map_or(Ok(UNRESOLVED.to_owned()), |s| frames(&s))?;
    Ok(format!("{time}\t{name}\t{id}\t{state}\t{frames}"))
}

fn frames(stack: &StructRef<'_>) -> Result<String, Error> {
    let Some(Value::Array(frames)) = stack.field("frames")? else { return Ok(UNRESOLVED.to_owned()) };
    let mut names = Vec::with_capacity(frames.len());
    for frame in frames.iter() {
        let method = match frame?.record()? {
            Some(frame) => record(frame.field("method")?)?,
            None => None,
        };
        names.push(match method {
            Some(method) => name_of(&method)?,
            None => UNRESOLVED.to_owned(),
        });
    }
    Ok(names.join(";"))
}

/// Class.method, or the method alone if the class name is empty.
fn name_of(method: &StructRef<'_>) -> Result<String, Error> {
    let name = text(method.field("name")?)?.unwrap_or_else(|| UNRESOLVED.to_owned());
    let class = match record(method.field("type")?)? {
        Some(class) => text(class.field("name")?)?.unwrap_or_else(|| UNRESOLVED.to_owned()),
        None => UNRESOLVED.to_owned(),
    };
    Ok(if class.is_empty() { name } else { format!("{}.{name}", class.replace('/', ".")) })
}

fn record<'a>(value: Option<Value<'a>>) -> Result<Option<StructRef<'a>>, Error> {
    value.map_or(Ok(None), Value::record)
}

fn text(value: Option<Value<'_>>) -> Result<Option<String>, Error> {
    Ok(value.map_or(Ok(None), Value::text)?.map(|t| t.into_owned()))
}
