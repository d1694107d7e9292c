//! Reads the state of a thread from `/proc`: its name, whether it exists, whether it runs without samples.

use std::fs;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use flightline_in_signal::layout::{engine, slot_state, stage};
use flightline_in_signal::os::clock;

use super::thread::Thread;
use crate::shared_memory::proc_file::ProcFile;

/// Returns the CPU time that may pass without a sample in normal operation: a period, doubled for safety, and
/// the kernel's tick.
pub(super) fn unseen_limit(period_ns: u64) -> u64 {
    2 * period_ns + 10_000_000
}

/// Reads the thread's current name. A new name needs a new key in the output. Returns false if the thread is
/// gone.
pub(super) fn look_up_name(thread: &mut Thread, file: &ProcFile) -> bool {
    let name = fs::read(format!("/proc/{}/task/{}/comm", file.pid, thread.tid));
    let Ok(name) = name else { return !file.trusted_pid() };
    thread.name.is_known = true;
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\n');
    if name != thread.name() {
        thread.rename_at(name.to_owned(), clock::monotonic_ns(), true);
    }
    true
}

/// Ends the slot of a thread that exited without passing through `pthread` (raw clone).
pub(super) fn end_vanished(thread: &Thread, file: &ProcFile) {
    if let Some((number, generation)) = thread.slot
        && let Some(slot) = file.slot(number)
    {
        let ended = generation | slot_state::ENDED;
        let _ = slot.state.compare_exchange(generation | slot_state::LIVE, ended, AcqRel, Relaxed);
    }
}

/// Reads the thread's CPU clock, if its samples do not contain it.
pub(super) fn read_clock(thread: &mut Thread, file: &ProcFile) {
    let ran = fs::read_to_string(format!("/proc/{}/task/{}/schedstat", file.pid, thread.tid)).ok();
    let ran = ran.and_then(|text| text.split(' ').next()?.parse::<u64>().ok()).filter(|_| file.trusted_pid());
    thread.ledger.cpu_ns = thread.ledger.cpu_ns.max(ran.unwrap_or(0));
}

/// Checks a thread whose CPU clock advances without samples. Returns true if it blocks our signal.
pub(super) fn look_for_blocked(thread: &mut Thread, file: &ProcFile, period_ns: u64) -> bool {
    let dir = format!("/proc/{}/task/{}", file.pid, thread.tid);
    let Ok(text) = fs::read_to_string(format!("{dir}/schedstat")) else {
        if file.alive() {
            end_vanished(thread, file);
        }
        return false;
    };
    let Some(ran) = text.split(' ').next().and_then(|n| n.parse::<u64>().ok()) else { return false };
    let slot = thread.slot.and_then(|(number, _)| file.slot(number));
    // Samples in the ring were not blocked.
    let written = slot.map_or(0, |slot| slot.ledger.sampled_ns.load(Relaxed));
    let in_ring = written.saturating_sub(thread.ledger.arrived_ns);
    let booked = thread.ledger.booked_ns() - thread.blocked.ns;
    thread.ledger.cpu_ns = thread.ledger.cpu_ns.max(ran);
    let unseen = ran.saturating_sub(booked.saturating_add(in_ring));
    if unseen < unseen_limit(period_ns) {
        return false;
    }
    let Ok(status) = fs::read_to_string(format!("{dir}/status")) else { return false };
    let mask = status.lines().find_map(|l| l.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    let by_timer = slot.is_some_and(|slot| slot.engine.stage.load(Relaxed) == stage::TIMER);
    let ours = match file.engine().0 {
        engine::TIMER | engine::ITIMER => 1 << (libc::SIGPROF - 1),
        _ if by_timer => 1 << (libc::SIGPROF - 1),
        _ => 1 << (libc::SIGTRAP - 1),
    };
    if mask & ours == 0 {
        return false;
    }
    // Up to one period of it belongs to the next sample. The reported loss must not exceed the loss that this
    // sample reports.
    thread.set_blocked(unseen.saturating_sub(period_ns));
    if let Some(slot) = slot {
        slot.engine.blocked_seen.store(1, Relaxed);
    }
    true
}
