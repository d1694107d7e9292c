//! Records slow system calls, block I/O requests and memory growth, with the tracepoints of system calls and
//! block devices.
//!
//! ```text
//! points.rs        the tracepoints' records
//! calls.rs         the recorded system calls
//! descriptors.rs   the files behind descriptors; sockets.rs: the peers of sockets
//! blocks.rs        requests to disks, from queue to completion
//! written_calls.rs completed calls, on their way into the recording
//! ```
//! A call has a record of its start and one of its end. The stack comes with the end, and has only user
//! frames, because the kernel's frames there are those of the tracepoint. Calls that have not ended are not
//! recorded.

use std::{collections::HashMap, sync::Arc};

use flightline_in_signal::payload::io::{ACCEPT, CONNECT, END, READ};

use super::{OffCpu, ledger::Cause};
use crate::{from_outside::outputs::Outputs, perf_events::record::Traced, settings};

mod blocks;
mod calls;
mod descriptors;
mod points;
mod sockets;
mod written_calls;

use blocks::Requests;
pub use calls::CallFilter;
use calls::{Does, Grows};
use descriptors::{Descriptor, Descriptors};
use points::Enter;
pub use points::{BlockPoints, CallPoints};
use written_calls::IoDetails;
pub use written_calls::IoEvent;

/// The whole range of descriptors.
const ALL: (i32, i32) = (0, i32::MAX);
const PAGE: u64 = 4096;

/// A call in progress.
#[derive(Debug)]
struct Entered {
    time_ns: u64,
    pid: u32,
    tid: u32,
    enter: Enter,
    does: Does,
    /// The target of its descriptor at that time.
    about: Option<Arc<Descriptor>>,
}

/// The state between records.
#[derive(Default)]
pub struct Io {
    /// By thread: its call in progress; `None` if it is in no call.
    calls: HashMap<u32, Option<Entered>>,
    descriptors: Descriptors,
    /// Heap ends of processes.
    heaps: HashMap<u32, u64>,
    requests: Requests,
    /// Completed events that wait for symbols.
    pending: Vec<IoEvent>,
    pending_bytes: usize,
    /// Time up to which records have been processed, CLOCK_MONOTONIC ns.
    pub seen_ns: u64,
}

/// Returns the calls to record.
pub fn call_filter(settings: &settings::OffCpuSettings) -> Option<CallFilter> {
    let filter = CallFilter { moves: settings.calls.is_some(), grows: settings.growth };
    (filter.moves || filter.grows).then_some(filter)
}

impl Io {
    /// Starts to record a process.
    pub fn attach(&mut self, pid: u32) {
        if let Some(end) = heap_end(pid) {
            self.heaps.insert(pid, end);
        }
    }

    /// Adds a process that was forked.
    pub fn forked(&mut self, parent: u32, pid: u32) {
        if let Some(end) = self.heaps.get(&parent) {
            self.heaps.insert(pid, *end);
        }
    }

    /// Notes an exec, which closes most descriptors and replaces the heap.
    pub fn executed(&mut self, pid: u32, time_ns: u64) {
        self.descriptors.closed_all(Some(pid), ALL, time_ns);
        self.heaps.remove(&pid);
    }

    /// Forgets a process that has ended.
    pub fn forget(&mut self, pid: u32) {
        self.descriptors.closed_all(Some(pid), ALL, u64::MAX);
        self.heaps.remove(&pid);
    }

    /// Returns the number of events that wait for symbols.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Returns the threads and processes that they reference.
    pub fn needed(&self) -> impl Iterator<Item = u32> {
        self.pending.iter().flat_map(|event| [event.pid, event.tid])
    }
}

/// Returns the end of a process's heap, if it has one.
fn heap_end(pid: u32) -> Option<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with("[heap]"))?;
    u64::from_str_radix(line.split_once('-')?.1.split(' ').next()?, 16).ok()
}

