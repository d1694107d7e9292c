//! A recording read back into plain lists, by our own reader or by the JDK's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jfr_format::event::{EventRef, Value};
use jfr_format::read::{Input, Item};

use crate::run::run;
use crate::{skip, victim};

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Class: the module's file name.
    pub class: String,
    /// Method: the function.
    pub method: String,
}

/// A stack, leaf first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stack {
    /// The walk did not reach the root.
    pub truncated: bool,
    /// Frames, leaf first.
    pub frames: Vec<Frame>,
}

/// One `jdk.ExecutionSample`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since the epoch.
    pub time_ns: i64,
    /// Kernel thread id.
    pub tid: u64,
    /// Index into [`Recording::stacks`].
    pub stack: usize,
}

/// One `flightline.ThreadCpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCpu {
    /// Kernel thread id.
    pub tid: u64,
    /// The thread's CPU clock, ns.
    pub cpu_ns: u64,
    /// The part of it that samples cover, in ns.
    pub sampled_ns: u64,
    /// The part of it that was lost, in ns.
    pub lost_ns: u64,
}

/// One `flightline.SampleLoss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Kernel thread id; 0 when the event names no thread.
    pub tid: u64,
    /// Cause.
    pub cause: String,
    /// Samples lost.
    pub samples: u64,
    /// CPU time lost, ns.
    pub cpu_ns: u64,
}

/// The data of a recording that the tests check.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// All samples in file order.
    pub samples: Vec<Sample>,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Thread names by kernel thread id (the last seen).
    pub names: HashMap<u64, String>,
    /// Ledger events in file order.
    pub ledger: Vec<ThreadCpu>,
    /// Loss events in file order.
    pub losses: Vec<Loss>,
    /// Number of events by type name.
    pub events: HashMap<String, u64>,
    /// Chunks (our reader only).
    pub chunks: usize,
    /// The warnings of our reader.
    pub warnings: Vec<String>,
}

/// Converts events to lists; stacks and threads are resolved once per chunk and key.
#[derive(Default)]
struct Collector {
    recording: Recording,
    by_key: HashMap<u64, usize>,
    by_content: HashMap<Stack, usize>,
}

type Failed = jfr_format::error::Error;

impl Collector {
    fn event(&mut self, event: &EventRef<'_>) -> Result<(), Failed> {
        let name = &*event.class().name;
        match self.recording.events.get_mut(name) {
            Some(n) => *n += 1,
            None => {
                self.recording.events.insert(name.to_owned(), 1);
            }
        }
        let long = |field: &str| -> Result<u64, Failed> {
            Ok(event.field(field)?.and_then(|v| v.as_i64()).unwrap_or(0).max(0) as u64)
        };
        match name {
            "jdk.ExecutionSample" => {
                let tid = self.thread(event, "sampledThread")?;
                let stack = self.stack(event)?;
                let time_ns = event.start_nanos().unwrap_or(0);
                self.recording.samples.push(Sample { time_ns, tid, stack });
            }
            "flightline.ThreadCpu" => {
                let tid = self.thread(event, "eventThread")?;
                let (cpu_ns, sampled_ns, lost_ns) = (long("cpuTime")?, long("sampled")?, long("lost")?);
                self.recording.ledger.push(ThreadCpu { tid, cpu_ns, sampled_ns, lost_ns });
            }
            "flightline.SampleLoss" => {
                let tid = self.thread(event, "eventThread")?;
                let cause = text(event.field("cause")?)?;
                let (samples, cpu_ns) = (long("samples")?, long("cpuTime")?);
                self.recording.losses.push(Loss { tid, cause, samples, cpu_ns });
            }
            _ => {}
        }
        Ok(())
    }

    fn thread(&mut self, event: &EventRef<'_>, field: &str) -> Result<u64, Failed> {
        let Some(thread) = event.field(field)?.map(|v| v.record()).transpose()?.flatten() else {
            return Ok(0);
        };
        let tid = thread.field("osThreadId")?.and_then(|v| v.as_i64()).unwrap_or(0) as u64;
        let name = text(thread.field("osName")?)?;
        if self.recording.names.get(&tid) != Some(&name) {
            self.recording.names.insert(tid, name);
        }
        Ok(tid)
    }

    fn stack(&mut self, event: &EventRef<'_>) -> Result<usize, Failed> {
        let Some(Value::Reference(reference)) = event.field("stackTrace")? else {
            return Ok(self.intern(Stack { truncated: true, frames: Vec::new() }));
        };
        if let Some(known) = self.by_key.get(&reference.key()) {
            return Ok(*known);
        }
        let mut stack = Stack { truncated: true, frames: Vec::new() };
        if let Some(trace) = Value::Reference(reference).record()? {
            stack.truncated = matches!(trace.field("truncated")?, Some(Value::Boolean(true)));
            if let Some(Value::Array(frames)) = trace.field("frames")? {
                for one in frames.iter() {
                    stack.frames.push(frame(one?)?);
                }
            }
        }
        let id = self.intern(stack);
        self.by_key.insert(reference.key(), id);
        Ok(id)
    }

    fn intern(&mut self, stack: Stack) -> usize {
        let next = self.recording.stacks.len();
        match self.by_content.entry(stack) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.recording.stacks.push(new.key().clone());
                *new.insert(next)
            }
        }
    }
}

