//! What is measured.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An agent introduces itself.
    Join,
    /// An agent's question, beyond what it was to wait.
    Poll,
    /// From a run's being asked for until its agent has heard of it.
    Command,
    /// A chunk.
    Chunk,
    /// A run's recording.
    Recording,
    /// The list of all targets.
    List,
    /// What there is of a target.
    Timeline,
    /// Half a minute as a page, folded stacks or pprof.
    Picture,
    /// Two of them compared.
    Compare,
    /// For Prometheus.
    Metrics,
    /// A run is asked for.
    Create,
    /// A run's end, beyond its duration.
    Run,
}

impl Kind {
    /// All of them.
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
    /// Where the service is.
    pub address: SocketAddr,
    over: AtomicBool,
    counting: AtomicBool,
    bytes: AtomicU64,
    took: [Mutex<Taken>; Kind::ALL.len()],
    asked: Mutex<HashMap<String, [Option<Instant>; 2]>>,
    said: Mutex<Vec<String>>,
}

/// How long something took, each time.
#[derive(Debug, Default)]
struct Taken {
    ms: Vec<f32>,
    bad: u64,
}

/// The same, put in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// How often.
    pub count: usize,
    /// How often not as it should be.
    pub bad: u64,
    /// ms.
    pub p50: f32,
    /// ms.
    pub p99: f32,
    /// ms.
    pub max: f32,
}

impl Load {
    /// Nothing happens yet.
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

    /// From now on times count; before, only those of joining.
    pub fn count(&self) {
        self.counting.store(true, Relaxed);
    }

    /// That was all.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }

    /// Whether it was.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Something took so long. What goes wrong counts at any time.
    pub fn took(&self, kind: Kind, time: Duration, good: bool) {
        let mut taken = lock(&self.took[kind as usize]);
        taken.bad += u64::from(!good);
        if good && (kind == Kind::Join || self.counting.load(Relaxed) && !self.is_over()) {
            taken.ms.push(time.as_secs_f32() * 1e3);
        }
    }

    /// Bytes of a chunk were taken.
    pub fn sent(&self, bytes: usize) {
        if self.counting.load(Relaxed) && !self.is_over() {
            self.bytes.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Bytes of chunks that were taken.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// A run was asked for.
    pub fn asked(&self, run: &str, at: Instant) {
        self.moment(run, 0, at);
    }

    /// Its agent has heard of it.
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

    /// Something to be looked at.
    pub fn say(&self, what: String) {
        let mut said = lock(&self.said);
        if said.len() < 10 {
            said.push(what.chars().take(300).collect());
        }
    }

    /// All of it.
    pub fn said(&self) -> Vec<String> {
        lock(&self.said).clone()
    }

    /// How long something took.
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

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// CPU time, s: of the program, and of the kernel for it.
    pub cpu: [f64; 2],
    /// Memory, MB, now and at most; what is its own alone.
    pub rss: [f64; 3],
    /// Threads.
    pub threads: u64,
    /// Descriptors.
    pub files: usize,
    /// MB given to the disk.
    pub written: f64,
}

impl Process {
    /// Of a process that is there.
    pub fn of(pid: u32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        // The kernel counts a hundredth of a second at a time.
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
