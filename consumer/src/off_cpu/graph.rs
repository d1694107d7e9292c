//! Composes the stacks of each graph.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::interval::Waker;
use super::kind::Doing;
use super::{Graph, Options};
use crate::fold::TRUNCATED;
use crate::model::{Frame, FrameKind, Id, Model, Stack, Thread, Weight};

/// Separates a stack from its waker, and wakers from each other.
const WOKEN: &str = "--";
/// Separates the user part of a stack from the kernel part.
const BOUNDARY: &str = "-";
/// Represents the thread that an interrupt interrupted.
const INTERRUPT: &str = "[irq]";
/// Represents an unknown waker.
const UNKNOWN: &str = "[unknown waker]";

/// Functions of the tracer at the leaf of a kernel stack, which are there only because of the
/// measurement.
const TRACER: &[&str] = &[
    "__traceiter_",
    "perf_trace_",
    "trace_event_raw_event_",
    "perf_callchain",
    "get_perf_callchain",
    "perf_prepare_sample",
    "perf_event_output",
    "__perf_event_overflow",
    "perf_tp_event",
    "perf_swevent",
    "perf_trace_run",
    "bpf_trace_run",
    "bpf_prog_",
    "bpf_get_stackid",
];

/// Kernel entries other than system calls, as named on x86-64, arm64 and riscv.
const ENTRIES: &[&str] = &[
    "asm_sysvec_",
    "asm_common_interrupt",
    "asm_exc_",
    "common_interrupt",
    "ret_from_intr",
    "el0",
    "el1",
    "ret_from_exception",
];

/// Composes stacks.
pub(super) struct Composer<'o> {
    options: &'o Options,
    pub(super) model: Model,
    /// By stack: its user and kernel frames, leaf first, and whether it is truncated.
    parts: HashMap<Id<Stack>, Parts, KeyHash>,
}

#[derive(Clone, Debug, Default)]
struct Parts {
    user: Box<[Id<Frame>]>,
    kernel: Box<[Id<Frame>]>,
    truncated: bool,
}

impl<'o> Composer<'o> {
    pub(super) fn new(options: &'o Options, model: Model) -> Self {
        Self { options, model, parts: HashMap::default() }
    }

    /// Composes the stack for an interval of `thread` with these wakers. If `span` is named, it is the
    /// first frame.
    pub(super) fn stack(
        &mut self,
        span: Option<&Arc<str>>,
        thread: Id<Thread>,
        stack: Option<Id<Stack>>,
        links: &[Waker],
        doing: Option<Doing>,
    ) -> Id<Stack> {
        let at_leaves = self.options.at_leaves;
        let doing = doing.map(|doing| self.marker(doing.label()));
        // Root first.
        let mut frames: Vec<Id<Frame>> = span.map(|name| self.marker(name)).into_iter().collect();
        let below = frames.len();
        let mut truncated = false;
        if self.options.graph == Graph::Wakeup {
            let link = links.first().copied().unwrap_or(Waker::Unknown);
            truncated = self.waker(link, false, &mut frames);
            frames.extend(self.name(thread));
        } else {
            frames.extend(self.name(thread));
            frames.extend(doing.filter(|_| !at_leaves));
            if let Some(stack) = stack {
                let parts = self.parts(stack, false);
                truncated = parts.truncated;
                self.upward(&parts, &mut frames);
            }
            frames.extend(doing.filter(|_| at_leaves));
            for &link in links {
                frames.push(self.marker(WOKEN));
                self.waker(link, true, &mut frames);
            }
        }
        // As in bcc, whose lines begin with `comm`, the marker follows the first thread name. If the
        // caller adds the names, it adds the marker too.
        if truncated && self.options.names {
            frames.insert(below + 1, self.marker(TRUNCATED));
            truncated = false;
        }
        frames.reverse();
        self.model.stacks.intern(Stack { frames: frames.into(), truncated })
    }

