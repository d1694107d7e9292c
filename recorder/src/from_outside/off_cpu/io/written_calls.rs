//! Calls, requests and growth that are over, on their way into the recording: stacks are walked and named, and what descriptors stand
//! for has to settle.

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

/// What may wait, and bytes of its stacks.
const WAITING: [usize; 2] = [200_000, 64 << 20];

/// One of them.
pub struct IoEvent {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What it was called.
    name: Arc<str>,
    stack: SampledStack,
    /// CLOCK_MONOTONIC ns of its beginning.
    pub start_ns: u64,
    /// How long it was.
    pub took_ns: u64,
    /// Since when it waits here, CLOCK_MONOTONIC ns.
    since_ns: u64,
    /// What it was.
    pub what: IoDetails,
}

/// What it was.
pub enum IoDetails {
    /// A system call.
    Call {
        /// One of [`io`]'s operations, and whether it was the end.
        operation: u64,
        /// The descriptor's number.
        fd: i32,
        /// It is a socket's, whatever else is known of it.
        socket: bool,
        /// Bytes moved, or the negative errno.
        result: i64,
        /// What the number stood for.
        about: Option<Arc<Descriptor>>,
    },
    /// A request to a device.
    Block {
        /// Which.
        device: Arc<str>,
        /// In words.
        operation: &'static str,
        /// As blktrace writes them.
        flags: Arc<str>,
        /// The first one.
        sector: u64,
        /// How many.
        bytes: u64,
        /// Errno, 0 if it went well.
        error: i32,
    },
    /// More address space.
    Growth {
        /// By which system call.
        call: &'static str,
        /// How much.
        bytes: u64,
        /// What the call gave back.
        address: u64,
    },
}

impl IoEvent {
    /// Of a process and thread, called `name`; begun and long, ns.
    pub fn new(
        (pid, tid): (u32, u32),
        name: Arc<str>,
        stack: SampledStack,
        (start_ns, took_ns): (u64, u64),
        what: IoDetails,
    ) -> IoEvent {
        IoEvent { pid, tid, name, stack, start_ns, took_ns, since_ns: 0, what }
    }

    /// Whether what it was about is decided when records up to `seen_ns` are known.
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
    /// One is over.
    pub(super) fn write_call_event(&mut self, outputs: &mut dyn Outputs, mut event: IoEvent) {
        self.describe_unknown_process(outputs, event.pid);
        event.since_ns = self.now_ns;
        let full = self.io.pending.len() >= WAITING[0] || self.io.pending_bytes >= WAITING[1];
        self.write_or_wait(outputs, event, full);
    }

    /// Tries again what waits; `anyway`: with what is known.
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

    /// Writes one; gives it back if it has to wait.
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
