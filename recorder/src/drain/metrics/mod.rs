//! Periodic metrics of processes and the machine: load, memory, context switches, control groups, network.
//! They are read from `/proc` and the control groups' files, without involving the program.

use std::{collections::HashMap, time::Duration};

use jfr_format::schema;

use crate::{
    os::system::{self, Machine, Memory, ProcessStat},
    process::Process,
    recording::{Recording, RecordingId, RecordingSlots},
};

mod network;

use crate::os::cgroup::{self, Configuration, Group, Usage};
use network::Network;

/// Limit of threads whose load is read at one time.
const MAX_THREADS: usize = 1024;

/// The values of the last reading.
pub struct Metrics {
    period_ns: Option<u64>,
    /// Factor for the interval between two readings.
    rarer: u32,
    at_ns: u64,
    machine: Option<Machine>,
    processes: HashMap<u32, ProcessStat>,
    network: Network,
    groups: HashMap<RecordingId, (Group, Configuration)>,
}

/// Values shared by many processes, read once per round.
#[derive(Default)]
struct Round {
    memory: Option<Memory>,
    groups: HashMap<Group, (Usage, Configuration)>,
}

impl Round {
    fn group(&mut self, group: &Group) -> &(Usage, Configuration) {
        if !self.groups.contains_key(group) {
            self.groups.insert(group.clone(), (group.usage(), group.configuration()));
        }
        &self.groups[group]
    }
}

impl Metrics {
    /// Reads every `period`, or never.
    pub fn new(period: Option<Duration>) -> Metrics {
        let period_ns = period.map(|p| u64::try_from(p.as_nanos()).unwrap_or(u64::MAX).max(1));
        Metrics {
            period_ns,
            rarer: 1,
            at_ns: 0,
            machine: None,
            processes: HashMap::new(),
            network: Network::default(),
            groups: HashMap::new(),
        }
    }

    /// Forgets a recording that is retired.
    pub fn forget(&mut self, id: RecordingId) {
        self.groups.remove(&id);
    }

    /// Reads only every `periods` periods from now on.
    pub fn every(&mut self, periods: u32) {
        self.rarer = periods.max(1);
    }

    /// Returns true if [`Metrics::read`] is due.
    pub fn due(&self, now_ns: u64) -> bool {
        self.period_ns.is_some_and(|period| {
            now_ns.saturating_sub(self.at_ns) >= period.saturating_mul(u64::from(self.rarer))
        })
    }

    /// Reads everything and writes the changes. `outside`: processes recorded from outside, with their
    /// recordings.
    pub fn read(
        &mut self,
        processes: &mut [Process],
        outside: &[(u32, RecordingId)],
        recordings: &mut RecordingSlots,
        now_ns: u64,
    ) {
        let Some(machine) = system::machine() else { return };
        let elapsed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.at_ns, now_ns));
        let before = self.machine.replace(machine);
        let live = processes.iter().filter(|p| !p.state.over && p.file.trusted_pid()).map(|p| p.file.pid);
        let live = live.chain(outside.iter().map(|(pid, _)| *pid));
        let stats: HashMap<u32, ProcessStat> =
            live.filter_map(|pid| Some((pid, system::process(pid)?))).collect();
        let old = std::mem::replace(&mut self.processes, stats);
        let per_second = 1e9 / elapsed_ns.max(1) as f64;
        let seconds_of_all = system::processors() as f64 / per_second;
        let mut round = Round { memory: system::memory(), ..Round::default() };
        self.network.begin(before.map(|_| per_second));
        for (id, recording) in recordings.iter_mut().filter(|(_, recording)| !recording.full()) {
            let mine = || {
                let pids = processes.iter().filter(|p| p.state.recording == id).map(|p| p.file.pid);
                let inside =
                    pids.filter_map(|pid| Some((pid, *self.processes.get(&pid)?, old.get(&pid).copied())));
                // Exclude what these processes used before they were recorded.
                let pids = outside.iter().filter(move |(_, recording)| *recording == id);
                inside.chain(pids.filter_map(|(pid, _)| {
                    let stat = *self.processes.get(pid)?;
                    Some((*pid, stat, Some(old.get(pid).copied().unwrap_or(stat))))
                }))
            };
            if let Some(before) = before {
                let mut load = [0.0; 2];
                for (pid, stat, old) in mine() {
                    let used = stat.used_since(old.unwrap_or_default());
                    let share = used.map(|s| (s / seconds_of_all).clamp(0.0, 1.0) as f32);
                    process_usage(recording, pid, &stat, share, now_ns);
                    load = [load[0] + share[0], load[1] + share[1]];
                }
                cpu_load(recording, load, machine.busy_since(before), now_ns);
                switches(recording, machine.switches_since(before) as f64 * per_second, now_ns);
            }
            let size = mine().fold((0, 0), |sum, (_, s, _)| (sum.0 + s.resident, sum.1 + s.resident_peak));
            if size.0 > 0 {
                resident(recording, size, now_ns);
            }
            if let Some(pid) = mine().next().map(|(pid, ..)| pid) {
                match self.groups.get_mut(&id) {
                    Some((group, written)) => {
                        let (usage, configuration) = round.group(group).clone();
                        container(usage, recording, now_ns);
                        if configuration != *written {
                            write_container_configuration(recording, &configuration, round.memory, now_ns);
                            *written = configuration;
                        }
                    }
                    None => {
                        if let Some(group) = Group::for_process(pid) {
                            let configuration = round.group(&group).1.clone();
                            write_container_configuration(recording, &configuration, round.memory, now_ns);
                            self.groups.insert(id, (group, configuration));
                        }
                    }
                }
                // The processes of a recording nearly always share one network namespace.
                for (name, read, written) in self.network.interfaces(pid) {
                    recording.network_utilization(name, *read, *written, now_ns);
                }
            }
            memory(recording, round.memory, now_ns);
        }
        if before.is_some() {
            threads(processes, recordings, now_ns);
        }
    }
}