    /// Adds a waker's stack and name: reversed, so that the waking function is next to the sleeping one,
    /// or with the name first. Returns whether the stack is truncated.
    fn waker(&mut self, link: Waker, reversed: bool, frames: &mut Vec<Id<Frame>>) -> bool {
        let (name, stack) = match link {
            Waker::Unknown => (self.marker(UNKNOWN), None),
            Waker::Interrupt(stack) => (self.marker(INTERRUPT), stack),
            Waker::Thread(thread, stack) => {
                let waker = self.model.threads.get(thread);
                // If threads are distinguished, so are wakers.
                let name = if self.options.names { waker.name().to_owned() } else { waker.label() };
                (self.marker(&name), stack)
            }
        };
        let interrupt = matches!(link, Waker::Interrupt(_));
        let parts = stack.map(|stack| self.parts(stack, interrupt)).unwrap_or_default();
        if !reversed {
            frames.push(name);
            self.upward(&parts, frames);
            return parts.truncated && !interrupt;
        }
        let mut upward = Vec::new();
        self.upward(&parts, &mut upward);
        frames.extend(upward.into_iter().rev());
        frames.push(name);
        false
    }

    /// Adds the frames of a stack, root first.
    fn upward(&mut self, parts: &Parts, frames: &mut Vec<Id<Frame>>) {
        let Options { user_only, kernel_only, delimited, .. } = *self.options;
        let user: &[Id<Frame>] = if kernel_only { &[] } else { &parts.user };
        let kernel: &[Id<Frame>] = if user_only { &[] } else { &parts.kernel };
        frames.extend(user.iter().rev());
        if delimited && !user.is_empty() && !kernel.is_empty() {
            frames.push(self.marker(BOUNDARY));
        }
        frames.extend(kernel.iter().rev());
    }

    fn parts(&mut self, id: Id<Stack>, interrupt: bool) -> Parts {
        let parts = self.parts.entry(id).or_insert_with(|| split(&self.model, self.model.stacks.get(id)));
        if !interrupt {
            return parts.clone();
        }
        // The interrupted code is unrelated to the wake-up.
        let entry = parts.kernel.iter().position(|&frame| {
            let name = &self.model.frames.get(frame).function;
            ENTRIES.iter().any(|entry| name.starts_with(entry))
        });
        let own = entry.map_or(parts.kernel.len(), |at| at + 1);
        Parts { user: Box::default(), kernel: parts.kernel[..own].into(), truncated: false }
    }

    /// The first or last frame of a thread's stacks.
    fn name(&mut self, thread: Id<Thread>) -> Option<Id<Frame>> {
        let name = self.options.names.then(|| self.model.threads.get(thread).name().to_owned());
        name.map(|name| self.marker(&name))
    }

    fn marker(&mut self, text: &str) -> Id<Frame> {
        let frame =
            Frame { function: text.into(), class: "".into(), kind: FrameKind::Marker, line: 0, place: None };
        self.model.frames.intern(frame)
    }
}

/// Splits a stack; the kernel's frames are at the leaf.
fn split(model: &Model, stack: &Stack) -> Parts {
    let is_kernel = |&frame: &Id<Frame>| model.frames.get(frame).kind == FrameKind::Kernel;
    let kernel = stack.frames.iter().take_while(|frame| is_kernel(frame)).count();
    let (kernel, user) = stack.frames.split_at(kernel);
    let looks = |&&frame: &&Id<Frame>| {
        let name = &model.frames.get(frame).function;
        TRACER.iter().any(|tracer| name.starts_with(tracer))
    };
    let tracer = kernel.iter().take_while(looks).count();
    Parts { user: user.into(), kernel: kernel[tracer..].into(), truncated: stack.truncated }
}

/// Divides the time of threads with the same name by their number.
pub(super) fn share<'w>(
    sums: impl Iterator<Item = (Id<Thread>, &'w mut Weight)>,
    threads: &[Id<Thread>],
    model: &Model,
) {
    let key = |thread: Id<Thread>| {
        let thread = model.threads.get(thread);
        (thread.group.clone(), thread.name().to_owned())
    };
    let mut count: HashMap<_, u64> = HashMap::new();
    threads.iter().for_each(|&thread| *count.entry(key(thread)).or_default() += 1);
    for (thread, weight) in sums {
        let threads = count.get(&key(thread)).copied().unwrap_or(1);
        weight.value = (weight.value + threads / 2) / threads;
    }
}
