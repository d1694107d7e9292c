//! Completed calls, requests and growths on their way into the recording. Their stacks are walked and
//! symbolized, and the targets of their descriptors must be certain.

use std::sync::Arc;

use flightline_in_signal::payload::io;
use jfr_format::schema::{BLOCK_IO, MEMORY_GROWTH};

use super::descriptors::{Descriptor, Target};
use crate::{
    from_outside::off_cpu::OffCpu,
    from_outside::off_cpu::ledger::Cause,
    from_outside::off_cpu::pending_stacks::SampledStack,
    from_outside::outputs::Outputs,
    recording::Recording,
    recording::events::io::{About, Call, Peer, write_call},
};

/// Limits of waiting events, and of the bytes of their stacks.
const WAITING: [usize; 2] = [200_000, 64 << 20];

/// A completed call, request or growth.
pub struct IoEvent {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The thread's name.
    name: Arc<str>,
    stack: SampledStack,
    /// CLOCK_MONOTONIC ns of its start.
    pub start_ns: u64,
    /// Its duration, ns.
    pub took_ns: u64,
    /// Since when it has been waiting here, CLOCK_MONOTONIC ns.
    since_ns: u64,
    /// Its details.
    pub what: IoDetails,
}

/// The details of an event.
pub enum IoDetails {
    /// A system call.
    Call {
        /// One of [`io`]'s operations, and whether it reached the end of the stream.
        operation: u64,
        /// The descriptor's number.
        fd: i32,
        /// It works on a socket, even if nothing else is known about it.
        socket: bool,
        /// Bytes moved, or the negative errno.
        result: i64,
        /// The target of the descriptor.
        about: Option<Arc<Descriptor>>,
    },
    /// A request to a block device.
    Block {
        /// The device's name.
        device: Arc<str>,
        /// The operation in words.
        operation: &'static str,
        /// The flags in blktrace's notation.
        flags: Arc<str>,
        /// The first sector.
        sector: u64,
        /// The size.
        bytes: u64,
        /// The errno, or 0.
        error: i32,
    },
    /// Growth of the address space.
    Growth {
        /// The system call.
        call: &'static str,
        /// The size.
        bytes: u64,
        /// The return value of the call.
        address: u64,
    },
}

impl IoEvent {
    /// Returns an event of a process and thread `name`, with its start and duration in ns.
    pub fn new(
        (pid, tid): (u32, u32),
        name: Arc<str>,
        stack: SampledStack,
        (start_ns, took_ns): (u64, u64),
        what: IoDetails,
    ) -> IoEvent {
        IoEvent { pid, tid, name, stack, start_ns, took_ns, since_ns: 0, what }
    }

    /// Returns true if records up to `seen_ns` are enough to decide the target of its descriptor.
    fn settled(&self, seen_ns: u64) -> bool {
        match &self.what {
            IoDetails::Call { about: Some(about), .. } => about.settled(seen_ns),
            _ => true,
        }
    }

    fn write(
        &self,
        recording: &mut Recording,
        thread: usize,
        trace: Option<crate::names::intern::TraceIndex>,
    ) {
        let (start, took) = recording.interval(self.start_ns, self.took_ns);
        match &self.what {
            IoDetails::Call { operation, fd, socket, result, about } => {
                let target = about.as_ref().and_then(|about| about.target(self.start_ns));
                let nobody = Peer::default();
                let unknown = format!("[fd {fd}]");
                let (about, stream) = match (target, *operation) {
                    (Some(Target::Socket(socket)), _) => (About::Peer(&socket.peer), socket.stream),
                    (_, io::CONNECT | io::ACCEPT) => (About::Peer(&nobody), false),
                    (None, _) if *socket => (About::Peer(&nobody), false),
                    (Some(Target::File(path)), _) => (About::Path(path), false),
                    (None, _) => (About::Path(&unknown), false),
                };
                let operation = if stream { operation | io::STREAM } else { *operation };
                let (start_ns, took_ns) = (self.start_ns, self.took_ns);
                let call = Call { start_ns, took_ns, operation, result: *result, about };
                write_call(recording, thread, trace, &call);
            }
            IoDetails::Block { device, operation, flags, sector, bytes, error } => {
                let text = device.len() + operation.len() + flags.len();
                recording.event_with_stack(BLOCK_IO, thread, trace, text, |e, thread, stack| {
                    e.ticks(start).ticks(took).key(thread).key(stack);
                    e.string(device).string(operation).string(flags);
                    e.long(*sector as i64).long(*bytes as i64).int(*error);
                });
            }
            IoDetails::Growth { call, bytes, address } => {
                recording.event_with_stack(MEMORY_GROWTH, thread, trace, call.len(), |e, thread, stack| {
                    e.ticks(start).key(thread).key(stack);
                    e.string(call).long(*bytes as i64).long(*address as i64);
                });
            }
        }
    }
}

impl OffCpu {
    /// Adds a completed event.
    pub(super) fn write_call_event(&mut self, outputs: &mut dyn Outputs, mut event: IoEvent) {
        self.describe_unknown_process(outputs, event.pid);
        event.since_ns = self.now_ns;
        let full = self.io.pending.len() >= WAITING[0] || self.io.pending_bytes >= WAITING[1];
        self.write_or_wait(outputs, event, full);
    }

    /// Retries waiting events. `anyway`: writes them with the symbols available.
    pub(in crate::from_outside::off_cpu) fn resolve_io(&mut self, outputs: &mut dyn Outputs, anyway: bool) {
        self.io.pending_bytes = 0;
        for event in std::mem::take(&mut self.io.pending) {
            self.write_or_wait(outputs, event, anyway);
        }
    }

    fn write_or_wait(&mut self, outputs: &mut dyn Outputs, event: IoEvent, anyway: bool) {
        if let Some(event) = self.write_io(outputs, event, anyway) {
            self.io.pending_bytes += event.stack.bytes();
            self.io.pending.push(event);
        }
    }

    /// Writes an event; returns it if it has to wait.
    fn write_io(&mut self, outputs: &mut dyn Outputs, mut event: IoEvent, anyway: bool) -> Option<IoEvent> {
        let (pid, tid) = (event.pid, event.tid);
        if !anyway && (!event.settled(self.io.seen_ns) || self.may_join(outputs, pid, event.since_ns)) {
            return Some(event);
        }
        let id = self.output(outputs, pid)?;
        if outputs.parts(id)?.0.full() {
            self.ledger.lose(id, Cause::CallOutputFull, event.took_ns);
            return None;
        }
        if !self.walk(outputs, pid, &mut event.stack, false, anyway) {
            return Some(event);
        }
        let Ok(trace) = self.stack_in(outputs, id, pid, event.stack.stack.as_ref(), anyway) else {
            return Some(event);
        };
        let thread = self.constant(outputs, (pid, tid), &event.name, id)?;
        event.write(outputs.parts(id)?.0, thread, trace);
        self.ledger.written_io += 1;
        None
    }
}
