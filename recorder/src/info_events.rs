//! Information events: what was recorded, on which machine, with which settings, and each thread's totals.

use std::{collections::HashSet, time::Duration};

use flightline_in_signal::layout::loss::{self, NAMES};
use jfr_format::schema;

use crate::{
    names::images::{ANONYMOUS, Images},
    names::modules::ModuleMap,
    os::clock::realtime_ns,
    os::process_info::ProcessInfo,
    os::system,
    process::Process,
    process::thread::{Thread, WALK_ENDS},
    recording::{Recording, RecordingId},
    settings::labels::Label,
    settings::units::format_duration,
    settings::{OffCpuSettings, Settings},
};

/// Names of [`flightline_in_signal::layout::walk_end`], as they appear in recordings.
const WALK_END_NAMES: [&str; WALK_ENDS] = [
    "unknown",
    "too deep",
    "no unwind information",
    "unreadable stack",
    "no progress",
    "unsupported unwind information",
    "took too long",
    "copied part of the stack too short",
    "unknown",
];

/// Limit of a command line in the recording, bytes.
const MAX_ARGUMENTS: usize = 16 << 10;

/// Writes the machine and the settings at the start of an output.
pub fn setting(recording: &mut Recording, settings: &Settings, now_ns: u64) {
    let now = recording.ticks(now_ns);
    let start_ms = (realtime_ns() / 1_000_000) as i64;
    let destination = recording.name();
    recording.event(schema::ACTIVE_RECORDING, None, destination.len() + 40, |e, _| {
        e.ticks(now).long(1).string("flightline").string(&destination);
        e.long(i64::MAX).long(0).long(start_ms).long(i64::MAX);
    });
    let traced = |of: fn(&OffCpuSettings) -> Option<Duration>| {
        settings.off_cpu.as_ref().and_then(of).map_or(String::new(), format_duration)
    };
    let values = [
        ("event", if settings.cpu.enabled { "cpu" } else { settings.wall.map_or("", |_| "wall") }.to_owned()),
        ("engines", settings.spec()),
        ("interval", settings.period_ns().to_string()),
        ("engine", settings.cpu.engine.name().to_owned()),
        ("offCpu", traced(|o| o.switches.then_some(o.min))),
        ("syscallIo", traced(|o| o.calls)),
        ("blockIo", traced(|o| o.block)),
        ("growth", settings.off_cpu.as_ref().filter(|o| o.growth).map_or("", |_| "true").to_owned()),
        ("budget", settings.cost.budget.map_or(String::new(), |share| format!("{} %", share * 100.0))),
        (
            "aggregate",
            settings.cpu.aggregate.map_or(String::new(), |time| format!("{} ms", time.as_millis())),
        ),
        ("depth", settings.stacks.depth.to_string()),
        ("flush", format!("{} ms", settings.output.flush.as_millis())),
        ("ringSize", settings.ring_size().to_string()),
        ("followChildren", settings.processes.follow.to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (name, value) in values.into_iter().filter(|(_, value)| !value.is_empty()) {
        recording.event(schema::ACTIVE_SETTING, None, name.len() + value.len(), |e, _| {
            e.ticks(now).long(i64::from(schema::EXECUTION_SAMPLE.0)).string(name).string(&value);
        });
    }
    let os = system::os_version();
    recording.event(schema::OS_INFORMATION, None, os.len(), |e, _| {
        e.ticks(now).string(os);
    });
    let cpu = system::cpu();
    recording.event(schema::CPU_INFORMATION, None, 2 * cpu.model.len() + 40, |e, _| {
        e.ticks(now).string(std::env::consts::ARCH).string(&cpu.model);
        e.int(cpu.sockets).int(cpu.cores).int(cpu.threads);
    });
}

/// Writes a new process: program, arguments, start time.
pub fn process(recording: &mut Recording, about: &ProcessInfo, redact: bool, now_ns: u64) {
    let now = recording.ticks(now_ns);
    let exe = about.exe.to_string_lossy().into_owned();
    let mut arguments = about.arguments.clone();
    let program = if arguments.is_empty() { String::new() } else { arguments.remove(0) };
    let mut rest =
        if redact && !arguments.is_empty() { "[redacted]".to_owned() } else { arguments.join(" ") };
    let cut = (0..=rest.len().min(MAX_ARGUMENTS)).rev().find(|&i| rest.is_char_boundary(i)).unwrap_or(0);
    rest.truncate(cut);
    let started_ago = now_ns.saturating_sub(about.start_mono_ns) / 1_000_000;
    let start_ms = (realtime_ns() / 1_000_000).saturating_sub(started_ago) as i64;
    let size = exe.len() + program.len() + rest.len() + 80;
    recording.event(schema::JVM_INFORMATION, None, size, |e, _| {
        e.ticks(now).string(&exe).string("").string("").string("");
        e.string(&rest).long(start_ms).long(i64::from(about.pid));
    });
    let command = if rest.is_empty() { program } else { format!("{program} {rest}") };
    recording.event(schema::SYSTEM_PROCESS, None, command.len() + 16, |e, _| {
        e.ticks(now).string(&about.pid.to_string()).string(&command);
    });
}

/// Writes the labels of a process, such as its container and service.
pub fn labels(recording: &mut Recording, pid: u32, labels: &[Label], now_ns: u64) {
    let now = recording.ticks(now_ns);
    for (name, value) in labels {
        recording.event(schema::PROCESS_LABEL, None, name.len() + value.len() + 24, |e, _| {
            e.ticks(now).long(i64::from(pid)).string(name).string(value);
        });
    }
}

/// Writes libraries mapped since the last call. `written` holds those written: recording, address, image.
pub fn libraries(
    modules: &ModuleMap,
    id: RecordingId,
    recording: &mut Recording,
    images: &Images,
    written: &mut HashSet<(RecordingId, u64, u32)>,
    now_ns: u64,
) {
    for mapping in modules.current() {
        if mapping.image != ANONYMOUS && written.insert((id, mapping.start, mapping.image)) {
            let name = images.get(mapping.image).path.to_string_lossy();
            library(recording, &name, (mapping.start, mapping.end), now_ns);
        }
    }
}

/// Up to this number, unmapped libraries are remembered as well.
const MANY_LIBRARIES: usize = 1 << 15;

/// If too many libraries are remembered, drops those that are no longer mapped.
pub fn forget_libraries<'a>(
    written: &mut HashSet<(RecordingId, u64, u32)>,
    mapped: impl Iterator<Item = (RecordingId, &'a ModuleMap)>,
) {
    if written.len() > MANY_LIBRARIES {
        let mapped = mapped.flat_map(|(id, modules)| {
            modules.current().iter().map(move |mapping| (id, mapping.start, mapping.image))
        });
        *written = mapped.filter(|library| written.contains(library)).collect();
    }
}

/// Writes one mapped library.
fn library(recording: &mut Recording, name: &str, range: (u64, u64), now_ns: u64) {
    let now = recording.ticks(now_ns);
    recording.event(schema::NATIVE_LIBRARY, None, name.len() + 24, |e, _| {
        e.ticks(now).string(name).long(range.0 as i64).long(range.1 as i64);
    });
}

/// Writes thread starts, thread ends and changed totals of all threads of a process.
pub fn threads(recording: &mut Recording, process: &mut Process, now_ns: u64) {
    let waiting = process.state.waiting() > 0;
    let Process { file, state, .. } = process;
    let group = state.group;
    state.engines.write_losses(recording, &file.events_lost(), now_ns);
    state.engines.write_short_events(recording, &file.events_short(), now_ns);
    let accounts = !state.threads.cpu_off;
    for thread in state.threads.list.iter_mut().filter(|t| !t.moved && !t.reported.end) {
        let constant = thread.constant(file, group, recording);
        self::thread(recording, thread, constant, accounts, !waiting, now_ns);
    }
    process.save_reported(recording);
}

/// Writes a thread's start, its changed totals, and its end once no sample of the thread is outstanding.
pub fn thread(
    recording: &mut Recording,
    thread: &mut Thread,
    constant: usize,
    accounts: bool,
    complete: bool,
    now_ns: u64,
) {
    if !thread.reported.start {
        thread.reported.start = true;
        let start = recording.ticks(thread.start_ns);
        recording.event(schema::THREAD_START, Some(constant), 0, |e, key| {
            e.ticks(start).key(key).key(0).key(key).key(0);
        });
    }
    if accounts && !thread.left_out() {
        account(recording, thread, constant, now_ns);
    }
    thread.reported.counted = thread.accounted();
    if let Some(end) = thread.end_ns
        && !thread.reported.end
        && complete
    {
        thread.reported.end = true;
        let end = recording.ticks(end);
        recording.event(schema::THREAD_END, Some(constant), 0, |e, key| {
            e.ticks(end).key(key).key(key);
        });
    }
}

/// Writes the changes of a thread's totals. ThreadCpu carries totals of the thread's life; SampleLoss and
/// SampleTruncated carry what was added since the last such event.
fn account(recording: &mut Recording, thread: &mut Thread, constant: usize, now_ns: u64) {
    let now = recording.ticks(now_ns);
    let unconfirmed = thread.unconfirmed_ns();
    let ledger = &thread.ledger;
    let reported = &mut thread.reported;
    let lost = ledger.lost_total_ns().saturating_sub(unconfirmed);
    let totals = [ledger.known_ns(), ledger.sampled_ns, lost, thread.stacks.by_timer];
    if totals != reported.cpu {
        reported.cpu = totals;
        recording.event(schema::THREAD_CPU, Some(constant), 0, |e, key| {
            e.ticks(now).key(key);
            totals.iter().for_each(|total| {
                e.long(*total as i64);
            });
        });
    }
    for (cause, name) in NAMES.iter().enumerate() {
        let samples = ledger.lost[cause].saturating_sub(reported.lost.1[cause]);
        let unconfirmed = if cause == loss::BLOCKED { unconfirmed } else { 0 };
        let ns = ledger.lost_ns[cause].saturating_sub(unconfirmed).saturating_sub(reported.lost.0[cause]);
        if samples == 0 && ns == 0 {
            continue;
        }
        reported.lost.1[cause] += samples;
        reported.lost.0[cause] += ns;
        recording.sample_loss(constant, name, (samples, ns), now_ns);
    }
    for (reason, name) in WALK_END_NAMES.iter().enumerate() {
        let samples = thread.stacks.cut[reason].saturating_sub(reported.cut[reason]);
        if samples > 0 {
            reported.cut[reason] += samples;
            recording.event(schema::SAMPLE_TRUNCATED, Some(constant), name.len(), |e, key| {
                e.ticks(now).key(key).string(name).long(samples as i64);
            });
        }
    }
}
