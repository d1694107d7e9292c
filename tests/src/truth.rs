//! The ground truth that a test program writes: see `victims/truth.h`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Writes a line of ground truth, for test programs in Rust. Does nothing without TRUTH_FILE.
///
/// # Panics
/// When the file cannot be written.
pub fn tell(kind: &str, name: &str, value: u64) {
    let Some(path) = std::env::var_os("TRUTH_FILE") else { return };
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{kind}\t{name}\t{value}\n").as_bytes()).unwrap();
}

/// A thread's own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Kernel thread id.
    pub tid: u64,
    /// The name that the thread gave itself.
    pub name: String,
    /// Its CPU clock, read as its last act, ns.
    pub cpu_ns: u64,
}

/// All lines of one truth file.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Threads in the order they ended.
    pub threads: Vec<Thread>,
    /// CPU time per function, ns, summed over its lines.
    pub functions: BTreeMap<String, u64>,
    /// Other numbers.
    pub counts: BTreeMap<String, i64>,
}

impl Truth {
    /// Reads a file of ground truth.
    ///
    /// # Panics
    ///
    /// If it is missing or a line cannot be parsed.
    #[track_caller]
    pub fn read(path: &Path) -> Truth {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut truth = Truth::default();
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["thread", tid, name, ns] => truth.threads.push(Thread {
                    tid: tid.parse().unwrap(),
                    name: name.to_owned(),
                    cpu_ns: ns.parse().unwrap(),
                }),
                ["function", name, ns] => {
                    *truth.functions.entry(name.to_owned()).or_default() += ns.parse::<u64>().unwrap();
                }
                ["count", name, n] => {
                    *truth.counts.entry(name.to_owned()).or_default() += n.parse::<i64>().unwrap();
                }
                _ => panic!("{}: not understood: {line:?}", path.display()),
            }
        }
        truth
    }

    /// CPU time of all threads, ns.
    pub fn cpu_ns(&self) -> u64 {
        self.threads.iter().map(|t| t.cpu_ns).sum()
    }
}
