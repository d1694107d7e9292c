//! A program that is being recorded and reads its own recording. Each of its threads works, requests a flush,
//! polls, and must then have received its own samples, or a report that they were lost.
//!
//! `own_samples SOCKET THREADS ITERATIONS PERIOD_NS`; run by `flightline record -o unix:SOCKET`.

use std::collections::HashMap;
use std::ffi::c_int;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use flightline_consumer::live::{self, Item, Options, Stream, monotonic_nanos};
use flightline_consumer::model::Unit;

/// The data received for a thread.
#[derive(Clone, Copy, Debug)]
struct Account {
    samples: u64,
    sampled_ns: u64,
    lost_ns: u64,
    /// Earliest and latest time of the samples that came since the thread looked last, `CLOCK_MONOTONIC`.
    since: Option<(i64, i64)>,
    /// Latest moment at which such a sample came.
    arrived: i64,
}

struct Reader {
    stream: Stream,
    accounts: HashMap<i64, Account>,
    /// When the last segment was written.
    written: i64,
    problem: Option<String>,
}

impl Reader {
    /// Takes an item; `false` if there is none.
    fn poll(&mut self) -> bool {
        let item = match self.stream.poll() {
            Poll::Ready(Some(Ok(item))) => item,
            Poll::Ready(Some(Err(error))) => return self.fail(error.to_string()),
            Poll::Ready(None) => return self.fail("the stream ended".to_owned()),
            Poll::Pending => return false,
        };
        match item {
            Item::Sample(sample) => {
                let (Some(time), Some(thread)) = (sample.time.monotonic_nanos, &sample.thread) else {
                    return self.fail(format!("{sample:?}"));
                };
                if sample.weight.unit != Unit::Nanoseconds || sample.stack.is_none() {
                    return self.fail(format!("{sample:?}"));
                }
                let account = self.account(thread.os_id);
                account.samples += 1;
                account.sampled_ns += sample.weight.value;
                account.since = Some(account.since.map_or((time, time), |(a, b)| (a.min(time), b.max(time))));
                account.arrived = monotonic_nanos();
            }
            Item::Loss(loss) => {
                if let Some(thread) = &loss.thread {
                    self.account(thread.os_id).lost_ns += loss.cpu_nanos.unwrap_or(0);
                }
            }
            Item::Segment(segment) => {
                self.written = self.written.max(segment.time.monotonic_nanos.unwrap_or(0));
            }
            Item::Warning(warning) if warning.damage => return self.fail(warning.to_string()),
            _ => {}
        }
        true
    }

    fn account(&mut self, tid: i64) -> &mut Account {
        let none = Account { samples: 0, sampled_ns: 0, lost_ns: 0, since: None, arrived: 0 };
        self.accounts.entry(tid).or_insert(none)
    }

