//! Conditions under which a recording is copied automatically.
//!
//! Conditions use the kernel's CPU clocks and memory figures, samples with the same callers, and the
//! scheduler's statistics of a thread that waits for a futex that is a lock.

use std::{collections::HashMap, collections::VecDeque, fmt, str::FromStr, time::Duration};

use crate::settings::units::{bytes, duration};

/// Default time over which CPU time is measured.
const CPU_OVER: Duration = Duration::from_secs(10);
/// A running thread counts as stuck only after this many samples with the same callers.
const STUCK_SAMPLES: u64 = 10;
/// A thread whose last sample is older than this is not running.
const RUNS_NS: u64 = 2_000_000_000;

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// A process uses more than this percentage of a processor over this time.
    Cpu(f64, Duration),
    /// A process uses more resident memory than this, bytes.
    Rss(u64),
    /// For this time, a thread has run with the same callers, has waited for one lock, or has been in one
    /// uninterruptible system call.
    Stuck(Duration),
    /// The program ended with this exit code, or with another one.
    Exit {
        /// The code.
        code: i32,
        /// True for this code, false for any other code.
        equal: bool,
    },
    /// A Rust program panicked.
    Panic,
    /// A signal ended the program, or a recorded child that reported the signal.
    Signal,
}

impl Condition {
    /// Returns a word for file names.
    pub fn word(&self) -> &'static str {
        match self {
            Condition::Cpu(..) => "cpu",
            Condition::Rss(_) => "rss",
            Condition::Stuck(_) => "stuck",
            Condition::Exit { .. } => "exit",
            Condition::Panic => "panic",
            Condition::Signal => "signal",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Cpu(percent, over) => write!(f, "cpu>{percent}%/{over:?}"),
            Condition::Rss(bytes) => write!(f, "rss>{bytes}"),
            Condition::Stuck(time) => write!(f, "stuck>{time:?}"),
            Condition::Exit { code, equal } => write!(f, "exit{}{code}", if *equal { "=" } else { "!=" }),
            Condition::Panic | Condition::Signal => f.write_str(self.word()),
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    /// Parses `cpu>80%/10s`, `rss>1g`, `stuck>30s`, `exit!=0`, `exit=3`, `panic`, `signal`.
    fn from_str(text: &str) -> Result<Condition, String> {
        let second = |time: Duration, least: u64| match time < Duration::from_secs(least) {
            true => Err(format!("{text:?} is too short; give at least {least}s")),
            false => Ok(time),
        };
        if let Some(rest) = text.strip_prefix("cpu>") {
            let (percent, over) = rest.split_once('/').unwrap_or((rest, ""));
            let number = percent.strip_suffix('%').and_then(|n| n.parse::<f64>().ok());
            let number = number.filter(|n| n.is_finite() && *n > 0.0);
            let number = number.ok_or_else(|| format!("{percent:?} is not a share of a CPU, such as 80%"))?;
            let over = if over.is_empty() { CPU_OVER } else { duration(over)? };
            return Ok(Condition::Cpu(number, second(over, 1)?));
        }
        if let Some(size) = text.strip_prefix("rss>") {
            return bytes(size).map(Condition::Rss);
        }
        if let Some(time) = text.strip_prefix("stuck>") {
            return Ok(Condition::Stuck(second(duration(time)?, 2)?));
        }
        if let Some(rest) = text.strip_prefix("exit") {
            let (equal, code) = match (rest.strip_prefix("!="), rest.strip_prefix('=')) {
                (Some(code), _) => (false, code),
                (_, Some(code)) => (true, code),
                _ => (false, "no number"),
            };
            let code = code.parse::<u8>().map_err(|_| format!("{text:?}: give exit!=0 or exit=CODE"))?;
            return Ok(Condition::Exit { code: i32::from(code), equal });
        }
        match text {
            "panic" => Ok(Condition::Panic),
            "signal" => Ok(Condition::Signal),
            _ => Err(format!(
                "{text:?} is not a condition; use cpu>80%/10s, rss>1g, stuck>30s, exit!=0, panic or signal"
            )),
        }
    }
}

/// Recent CPU time.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// CLOCK_MONOTONIC and the process's CPU clock, ns, oldest first.
    readings: VecDeque<(u64, u64)>,
}

impl Load {
    /// Returns the percentage of a processor over at least `over`; `None` until enough is known.
    pub fn percent(&mut self, now_ns: u64, cpu_ns: u64, over: Duration) -> Option<f64> {
        let over_ns = u64::try_from(over.as_nanos()).unwrap_or(u64::MAX);
        self.readings.push_back((now_ns, cpu_ns));
        // Retain one entry that is old enough.
        while self.readings.get(1).is_some_and(|(at, _)| now_ns.saturating_sub(*at) >= over_ns) {
            self.readings.pop_front();
        }
        let (at, before) = self.readings.front().copied()?;
        let time = now_ns.saturating_sub(at);
        (time >= over_ns && time > 0).then(|| cpu_ns.saturating_sub(before) as f64 * 100.0 / time as f64)
    }
}

