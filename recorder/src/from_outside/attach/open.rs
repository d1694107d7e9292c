//! Starts to record a running process, or the program that is started next.

use std::collections::{HashMap, HashSet};

use flightline_in_signal::layout::loss;

use super::{
    NamedEvent, Watch,
    event_set::EventSet,
    refused,
    target::{Kinds, Target},
};
use crate::from_outside::outputs::Outputs;
use crate::os::process_info::{ProcessInfo, cpu_ns, thread_name};
use crate::perf_events::machine::list_threads;
use crate::{error::Error, os::clock::monotonic_ns, settings::Settings};

/// How often to list a process's threads until no new one appears.
const MAX_LISTS: usize = 50;

impl Watch {
    /// Returns an empty set. `named`: the perf events that are recorded in addition to CPU time.
    pub fn new(settings: &Settings, named: Vec<NamedEvent>) -> Watch {
        Watch {
            kinds: Kinds { cpu: settings.cpu.enabled, wall_ns: settings.wall_ns() },
            events: EventSet::new(settings, named),
            targets: Vec::new(),
            rest_in: None,
            themselves: HashMap::new(),
            positions: Vec::new(),
            written_libraries: HashSet::new(),
            depth: settings.stacks.depth as usize,
            threads: settings.processes.threads.clone(),
            stopped: false,
            paused: false,
            overflowed: false,
        }
    }

    /// Starts to record a running process. Its earlier CPU time is ignored, or counted as lost if it is
    /// `ours` from the start.
    pub fn attach(
        &mut self,
        outputs: &mut dyn Outputs,
        pid: u32,
        ours: bool,
        now_ns: u64,
    ) -> Result<(), Error> {
        let about = ProcessInfo::read(pid, now_ns).ok_or_else(|| refused::gone(pid))?;
        let mark = self.events.mark();
        let (id, recording) = outputs.recording_for(pid)?;
        let mut target = Target::new(about, self.kinds, id, recording);
        let mut known = HashSet::new();
        let period_ns = self.events.sampling.period_ns;
        // Threads that start during this loop inherit the events of their parent, or appear in the next list.
        for _ in 0..MAX_LISTS {
            let new: Vec<u32> = list_threads(pid).into_iter().filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match self.events.open(tid, false) {
                    Ok(()) => {}
                    // It has ended in the meantime.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(e) => {
                        self.events.truncate(mark);
                        return Err(refused::explain(pid, &e));
                    }
                }
                let name = thread_name(pid, tid).unwrap_or_default();
                let base_ns = cpu_ns(pid, tid).unwrap_or(0);
                target.begin(tid, name, if ours { 0 } else { base_ns }, now_ns, period_ns);
                if ours {
                    target.thread(tid, now_ns, period_ns).thread.ledger.lose(loss::UNARMED, 0, base_ns);
                }
            }
        }
        // All threads have ended in the meantime, or the process is a zombie.
        if target.threads.is_empty() {
            return Err(refused::gone(pid));
        }
        // The kernel may have removed earlier events in exec. Their last records (exec, end) are still in the
        // rings.
        target.since_ns = monotonic_ns();
        self.events.enable(mark).map_err(|e| refused::explain(pid, &e))?;
        target.read_maps(outputs.images());
        self.themselves.remove(&pid);
        self.add(outputs, target, now_ns);
        Ok(())
    }

    /// Records the program that the calling thread starts next, from its first instruction on. The events of
    /// this process remain disabled, because it does not exec.
    pub fn attach_child(&mut self) -> Result<(), Error> {
        self.events.open(0, true).map_err(|e| refused::explain(std::process::id(), &e))
    }
}