    fn fail(&mut self, problem: String) -> bool {
        self.problem.get_or_insert(problem);
        false
    }
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Uses this much CPU time.
fn work(ns: u64) -> u64 {
    let end = thread_cpu_ns() + ns;
    let mut sum = 0u64;
    while thread_cpu_ns() < end {
        sum = (0..500).fold(sum, |sum, n| std::hint::black_box(sum ^ n).rotate_left(5));
    }
    sum
}

/// `flightline_dump` of the library that was preloaded.
fn dump() -> Option<extern "C" fn() -> c_int> {
    // SAFETY: the name ends with a zero; the function is declared so in flightline.h.
    unsafe {
        let at = libc::dlsym(libc::RTLD_DEFAULT, c"flightline_dump".as_ptr());
        (!at.is_null()).then(|| std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(at))
    }
}

/// Periods of work before each poll.
const WORK: u64 = 8;
/// The periods that may be missing: an unfinished one, half of one by rounding, and an overflow whose signal
/// the kernel merged with another one, which is found at the next sample or within 90 ms.
const OPEN: u64 = 4;
/// CPU time after which even a late one is there, ns.
const LATE: u64 = 100_000_000;

fn thread(
    reader: &Mutex<Reader>,
    iterations: u64,
    period: u64,
    dump: extern "C" fn() -> c_int,
) -> Result<(u64, u64), String> {
    // SAFETY: the call has no arguments and cannot fail.
    let tid = i64::from(unsafe { libc::gettid() });
    let (mut looked, mut late) = (0, 0);
    for iteration in 0..iterations {
        work(WORK * period);
        let (cpu, before_flush) = (thread_cpu_ns(), monotonic_nanos());
        let flush = || match dump() {
            0 => Ok(()),
            error => Err(format!("flightline_dump: {error}")),
        };
        flush()?;
        let mark = monotonic_nanos();
        flush()?;
        let limit = Instant::now() + Duration::from_secs(60);
        let account = loop {
            let mut reader = reader.lock().map_err(|e| e.to_string())?;
            if reader.written > mark + 1_000 {
                let account = reader.account(tid);
                break std::mem::replace(account, Account { since: None, ..*account });
            }
            if !reader.poll() {
                if let Some(problem) = &reader.problem {
                    return Err(problem.clone());
                }
                drop(reader);
                if Instant::now() > limit {
                    return Err(format!("iteration {iteration}: no segment was written for a minute"));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        let told = account.sampled_ns + account.lost_ns + OPEN * period;
        // A late interrupt (the hypervisor ran another machine, or the kernel holds events back until its
        // next tick) has not taken its sample yet when the thread polls: a later poll finds it.
        late += u64::from(told < cpu);
        if told + LATE < cpu {
            return Err(format!("iteration {iteration}: of {cpu} ns of CPU time came {account:?}"));
        }
        if let Some((first, last)) = account.since {
            // A tick is a microsecond, which is also the error of an anchor.
            if last > account.arrived + 2_000 || first + 2_000 < looked {
                return Err(format!("iteration {iteration}: looked at {looked}, {account:?}"));
            }
        }
        looked = before_flush;
    }
    let mut reader = reader.lock().map_err(|e| e.to_string())?;
    Ok((reader.account(tid).samples, late))
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = crate::arguments_text().skip(1).collect();
    let [socket, threads, iterations, period] = &arguments[..] else {
        return Err("SOCKET THREADS ITERATIONS PERIOD_NS".into());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|e| e.to_string());
    let (threads, iterations, period) = (number(threads)?, number(iterations)?, number(period)?);
    let dump = dump().ok_or("this program is not being recorded")?;
    let options = Options { samples: vec!["cpu".into()], others: false, ..Options::default() };
    let stream = live::open(&format!("unix:{socket}"), options).map_err(|e| e.to_string())?;
    let reader = Reader { stream, accounts: HashMap::new(), written: 0, problem: None };
    let reader = Arc::new(Mutex::new(reader));
    // Losses from before the reader connected do not concern the threads below.
    let end = Instant::now() + Duration::from_secs(60);
    while reader.lock().map_err(|e| e.to_string())?.written == 0 {
        if !reader.lock().map_err(|e| e.to_string())?.poll() {
            if dump() != 0 || Instant::now() > end {
                return Err("no segment was written in a minute".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let all: Vec<_> = (0..threads)
        .map(|_| {
            let reader = reader.clone();
            std::thread::spawn(move || thread(&reader, iterations, period, dump))
        })
        .collect();
    let (mut samples, mut late) = (0, 0);
    for one in all {
        let (own, own_late) = one.join().map_err(|_| "a thread panicked")??;
        (samples, late) = (samples + own, late + own_late);
    }
    let stats = reader.lock().map_err(|e| e.to_string())?.stream.stats();
    println!("{} iterations, {samples} samples, {late} late, {stats:?}", threads * iterations);
    Ok(())
}

/// Runs the program.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("own_samples: {problem}");
            ExitCode::FAILURE
        }
    }
}
