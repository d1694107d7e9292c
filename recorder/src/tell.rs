//! What a recording says besides samples: who was recorded, where, and each thread's account.

use flightline_in_signal::layout::loss::NAMES;
use jfr_format::schema;

use crate::{
    clock::realtime_ns,
    process::Process,
    recording::Recording,
    settings::{Engine, Settings},
    system,
    threads::{Thread, WALK_ENDS},
};

/// Names of [`flightline_in_signal::layout::walk_end`], as they appear in recordings.
const WALK_END_NAMES: [&str; WALK_ENDS] = [
    "unknown",
    "too deep",
    "no unwind information",
    "unreadable stack",
    "no progress",
    "unwind information not understood",
    "unknown",
    "unknown",
];

/// Longest command line written, bytes.
const MAX_ARGUMENTS: usize = 16 << 10;

/// The machine and the settings, at the start of an output.
pub fn setting(recording: &mut Recording, settings: &Settings, now_ns: u64) {
    let now = recording.ticks(now_ns);
    let start_ms = (realtime_ns() / 1_000_000) as i64;
    let destination = recording.name();
    recording.event(schema::ACTIVE_RECORDING, None, destination.len() + 40, |e, _| {
        e.ticks(now).long(1).string("flightline").string(&destination);
        e.long(i64::MAX).long(0).long(start_ms).long(i64::MAX);
    });
    let engine = match settings.engine {
        Engine::Auto => "auto",
        Engine::Perf => "perf",
        Engine::PerfUser => "perf-user",
        Engine::Timer => "timer",
    };
    let values = [
        ("event", "cpu".to_owned()),
        ("interval", settings.period_ns().to_string()),
        ("engine", engine.to_owned()),
        ("depth", settings.depth.to_string()),
        ("flush", format!("{} ms", settings.flush.as_millis())),
        ("ringSize", settings.ring_size().to_string()),
        ("followChildren", settings.follow.to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (name, value) in values {
        recording.event(schema::ACTIVE_SETTING, None, name.len() + value.len(), |e, _| {
            e.ticks(now).long(i64::from(schema::EXECUTION_SAMPLE.0)).string(name).string(&value);
        });
    }
    let os = system::os_version();
    recording.event(schema::OS_INFORMATION, None, os.len(), |e, _| {
        e.ticks(now).string(&os);
    });
    let cpu = system::cpu();
    recording.event(schema::CPU_INFORMATION, None, 2 * cpu.model.len() + 40, |e, _| {
        e.ticks(now).string(std::env::consts::ARCH).string(&cpu.model);
        e.int(cpu.sockets).int(cpu.cores).int(cpu.threads);
    });
}

/// A process that showed up: program, arguments, start.
pub fn process(recording: &mut Recording, process: &Process, redact: bool, now_ns: u64) {
    let file = &process.file;
    let now = recording.ticks(now_ns);
    let exe = file.exe().to_string_lossy().into_owned();
    let mut arguments = file.arguments();
    let program = if arguments.is_empty() { String::new() } else { arguments.remove(0) };
    let mut rest =
        if redact && !arguments.is_empty() { "[redacted]".to_owned() } else { arguments.join(" ") };
    let cut = (0..=rest.len().min(MAX_ARGUMENTS)).rev().find(|&i| rest.is_char_boundary(i)).unwrap_or(0);
    rest.truncate(cut);
    let started_ago = now_ns.saturating_sub(file.start_mono_ns) / 1_000_000;
    let start_ms = (realtime_ns() / 1_000_000).saturating_sub(started_ago) as i64;
    let size = exe.len() + program.len() + rest.len() + 80;
    recording.event(schema::JVM_INFORMATION, None, size, |e, _| {
        e.ticks(now).string(&exe).string("").string("").string("");
        e.string(&rest).long(start_ms).long(i64::from(file.pid));
    });
    let command = if rest.is_empty() { program } else { format!("{program} {rest}") };
    recording.event(schema::SYSTEM_PROCESS, None, command.len() + 16, |e, _| {
        e.ticks(now).string(&file.pid.to_string()).string(&command);
    });
}

/// A mapped library.
pub fn library(recording: &mut Recording, name: &str, range: (u64, u64), now_ns: u64) {
    let now = recording.ticks(now_ns);
    recording.event(schema::NATIVE_LIBRARY, None, name.len() + 24, |e, _| {
        e.ticks(now).string(name).long(range.0 as i64).long(range.1 as i64);
    });
}

/// Shares of CPU time since the last such event.
pub fn load(recording: &mut Recording, (user, system, machine): (f32, f32, f32), now_ns: u64) {
    let now = recording.ticks(now_ns);
    recording.event(schema::CPU_LOAD, None, 0, |e, _| {
        e.ticks(now).float(user).float(system).float(machine);
    });
}

/// A sentence for the reader of the recording.
pub fn notice(recording: &mut Recording, message: &str, now_ns: u64) {
    let now = recording.ticks(now_ns);
    recording.event(schema::NOTICE, None, message.len(), |e, _| {
        e.ticks(now).string(message);
    });
}

/// The news of all threads of a process: starts, ends, accounts.
pub fn threads(recording: &mut Recording, process: &mut Process, now_ns: u64) {
    let waiting = process.book.waiting() > 0;
    let Process { file, book } = process;
    let group = book.group;
    for thread in book.threads.list.iter_mut().filter(|t| !t.moved) {
        if !thread.told.start {
            thread.told.start = true;
            let constant = thread.constant(file, group, recording);
            let start = recording.ticks(thread.start_ns);
            recording.event(schema::THREAD_START, Some(constant), 0, |e, key| {
                e.ticks(start).key(key).key(0).key(key).key(0);
            });
        }
        let constant = thread.constant(file, group, recording);
        account(recording, thread, constant, now_ns);
        if let Some(end) = thread.end_ns
            && !thread.told.end
            && !waiting
        {
            thread.told.end = true;
            let end = recording.ticks(end);
            recording.event(schema::THREAD_END, Some(constant), 0, |e, key| {
                e.ticks(end).key(key).key(key);
            });
        }
    }
}

/// What changed in a thread's account. ThreadCpu carries totals of the thread's life, SampleLoss and SampleTruncated
/// what came since the last such event.
fn account(recording: &mut Recording, thread: &mut Thread, constant: usize, now_ns: u64) {
    let now = recording.ticks(now_ns);
    let ledger = &thread.ledger;
    let told = &mut thread.told;
    let lost = ledger.lost_total_ns();
    let totals = [ledger.known_ns(), ledger.sampled_ns, lost];
    if totals != told.cpu {
        told.cpu = totals;
        recording.event(schema::THREAD_CPU, Some(constant), 0, |e, key| {
            e.ticks(now).key(key).long(totals[0] as i64).long(totals[1] as i64).long(totals[2] as i64);
        });
    }
    for (cause, name) in NAMES.iter().enumerate() {
        let samples = ledger.lost[cause].saturating_sub(told.lost.1[cause]);
        let ns = ledger.lost_ns[cause].saturating_sub(told.lost.0[cause]);
        if samples == 0 && ns == 0 {
            continue;
        }
        told.lost.1[cause] += samples;
        told.lost.0[cause] += ns;
        recording.event(schema::SAMPLE_LOSS, Some(constant), name.len(), |e, key| {
            e.ticks(now).key(key).string(name).long(samples as i64).long(ns as i64);
        });
    }
    for (reason, name) in WALK_END_NAMES.iter().enumerate() {
        let samples = thread.cut[reason].saturating_sub(told.cut[reason]);
        if samples > 0 {
            told.cut[reason] += samples;
            recording.event(schema::SAMPLE_TRUNCATED, Some(constant), name.len(), |e, key| {
                e.ticks(now).key(key).string(name).long(samples as i64);
            });
        }
    }
}