impl OffCpu {
    /// Returns the thread's name if its calls are recorded.
    fn records_io(&mut self, sample: &Traced<'_>) -> Option<Arc<str>> {
        let Traced { pid, tid, time_ns, .. } = *sample;
        if !self.takes(pid, time_ns) {
            return None;
        }
        let name = self.tasks.seen(pid, tid, None);
        let out = self.options.threads.as_ref().is_some_and(|threads| !threads.holds(tid, &name));
        (!out).then_some(name)
    }

    /// Handles the start of a call.
    pub(super) fn enters(&mut self, outputs: &mut dyn Outputs, sample: &Traced<'_>) {
        let Some(points) = self.kernel.points.as_ref().and_then(|points| points.calls.as_ref()) else {
            return;
        };
        let Some(enter) = points.entered(sample.raw) else { return };
        let (pid, tid, time_ns) = (sample.pid, sample.tid, sample.time_ns);
        let Some(does) = calls::effect(enter.call) else { return };
        if self.records_io(sample).is_none() {
            return;
        }
        let number = |arg: usize| enter.args.get(arg).map_or(-1, |value| *value as i32);
        let descriptors = &mut self.io.descriptors;
        let mut about = None;
        match does {
            Does::Closes(arg) => return descriptors.closed(pid, number(arg), time_ns),
            Does::ClosesRange => {
                let [first, last] = [0, 1].map(|arg| i32::try_from(enter.args[arg]).unwrap_or(i32::MAX));
                return descriptors.closed_all(Some(pid), (first, last), time_ns);
            }
            // The descriptor is known only at the end of the call.
            Does::Moves(CONNECT | ACCEPT, _) => {}
            Does::Moves(_, arg) => about = Some(descriptors.find(pid, number(arg), time_ns)),
            Does::Grows(_) => {}
        }
        let entered = Entered { time_ns, pid, tid, enter, does, about };
        let before = self.io.calls.insert(tid, Some(entered)).flatten();
        if let Some(before) = before {
            self.lose(outputs, before.pid, Cause::CallUnseen, time_ns.saturating_sub(before.time_ns));
        }
    }

    /// Handles the end of a call.
    pub(super) fn leaves(&mut self, outputs: &mut dyn Outputs, sample: &Traced<'_>, bytes: &[u8]) {
        let Some(points) = self.kernel.points.as_ref().and_then(|points| points.calls.as_ref()) else {
            return;
        };
        let Some(exit) = points.left(sample.raw) else { return };
        let Some(name) = self.records_io(sample) else { return };
        self.guard.took();
        let (pid, tid, time_ns) = (sample.pid, sample.tid, sample.time_ns);
        let entered = match self.io.calls.insert(tid, None) {
            Some(Some(entered)) if entered.enter.call == exit.call => entered,
            // The record of its start is missing.
            Some(_) => return self.lose(outputs, pid, Cause::CallUnseen, 0),
            // It started before the recording.
            None => return,
        };
        let took_ns = time_ns.saturating_sub(entered.time_ns);
        let (operation, arg) = match entered.does {
            Does::Moves(operation, arg) => (operation, arg),
            Does::Grows(grows) => return self.grows(outputs, &entered, grows, exit.result, name, bytes),
            Does::Closes(_) | Does::ClosesRange => return,
        };
        if let (ACCEPT, Ok(accepted @ 0..)) = (operation, i32::try_from(exit.result)) {
            self.io.descriptors.accept(pid, accepted);
        }
        if took_ns < self.options.selected.call_ns() {
            if let Some(id) = self.output(outputs, pid) {
                self.ledger.short("syscall-io", id, took_ns);
            }
            return;
        }
        let fd = entered.enter.args.get(arg).map_or(-1, |value| *value as i32);
        let socket = calls::is_socket_call(exit.call) || self.io.descriptors.is_accepted(pid, fd);
        let about = match (operation, exit.result) {
            (CONNECT, _) => Some(self.io.descriptors.connected(pid, fd, time_ns)),
            (ACCEPT, fd @ 0..) => {
                Some(self.io.descriptors.find(pid, i32::try_from(fd).unwrap_or(-1), time_ns))
            }
            _ => entered.about,
        };
        // A read of 0 bytes is the end of the stream, unless 0 bytes were requested. For `recvmsg`, this
        // argument contains flags.
        let asked = entered.enter.args[2] > 0 || entered.enter.call == libc::SYS_recvmsg;
        let ended = operation == READ && exit.result == 0 && asked;
        let operation = if ended { READ | END } else { operation };
        let what = IoDetails::Call { operation, fd, socket, result: exit.result, about };
        let stack = self.keep(outputs, pid, bytes, false);
        self.write_call_event(
            outputs,
            IoEvent::new((pid, tid), name, stack, (entered.time_ns, took_ns), what),
        );
    }