/// A run of samples of a thread with the same callers.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    callers: u64,
    since_ns: u64,
    last_ns: u64,
    samples: u64,
}

/// Running threads: their callers, and since when these are the same, from CPU time samples.
#[derive(Debug, Default)]
pub struct Runs {
    threads: HashMap<u32, Run>,
}

impl Runs {
    /// Adds a sample: the addresses of the stack, innermost first.
    pub fn sample(&mut self, tid: u32, time_ns: u64, addresses: &[u64]) {
        // A thread that is stuck has the same callers, while its innermost address moves within one function.
        // Kernel frames, whose addresses have the top bit set, are ignored, because an interrupt adds them.
        let callers = addresses.iter().filter(|address| *address >> 63 == 0).skip(1);
        let hash = callers.fold(0xcbf2_9ce4_8422_2325_u64, |h, a| (h ^ a).wrapping_mul(0x0100_0000_01b3));
        let run = self.threads.entry(tid).or_default();
        if run.callers != hash || run.samples == 0 || time_ns.saturating_sub(run.last_ns) > RUNS_NS {
            *run = Run { callers: hash, since_ns: time_ns, ..Run::default() };
        }
        run.last_ns = run.last_ns.max(time_ns);
        run.samples += 1;
    }

    /// Returns the thread that has been stuck longest, if any has been for `time`, and for how long, ns.
    /// Forgets threads that do not run.
    pub fn stuck(&mut self, now_ns: u64, time: Duration) -> Option<(u32, u64)> {
        self.threads.retain(|_, run| now_ns.saturating_sub(run.last_ns) <= RUNS_NS);
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let enough =
            |run: &Run| run.samples >= STUCK_SAMPLES && run.last_ns.saturating_sub(run.since_ns) >= time_ns;
        let stuck = self.threads.iter().filter(|(_, run)| enough(run));
        let longest = stuck.max_by_key(|(_, run)| run.last_ns - run.since_ns);
        longest.map(|(tid, run)| (*tid, run.last_ns - run.since_ns))
    }
}

/// Threads that wait for a lock, or in an uninterruptible state.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// By thread: the scheduler's statistics, which do not change unless it runs, and since when.
    threads: HashMap<u32, (String, u64)>,
    longest_wait: Option<(u32, u64)>,
}

/// Limit of threads of one process that are examined.
const THREADS: usize = 4096;

impl Waits {
    /// Returns the thread of a process that has waited longest, if any has for `time`, and for how long, ns.
    pub fn stuck(&mut self, pid: u32, now_ns: u64, time: Duration) -> Option<(u32, u64)> {
        let mut now = HashMap::new();
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().take(THREADS) {
            let Some(tid) = task.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let account = read("schedstat");
            if account.is_empty() {
                continue;
            }
            if let Some((before, since)) = self.threads.remove(&tid).filter(|(before, _)| *before == account)
            {
                // The thread has not run since the last check.
                now.insert(tid, (before, since));
            } else if waits_for_lock(&read("syscall")) || uninterruptible(&read("stat")) {
                now.insert(tid, (account, now_ns));
            }
        }
        self.threads = now;
        let waiting = self.threads.iter().map(|(tid, (_, since))| (*tid, now_ns.saturating_sub(*since)));
        let longest = waiting.max_by_key(|(_, waited)| *waited);
        self.longest_wait = longest.filter(|(_, waited)| u128::from(*waited) >= time.as_nanos());
        self.longest_wait
    }

    /// The result of the last check.
    pub fn last(&self) -> Option<(u32, u64)> {
        self.longest_wait
    }
}

/// Returns true if `/proc/…/syscall` shows that a thread waits for a lock held by another thread. A thread
/// that waits for work also waits in a futex, but with other values: a contended lock has the value 2 in
/// glibc and Rust, or its owner's TID.
fn waits_for_lock(syscall: &str) -> bool {
    const PRIVATE: u64 = 128;
    const REALTIME: u64 = 256;
    const WAITERS: u64 = 1 << 31;
    let mut words = syscall.split_ascii_whitespace();
    let Some(true) = words.next().map(|n| n.parse() == Ok(libc::SYS_futex)) else { return false };
    let arguments: Vec<u64> =
        words.map_while(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()).collect();
    let [_, operation, value, timeout, ..] = arguments[..] else { return false };
    let plain = operation & !PRIVATE;
    let lock = i32::try_from(plain & !REALTIME).unwrap_or(-1);
    match lock {
        libc::FUTEX_LOCK_PI | 13 => true,
        // A wait with a timeout ends on its own.
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET if timeout == 0 && plain & REALTIME == 0 => {
            value == 2 || value & WAITERS != 0
        }
        _ => false,
    }
}

