//! Identifies kernel frames that are irrelevant to why a thread waits or which code woke it.

use std::collections::HashMap;

use crate::{names::images::Images, names::stack_table::StackTable};

/// The role of a kernel function in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Plain,
    /// The tracepoint itself, or another tool attached to it.
    Tracer,
    /// The entry of an interrupt. The frames towards the root were interrupted.
    Entry,
}

/// Limits of remembered addresses, and of bytes of stacks.
const MOST: usize = 1 << 16;
const MOST_BYTES: usize = 4 << 20;

/// Cached roles of addresses, and results for whole stacks.
#[derive(Default)]
pub struct Parts {
    addresses: HashMap<u64, Part>,
    stacks: StackTable<u64>,
    parts: Vec<StackParts>,
}

/// The irrelevant parts of a waker's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackParts {
    /// Number of tracer frames at the leaf.
    pub tracer: usize,
    /// Number of frames up to and including the entry of an interrupt, from the leaf; `None` without
    /// interrupt.
    pub entry: Option<usize>,
}

impl Parts {
    /// Examines a kernel stack, leaf first. Returns `None` while the kernel's symbols are being read, unless
    /// `anyway` is set.
    pub fn look(&mut self, stack: &[u64], anyway: bool, images: &mut Images) -> Option<StackParts> {
        if self.addresses.len() > MOST || self.stacks.bytes() > MOST_BYTES {
            *self = Parts::default();
        }
        if let Some(seen) = self.stacks.find(stack).and_then(|at| self.parts.get(at as usize)) {
            return Some(*seen);
        }
        let mut named = true;
        let mut seen = StackParts { tracer: 0, entry: None };
        for (at, &address) in stack.iter().enumerate() {
            let part = match self.addresses.get(&address) {
                Some(part) => *part,
                None => match images.kernel.function(address.wrapping_sub(1)) {
                    Some(function) => *self.addresses.entry(address).or_insert(part(&function.name)),
                    None if anyway => {
                        named = false;
                        Part::Plain
                    }
                    None => return None,
                },
            };
            match part {
                Part::Tracer if seen.tracer == at => seen.tracer += 1,
                Part::Entry if seen.entry.is_none() => seen.entry = Some(at + 1),
                _ => {}
            }
        }
        if named {
            self.stacks.intern(stack);
            self.parts.push(seen);
        }
        Some(seen)
    }
}

fn part(name: &str) -> Part {
    const TRACERS: [&str; 6] = [
        "__traceiter_",
        "perf_trace_",
        "__bpf_trace_",
        "bpf_trace_run",
        "bpf_prog_",
        "trace_event_raw_event_",
    ];
    const ENTRIES: [&str; 3] = ["asm_sysvec_", "el0t_64_irq", "el1h_64_irq"];
    const ENTRY: [&str; 4] =
        ["asm_common_interrupt", "common_interrupt", "apic_timer_interrupt", "ret_from_intr"];
    if TRACERS.iter().any(|start| name.starts_with(start)) {
        Part::Tracer
    } else if ENTRIES.iter().any(|start| name.starts_with(start)) || ENTRY.contains(&name) {
        Part::Entry
    } else {
        Part::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_functions_are_classified_by_name() {
        let table = [
            ("__traceiter_sched_switch", Part::Tracer),
            ("bpf_prog_0123_x", Part::Tracer),
            ("asm_sysvec_apic_timer_interrupt", Part::Entry),
            ("asm_common_interrupt", Part::Entry),
            ("el0t_64_irq_handler", Part::Entry),
            ("schedule", Part::Plain),
            ("sysvec_apic_timer_interrupt", Part::Plain),
        ];
        for (name, expected) in table {
            assert_eq!(part(name), expected, "{name}");
        }
    }
}