    fn grows(
        &mut self,
        outputs: &mut dyn Outputs,
        entered: &Entered,
        grows: Grows,
        result: i64,
        name: Arc<str>,
        bytes: &[u8],
    ) {
        let (pid, tid, args) = (entered.pid, entered.tid, entered.enter.args);
        // Error codes are the last page of the address space.
        let address = match u64::try_from(result) {
            Ok(address) => address,
            Err(_) if result < -4095 => result as u64,
            Err(_) => return,
        };
        let pages = |bytes: u64| bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes);
        let (call, more) = match grows {
            Grows::Brk => {
                let before = self.io.heaps.insert(pid, address);
                ("brk", before.map_or(0, |before| address.saturating_sub(before)))
            }
            Grows::Mmap if args[3] & libc::MAP_ANONYMOUS as u64 != 0 => ("mmap", pages(args[1])),
            Grows::Mmap => ("mmap of a file", pages(args[1])),
            Grows::Mremap => ("mremap", pages(args[2]).saturating_sub(pages(args[1]))),
        };
        if more == 0 {
            return;
        }
        let stack = self.keep(outputs, pid, bytes, false);
        let what = IoDetails::Growth { call, bytes: more, address };
        self.write_call_event(outputs, IoEvent::new((pid, tid), name, stack, (entered.time_ns, 0), what));
    }

    /// Handles the end of a thread.
    pub(super) fn io_ended(&mut self, outputs: &mut dyn Outputs, tid: u32, time_ns: u64) {
        if let Some(Some(entered)) = self.io.calls.remove(&tid) {
            self.lose(outputs, entered.pid, Cause::CallUnseen, time_ns.saturating_sub(entered.time_ns));
        }
    }

    /// Handles lost records before `time_ns`: all calls and requests in progress are counted as lost.
    pub(super) fn io_missing(&mut self, outputs: &mut dyn Outputs, time_ns: u64) {
        self.io_broken(outputs, Cause::CallDoubtful, time_ns, 0);
    }

    /// Handles a gap in the recording that starts at `since_ns`.
    pub(super) fn io_blind(&mut self, outputs: &mut dyn Outputs, cause: Cause, since_ns: u64) {
        self.io_broken(outputs, cause, self.now_ns, since_ns);
        // Calls that are in progress after the gap have no recorded start.
        self.io.calls.clear();
    }

    /// Handles the end of the recording at `since_ns`. Calls in progress have no end yet. Requests may have
    /// completed: some virtual machines report nothing while a processor is idle.
    pub(super) fn io_end(&mut self, outputs: &mut dyn Outputs, since_ns: u64) {
        self.io.descriptors.missed(since_ns);
        for (pid, began_ns) in self.io.requests.take_all() {
            self.lose(outputs, pid, Cause::CallUnseen, since_ns.saturating_sub(began_ns));
        }
    }

    fn io_broken(&mut self, outputs: &mut dyn Outputs, cause: Cause, time_ns: u64, queried_ns: u64) {
        let calls = self.io.calls.values_mut().filter_map(Option::take);
        let mut broken: Vec<(u32, u64)> = calls.map(|entered| (entered.pid, entered.time_ns)).collect();
        broken.extend(self.io.requests.take_all());
        for (pid, began_ns) in broken {
            self.lose(outputs, pid, cause, time_ns.saturating_sub(began_ns));
        }
        self.io.descriptors.missed(queried_ns);
        self.io.heaps.clear();
    }
}