fn uninterruptible(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn trigger_conditions_are_parsed() {
        for (text, condition) in [
            ("cpu>80%/10s", Condition::Cpu(80.0, Duration::from_secs(10))),
            ("cpu>250%", Condition::Cpu(250.0, CPU_OVER)),
            ("rss>1g", Condition::Rss(1 << 30)),
            ("stuck>30s", Condition::Stuck(Duration::from_secs(30))),
            ("exit!=0", Condition::Exit { code: 0, equal: false }),
            ("exit=3", Condition::Exit { code: 3, equal: true }),
            ("panic", Condition::Panic),
            ("signal", Condition::Signal),
        ] {
            assert_eq!(text.parse(), Ok(condition), "{text}");
            assert_eq!(condition.to_string().parse(), Ok(condition), "{condition}");
        }
        for bad in [
            "",
            "cpu",
            "cpu>",
            "cpu>80",
            "cpu>-1%",
            "cpu>nan%",
            "cpu>80%/0s",
            "cpu>80%/x",
            "rss>",
            "rss>x",
            "stuck>1s",
            "exit",
            "exit!=",
            "exit=256",
            "exit>0",
            "PANIC",
            "memory>1g",
        ] {
            assert!(bad.parse::<Condition>().is_err(), "{bad}");
        }
    }

    #[test]
    fn cpu_load_is_averaged_over_interval() {
        let mut load = Load::default();
        let over = Duration::from_secs(3);
        assert_eq!((load.percent(0, 0, over), load.percent(2 * S, 2 * S, over)), (None, None));
        assert_eq!(load.percent(3 * S, 3 * S, over), Some(100.0));
        // The process is idle from now on, so each second replaces a busy one.
        let percent: Vec<f64> = (4..8).map(|t| load.percent(t * S, 3 * S, over).unwrap()).collect();
        assert_eq!((percent[0], percent[2]), (75.0, 0.0));
        for t in 8..10_000 {
            load.percent(t * S, 3 * S, over);
        }
        assert!(load.readings.len() < 8, "what is known is bounded");
    }

    #[test]
    fn thread_with_unchanged_callers_is_stuck() {
        let (mut runs, time) = (Runs::default(), Duration::from_secs(5));
        for tenth in 0..60 {
            let t = tenth * S / 10;
            // One thread stays in a function and is interrupted now and then. The other loops in a function
            // and keeps leaving it.
            let kernel = [1 << 63 | tenth, 1 << 63 | 5];
            let on_top = if tenth % 7 == 3 { &kernel[..] } else { &[] };
            runs.sample(7, t, &[on_top, &[tenth, 10, 20]].concat());
            runs.sample(8, t, &[1, 30 + tenth % 2, 20]);
        }
        assert_eq!(runs.stuck(6 * S, time), Some((7, 59 * S / 10)));
        assert_eq!(runs.stuck(6 * S, 2 * time), None);
        runs.sample(7, 6 * S, &[1, 11, 20]);
        assert_eq!(runs.stuck(6 * S, time), None, "it got on");
        assert_eq!(
            (runs.stuck(60 * S, time), runs.threads.len()),
            (None, 0),
            "who sleeps is not stuck, nor remembered"
        );
    }

    #[test]
    fn lock_waits_are_distinguished_from_other_waits() {
        let call = |op: &str, value: &str, timeout: &str| {
            format!("{} 0x7f00 {op} {value} {timeout} 0x0 0x0 0x7ffd 0x7f", libc::SYS_futex)
        };
        for (text, expected) in [
            (call("0x80", "0x2", "0x0"), true),
            (call("0x89", "0x2", "0x0"), true),
            (call("0x6", "0x0", "0x0"), true),
            (call("0x80", "0x80001234", "0x0"), true),
            (call("0x189", "0x0", "0x0"), false),
            (call("0x189", "0x2", "0x0"), false),
            (call("0x80", "0x0", "0x0"), false),
            (call("0x80", "0x2", "0x7ffd10"), false),
            ("0 0x3 0x2 0x2 0x0 0x0 0x0 0x1 0x2".into(), false),
            ("running".into(), false),
            (String::new(), false),
        ] {
            assert_eq!(waits_for_lock(&text), expected, "{text}");
        }
        assert!(uninterruptible("7 (a) b) D 1 2") && !uninterruptible("7 (D) S 1 2"));
    }

    #[test]
    fn thread_waiting_for_unreleased_lock_is_stuck() {
        use std::sync::{Arc, Mutex};
        let lock = Arc::new(Mutex::new(()));
        let guard = lock.lock().unwrap();
        let other = lock.clone();
        let waiter = std::thread::spawn(move || drop(other.lock()));
        let (mut waits, pid, mut now) = (Waits::default(), std::process::id(), 0);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        // The test uses its own clock, so only the scheduler's statistics of the thread must not change.
        let (tid, waited) = loop {
            now += S;
            // The thread that runs the tests waits too.
            if let Some(stuck) = waits.stuck(pid, now, Duration::from_secs(5)).filter(|(tid, _)| *tid != pid)
            {
                break stuck;
            }
            assert!(std::time::Instant::now() < deadline, "not seen");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(waited >= 5 * S, "{tid} {waited}");
        drop(guard);
        waiter.join().unwrap();
        assert_ne!(waits.stuck(pid, now + S, Duration::from_secs(5)).map(|(tid, _)| tid), Some(tid));
    }
}
