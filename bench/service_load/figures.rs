//! The measured latencies, bytes and resources.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The measured operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An agent registers.
    Join,
    /// An agent's poll, beyond its intended wait.
    Poll,
    /// From the request for a run until its agent has received the command.
    Command,
    /// An agent sends a chunk.
    Chunk,
    /// An agent sends the recording of a run.
    Recording,
    /// The list of all targets.
    List,
    /// The timeline of a target.
    Timeline,
    /// Half a minute of a target as a page, folded stacks or pprof.
    Picture,
    /// A comparison of two targets.
    Compare,
    /// The metrics for Prometheus.
    Metrics,
    /// The request for a run.
    Create,
    /// From the request for a run to its end, beyond its duration.
    Run,
}

impl Kind {
    /// All operations.
    pub const ALL: [Self; 12] = [
        Self::Join,
        Self::Poll,
        Self::Command,
        Self::Chunk,
        Self::Recording,
        Self::List,
        Self::Timeline,
        Self::Picture,
        Self::Compare,
        Self::Metrics,
        Self::Create,
        Self::Run,
    ];
}

/// A load on a service.
#[derive(Debug)]
pub struct Load {
    /// The address of the service.
    pub address: SocketAddr,
    over: AtomicBool,
    counting: AtomicBool,
    bytes: AtomicU64,
    took: [Mutex<Taken>; Kind::ALL.len()],
    asked: Mutex<HashMap<String, [Option<Instant>; 2]>>,
    said: Mutex<Vec<String>>,
}

/// The durations of one operation.
#[derive(Debug, Default)]
struct Taken {
    ms: Vec<f32>,
    bad: u64,
}

/// A summary of these durations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// The number of successful operations.
    pub count: usize,
    /// The number of failed operations.
    pub bad: u64,
    /// The median, ms.
    pub p50: f32,
    /// The 99th percentile, ms.
    pub p99: f32,
    /// The maximum, ms.
    pub max: f32,
}

impl Load {
    /// Creates a load that has not begun.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            over: AtomicBool::default(),
            counting: AtomicBool::default(),
            bytes: AtomicU64::default(),
            took: Default::default(),
            asked: Mutex::default(),
            said: Mutex::default(),
        }
    }

    /// Starts to record durations; before this call, only those of joining are recorded.
    pub fn count(&self) {
        self.counting.store(true, Relaxed);
    }

    /// Ends the load.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }

    /// Returns true if the load has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Records the duration of an operation. Failures are counted at any time.
    pub fn took(&self, kind: Kind, time: Duration, good: bool) {
        let mut taken = lock(&self.took[kind as usize]);
        taken.bad += u64::from(!good);
        if good && (kind == Kind::Join || self.counting.load(Relaxed) && !self.is_over()) {
            taken.ms.push(time.as_secs_f32() * 1e3);
        }
    }

    /// Records that the service accepted a chunk of this size.
    pub fn sent(&self, bytes: usize) {
        if self.counting.load(Relaxed) && !self.is_over() {
            self.bytes.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Returns the bytes of the accepted chunks.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Records the request for a run.
    pub fn asked(&self, run: &str, at: Instant) {
        self.moment(run, 0, at);
    }

    /// Records that the agent has received the run's command.
    pub fn heard(&self, run: &str) {
        self.moment(run, 1, Instant::now());
    }

    fn moment(&self, run: &str, which: usize, at: Instant) {
        let mut asked = lock(&self.asked);
        let moments = asked.entry(run.to_owned()).or_default();
        moments[which] = Some(at);
        if let [Some(asked), Some(heard)] = *moments {
            self.took(Kind::Command, heard.saturating_duration_since(asked), true);
        }
    }

    /// Adds a message for the report (at most ten).
    pub fn say(&self, what: String) {
        let mut said = lock(&self.said);
        if said.len() < 10 {
            said.push(what.chars().take(300).collect());
        }
    }

    /// Returns the messages.
    pub fn said(&self) -> Vec<String> {
        lock(&self.said).clone()
    }

    /// Returns a summary of an operation's durations.
    pub fn times(&self, kind: Kind) -> Times {
        let mut taken = lock(&self.took[kind as usize]);
        taken.ms.sort_by(f32::total_cmp);
        let at = |share: f64| {
            let last = taken.ms.len().saturating_sub(1);
            taken.ms.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
        };
        Times { count: taken.ms.len(), bad: taken.bad, p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The resources that a process uses, from `/proc`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// CPU time, s: user and system.
    pub cpu: [f64; 2],
    /// Resident memory, MB: current, peak, and anonymous.
    pub rss: [f64; 3],
    /// The number of threads.
    pub threads: u64,
    /// The number of open descriptors.
    pub files: usize,
    /// MB written to the disk.
    pub written: f64,
}

impl Process {
    /// Reads the resources of a running process.
    pub fn of(pid: u32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        // The kernel counts in units of a hundredth of a second.
        let seconds =
            |at: usize| fields.get(at).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
        let (status, io) = (read("status"), read("io"));
        let value = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim_start_matches(':').split_whitespace().next()?.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        Self {
            cpu: [seconds(11), seconds(12)],
            rss: ["VmRSS", "VmHWM", "RssAnon"].map(|name| value(&status, name) / 1024.0),
            threads: value(&status, "Threads") as u64,
            files: std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
            written: value(&io, "write_bytes") / 1e6,
        }
    }
}