/// A frame of a stack.
pub(crate) fn frame(frame: Value<'_>) -> Result<Frame, Failed> {
    let mut out = Frame { class: String::new(), method: String::new() };
    let Some(method) = frame.record()?.map(|f| f.field("method")).transpose()?.flatten() else {
        return Ok(out);
    };
    if let Some(method) = method.record()? {
        out.method = text(method.field("name")?)?;
        if let Some(class) = method.field("type")?.map(|v| v.record()).transpose()?.flatten() {
            out.class = text(class.field("name")?)?;
        }
    }
    Ok(out)
}

fn text(value: Option<Value<'_>>) -> Result<String, Failed> {
    Ok(value.map(|v| v.text()).transpose()?.flatten().unwrap_or_default().into_owned())
}

impl Recording {
    /// Reads a recording with our own reader. Its warnings are in [`warnings`](Recording::warnings).
    ///
    /// # Errors
    ///
    /// If the file cannot be read or contains no chunk.
    pub fn read(path: &Path) -> Result<Recording, String> {
        let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let mut input = Input::open(path).map_err(|e| fail(&e))?;
        let mut collector = Collector::default();
        while let Some(item) = input.next().map_err(|e| fail(&e))? {
            match item {
                Item::ChunkStart(_) => {
                    collector.recording.chunks += 1;
                    collector.by_key.clear();
                }
                Item::Events(batch) => {
                    for event in batch.events() {
                        collector.event(&event).map_err(|e| fail(&e))?;
                    }
                }
                Item::Warning(warning) => collector.recording.warnings.push(warning.to_string()),
                Item::ChunkEnd(_) => {}
            }
        }
        if collector.recording.chunks == 0 {
            return Err(fail(&format!("no chunk: {:?}", collector.recording.warnings)));
        }
        Ok(collector.recording)
    }

    /// Reads a recording with the JDK's `jdk.jfr.consumer`, independently of our code. `None` without a JDK.
    #[track_caller]
    pub fn read_by_jdk(path: &Path) -> Option<Recording> {
        if !skip::have_jdk() {
            skip::skip("no JDK here: the recording was not read by a foreign reader");
            return None;
        }
        let classes = victim::java_classes(Path::new("javac"), "Dump", &[]);
        let mut java = Command::new("java");
        java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(&classes).arg("Dump").arg(path);
        let out = run(&mut java, Duration::from_secs(300)).expect_success("java Dump");
        Some(Recording::from_dump(&out.stdout_text()))
    }

    /// Parses the lines of `jdk/Dump.java`.
    fn from_dump(text: &str) -> Recording {
        let mut recording = Recording::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |i: usize| -> u64 { fields[i].parse::<i64>().unwrap().max(0) as u64 };
            match fields[0] {
                "stack" => recording.stacks.push(Stack {
                    truncated: fields[1] == "true",
                    frames: fields[2..]
                        .chunks_exact(2)
                        .map(|f| Frame { class: f[0].to_owned(), method: f[1].to_owned() })
                        .collect(),
                }),
                "sample" => recording.samples.push(Sample {
                    time_ns: fields[1].parse().unwrap(),
                    tid: number(2),
                    stack: number(3) as usize,
                }),
                "thread" => {
                    recording.names.insert(number(1), fields[2].to_owned());
                }
                "cpu" => recording.ledger.push(ThreadCpu {
                    tid: number(1),
                    cpu_ns: number(2),
                    sampled_ns: number(3),
                    lost_ns: number(4),
                }),
                "loss" => recording.losses.push(Loss {
                    tid: number(1),
                    cause: fields[2].to_owned(),
                    samples: number(3),
                    cpu_ns: number(4),
                }),
                "event" => {
                    recording.events.insert(fields[1].to_owned(), number(2));
                }
                other => panic!("line {other:?} of Dump.java is not understood"),
            }
        }
        recording
    }

    /// Samples of each thread.
    pub fn samples_by_tid(&self) -> HashMap<u64, u64> {
        let mut count = HashMap::new();
        for sample in &self.samples {
            *count.entry(sample.tid).or_default() += 1;
        }
        count
    }

    /// Lost CPU time of each thread, ns.
    pub fn lost_by_tid(&self) -> HashMap<u64, u64> {
        let mut sum = HashMap::new();
        for loss in &self.losses {
            *sum.entry(loss.tid).or_default() += loss.cpu_ns;
        }
        sum
    }

    /// The share of samples whose stack satisfies a condition, in percent; 0 without samples.
    pub fn share(&self, condition: impl Fn(&Stack) -> bool) -> f64 {
        let yes: Vec<bool> = self.stacks.iter().map(condition).collect();
        let n = self.samples.iter().filter(|s| yes[s.stack]).count();
        100.0 * n as f64 / self.samples.len().max(1) as f64
    }
}

impl Stack {
    /// Returns true if the function is anywhere in the stack.
    pub fn has(&self, method: &str) -> bool {
        self.frames.iter().any(|f| f.method == method)
    }

    /// Returns true if these functions appear in this order, leaf first, gaps allowed.
    pub fn has_in_order(&self, methods: &[&str]) -> bool {
        let mut frames = self.frames.iter();
        methods.iter().all(|m| frames.any(|f| f.method == *m))
    }
}