fn cpu_load(recording: &mut Recording, [user, system]: [f32; 2], machine: f32, now_ns: u64) {
    let now = recording.ticks(now_ns);
    recording.event(schema::CPU_LOAD, None, 0, |e, _| {
        e.ticks(now).float(user.min(1.0)).float(system.min(1.0)).float(machine);
    });
}

fn process_usage(recording: &mut Recording, pid: u32, stat: &ProcessStat, share: [f32; 2], now_ns: u64) {
    let now = recording.ticks(now_ns);
    recording.event(schema::PROCESS_USAGE, None, 0, |e, _| {
        e.ticks(now).long(i64::from(pid)).float(share[0]).float(share[1]);
        e.long(stat.resident as i64).long(stat.resident_peak as i64);
        e.int(stat.threads).long(stat.minor_faults as i64).long(stat.major_faults as i64);
    });
}

fn switches(recording: &mut Recording, rate: f64, now_ns: u64) {
    let now = recording.ticks(now_ns);
    recording.event(schema::THREAD_CONTEXT_SWITCH_RATE, None, 0, |e, _| {
        e.ticks(now).float(rate as f32);
    });
}

fn resident(recording: &mut Recording, (size, peak): (u64, u64), now_ns: u64) {
    let now = recording.ticks(now_ns);
    recording.event(schema::RESIDENT_SET_SIZE, None, 0, |e, _| {
        e.ticks(now).long(size as i64).long(peak as i64);
    });
}

fn memory(recording: &mut Recording, memory: Option<Memory>, now_ns: u64) {
    let Some(memory) = memory else { return };
    let now = recording.ticks(now_ns);
    recording.event(schema::PHYSICAL_MEMORY, None, 0, |e, _| {
        e.ticks(now).long(memory.total as i64).long((memory.total.saturating_sub(memory.free)) as i64);
    });
    recording.event(schema::SWAP_SPACE, None, 0, |e, _| {
        e.ticks(now).long(memory.swap_total as i64).long(memory.swap_free as i64);
    });
}

fn write_container_configuration(
    recording: &mut Recording,
    c: &Configuration,
    host: Option<Memory>,
    now_ns: u64,
) {
    let now = recording.ticks(now_ns);
    let host = host.unwrap_or_default();
    recording.event(schema::CONTAINER_CONFIGURATION, None, 120, |e, _| {
        e.ticks(now).string(c.kind).long(c.period_us).long(c.quota_us).long(c.shares).long(c.cpus);
        e.long(c.memory_soft).long(c.memory).long(c.memory_and_swap);
        e.long(host.total as i64).long(host.swap_total as i64);
    });
}

fn container(usage: Usage, recording: &mut Recording, now_ns: u64) {
    let now = recording.ticks(now_ns);
    let mut three = |id, [a, b, c]: [i64; 3]| {
        // This control group does not count this value.
        if a != cgroup::UNSUPPORTED {
            recording.event(id, None, 32, |e, _| {
                e.ticks(now).long(a).long(b).long(c);
            });
        }
    };
    three(schema::CONTAINER_CPU_USAGE, usage.cpu_ns);
    three(schema::CONTAINER_CPU_THROTTLING, usage.throttled);
    three(schema::CONTAINER_MEMORY_USAGE, usage.memory);
    let [requests, bytes] = usage.io;
    if requests != cgroup::UNSUPPORTED {
        recording.event(schema::CONTAINER_IO_USAGE, None, 16, |e, _| {
            e.ticks(now).long(requests).long(bytes);
        });
    }
}

/// Writes the load of threads that used CPU time.
fn threads(processes: &mut [Process], recordings: &mut RecordingSlots, now_ns: u64) {
    let cpus = system::processors() as f64;
    let mut left = MAX_THREADS;
    for process in processes.iter_mut().filter(|p| !p.state.over && p.file.trusted_pid()) {
        let Some(recording) = recordings.get_mut(process.state.recording) else { continue };
        let Process { file, state, .. } = process;
        for thread in state.threads.list.iter_mut().filter(|t| t.end_ns.is_none()) {
            if left == 0 || recording.full() {
                return;
            }
            let Some(since) = thread.load_due() else { continue };
            left -= 1;
            let Some(used) = system::thread(file.pid, thread.tid) else { continue };
            let (old, at_ns) = since.unwrap_or(([0; 2], thread.start_ns));
            thread.load_read(used, now_ns);
            let seconds = now_ns.saturating_sub(at_ns) as f64 / 1e9 * cpus;
            // The first reading of a thread that is older than the recording has no interval to compute a
            // load from.
            if seconds <= 0.0 || since.is_none() && thread.armed_ns() > 100_000_000 {
                continue;
            }
            let share = |i: usize| {
                let ticks = used[i].saturating_sub(old[i]) as f64;
                (ticks / system::ticks_per_second() / seconds).clamp(0.0, 1.0) as f32
            };
            let (user, system) = (share(0), share(1));
            let now = recording.ticks(now_ns);
            let constant = thread.constant(file, state.group, recording);
            recording.event(schema::THREAD_CPU_LOAD, Some(constant), 0, |e, key| {
                e.ticks(now).key(key).float(user).float(system);
            });
        }
    }
}
