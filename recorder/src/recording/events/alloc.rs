//! Allocations, frees of sampled allocations, and allocations that were never freed.
//!
//! `profiler.Malloc` has the fields of async-profiler, whose readers do not support weights: its size is the
//! bytes that the sample represents, so that sums are correct in every reader. `flightline.Allocation` has
//! the size of the allocation itself.

use std::collections::HashMap;

use flightline_in_signal::layout::{alloc_flags, alloc_function, event_kind};
use jfr_format::schema::{ALLOCATION, FREE, LIVE_ALLOCATION, LIVE_MEMORY, MALLOC};

use super::{Event, EventSite, Head, Owned, mappings::Mappings};
use crate::{names::stack_table::StackTable, recording::Recording};

/// Index of an event for an allocation that was not freed. Created by the drain, never by a program.
const LEFT: u16 = 1 << 15;
/// Index of an event for the live allocations with one stack.
const ALIVE: u16 = 1 << 14;
/// Limit of stacks in a summary of live memory: those with the most bytes.
const ALIVE_STACKS: usize = 100;

/// Returns true if the event is about live memory, not about a new allocation.
pub fn is_written_here(head: &Head) -> bool {
    head.kind == event_kind::ALLOC && head.index & (LEFT | ALIVE) != 0
}

/// Writes the event.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let time = recording.ticks(place.time_ns);
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (address, size, weight) = (event.word(0) as i64, signed(event.word(1)), signed(event.head.value));
    if event.head.kind == event_kind::FREE {
        recording.event_with_stack(FREE, place.thread, None, 24, |e, thread, _| {
            e.ticks(time).key(thread).key(0).long(address);
        });
        return;
    }
    if event.head.index & LEFT != 0 {
        let since = recording.ticks(event.word(2).min(place.time_ns));
        let age = jfr_format::ids::Ticks(time.0 - since.0);
        recording.event_with_stack(LIVE_ALLOCATION, place.thread, place.trace, 64, |e, thread, stack| {
            e.ticks(time)
                .key(thread)
                .key(stack)
                .long(address)
                .long(size)
                .long(weight)
                .ticks(since)
                .ticks(age);
        });
        return;
    }
    if event.head.index & ALIVE != 0 {
        let oldest = recording.ticks(event.word(1).min(place.time_ns));
        let age = jfr_format::ids::Ticks(time.0 - oldest.0);
        recording.event_with_stack(LIVE_MEMORY, place.thread, place.trace, 40, |e, _, stack| {
            e.ticks(time).key(stack).long(address).long(weight).ticks(age);
        });
        return;
    }
    recording.event_with_stack(MALLOC, place.thread, place.trace, 40, |e, thread, stack| {
        e.ticks(time).key(thread).key(stack).long(address).long(weight);
    });
    let function = function_name(event.head.index);
    recording.event_with_stack(ALLOCATION, place.thread, None, 64, |e, thread, _| {
        e.ticks(time).key(thread).long(address).long(size).long(weight).string(function);
    });
}

fn function_name(index: u16) -> &'static str {
    match index & 0xff {
        alloc_function::MALLOC => "malloc",
        alloc_function::CALLOC => "calloc",
        alloc_function::REALLOC => "realloc",
        alloc_function::POSIX_MEMALIGN => "posix_memalign",
        alloc_function::ALIGNED_ALLOC => "aligned_alloc",
        alloc_function::MEMALIGN => "memalign",
        alloc_function::VALLOC => "valloc",
        alloc_function::NEW => "new",
        alloc_function::MMAP => "mmap",
        alloc_function::MREMAP => "mremap",
        alloc_function::SBRK => "sbrk",
        alloc_function::BRK => "brk",
        _ => "",
    }
}

/// Limit of tracked allocations. A program cannot have more, unless its memory is damaged.
const MAX_LIVE: usize = 1 << 18;
/// Bytes of stacks above which unused ones are removed.
const STACK_BYTES: usize = 8 << 20;

/// Sampled allocations of one process that were not freed yet.
pub struct Live {
    /// Allocations by address.
    allocations: HashMap<u64, LiveAllocation>,
    /// Mappings, which can be unmapped in parts.
    mapped: Mappings<LiveAllocation>,
    stacks: StackTable<u64>,
    /// Bytes of stacks above which the unused ones are removed next.
    limit: usize,
    /// Number of allocations that could not be tracked.
    untracked: u64,
}

#[derive(Clone, Copy)]
struct LiveAllocation {
    thread: usize,
    stack: u32,
    time_ns: u64,
    size: u64,
    weight: u64,
    index: u16,
}

impl LiveAllocation {
    /// Returns the record of a mapping of which only `left` bytes remain.
    fn remaining_part(&self, left: u64) -> LiveAllocation {
        let pages = self.pages();
        if left >= pages {
            return *self;
        }
        let weight = u128::from(self.weight) * u128::from(left) / u128::from(pages);
        LiveAllocation { size: left, weight: u64::try_from(weight).unwrap_or(u64::MAX), ..*self }
    }

    /// Returns the bytes of a mapping, rounded up to whole pages, except at the end of the program's data.
    fn pages(&self) -> u64 {
        match self.index & 0xff {
            alloc_function::SBRK | alloc_function::BRK => self.size,
            _ => self.size.checked_next_multiple_of(4096).unwrap_or(u64::MAX),
        }
    }
}

impl Default for Live {
    fn default() -> Live {
        let (allocations, mapped) = Default::default();
        Live { allocations, mapped, stacks: StackTable::new(), limit: STACK_BYTES, untracked: 0 }
    }
}

/// An allocation that was not freed: thread, raw stack, event to write.
pub type Left = (usize, Vec<u64>, Owned);

impl Live {
    /// Updates the live allocations by an allocation or free, in the order of the program. Addresses of
    /// mappings of which nothing remains are added to `gone`.
    pub fn arrived(
        &mut self,
        thread: usize,
        stack: &[u64],
        time_ns: u64,
        event: &Event<'_>,
        gone: &mut Vec<u64>,
    ) {
        let address = event.word(0);
        let is_mapped = event.head.index & alloc_flags::MAPPED != 0;
        match event.head.kind {
            event_kind::FREE if is_mapped => self.mapped.remove(address, event.word(1), gone),
            event_kind::FREE => {
                self.allocations.remove(&address);
            }
            event_kind::ALLOC if event.head.index & alloc_flags::WATCHED != 0 => {
                if self.allocations.len() + self.mapped.len() >= MAX_LIVE {
                    self.untracked += 1;
                    return;
                }
                let (stack, _) = self.stacks.intern(stack);
                let (size, weight, index) = (event.word(1), event.head.value, event.head.index);
                let allocation = LiveAllocation { thread, stack, time_ns, size, weight, index };
                if is_mapped {
                    self.mapped.insert(address, allocation.pages(), allocation, gone);
                } else {
                    self.allocations.insert(address, allocation);
                }
                if self.stacks.bytes() > self.limit {
                    self.sort_out();
                }
            }
            _ => {}
        }
    }

    /// Removes the stacks of freed allocations.
    fn sort_out(&mut self) {
        let mut stacks = StackTable::new();
        for allocation in self.allocations.values_mut().chain(self.mapped.values_mut()) {
            allocation.stack = stacks.intern(self.stacks.get(allocation.stack)).0;
        }
        self.limit = (2 * stacks.bytes()).max(STACK_BYTES);
        self.stacks = stacks;
    }

    /// Returns the threads of live allocations.
    pub fn threads(&self) -> impl Iterator<Item = usize> {
        self.allocations
            .values()
            .chain(self.mapped.iter().map(|(_, _, allocation)| allocation))
            .map(|allocation| allocation.thread)
    }

    /// Updates the indices of threads.
    pub fn threads_moved(&mut self, now: impl Fn(usize) -> usize) {
        for allocation in self.allocations.values_mut().chain(self.mapped.values_mut()) {
            allocation.thread = now(allocation.thread);
        }
    }

    /// Returns the live allocations, summed by stack: those with the most bytes, largest first. They are
    /// still tracked.
    pub fn alive(&self) -> Vec<Left> {
        let mut by_stack: HashMap<u32, (usize, u64, u64, u64)> = HashMap::new();
        let mapped = self.mapped.iter().map(|(_, left, allocation)| allocation.remaining_part(left));
        for allocation in self.allocations.values().copied().chain(mapped) {
            let (_, count, bytes, oldest) =
                by_stack.entry(allocation.stack).or_insert((allocation.thread, 0, 0, allocation.time_ns));
            *count += 1;
            *bytes = bytes.saturating_add(allocation.weight);
            *oldest = allocation.time_ns.min(*oldest);
        }
        let mut sums: Vec<_> = by_stack.into_iter().collect();
        sums.sort_unstable_by_key(|(stack, (_, _, bytes, _))| (std::cmp::Reverse(*bytes), *stack));
        sums.truncate(ALIVE_STACKS);
        let sum = |(stack, (thread, count, bytes, oldest)): (u32, (usize, u64, u64, u64))| {
            let head = Head { kind: event_kind::ALLOC, index: ALIVE, value: bytes };
            let event = Event { head, extra: &[count, oldest] };
            (thread, self.stacks.get(stack).to_vec(), event.owned())
        };
        sums.into_iter().map(sum).collect()
    }

    /// Removes and returns the allocations that were not freed, oldest first, and the number of those that
    /// could not be tracked because there were too many.
    pub fn take(&mut self) -> (Vec<Left>, u64) {
        let Live { allocations, mapped, stacks, untracked, .. } = std::mem::take(self);
        let mut all: Vec<(u64, LiveAllocation)> = allocations.into_iter().collect();
        all.extend(
            mapped.iter().map(|(address, left, allocation)| (address, allocation.remaining_part(left))),
        );
        all.sort_unstable_by_key(|(address, allocation)| (allocation.time_ns, *address));
        let left = |(address, allocation): (u64, LiveAllocation)| {
            let head =
                Head { kind: event_kind::ALLOC, index: allocation.index | LEFT, value: allocation.weight };
            let extra = [address, allocation.size, allocation.time_ns];
            (allocation.thread, stacks.get(allocation.stack).to_vec(), Event { head, extra: &extra }.owned())
        };
        (all.into_iter().map(left).collect(), untracked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alloc(live: &mut Live, address: u64, stack: &[u64], time_ns: u64) {
        let head = Head { kind: event_kind::ALLOC, index: alloc_flags::WATCHED, value: 100 };
        live.arrived(3, stack, time_ns, &Event { head, extra: &[address, 10] }, &mut Vec::new());
    }

    fn free(live: &mut Live, address: u64) {
        let head = Head { kind: event_kind::FREE, index: 0, value: 0 };
        live.arrived(3, &[0, 0], 9, &Event { head, extra: &[address] }, &mut Vec::new());
    }

    #[test]
    fn live_allocations_are_reported_oldest_first() {
        let mut live = Live::default();
        alloc(&mut live, 16, &[0, 0, 7], 5);
        alloc(&mut live, 32, &[0, 0, 8], 4);
        alloc(&mut live, 48, &[0, 0, 7], 6);
        free(&mut live, 48);
        free(&mut live, 64);
        // An address that is reused without a free: only the last allocation is live.
        alloc(&mut live, 16, &[0, 0, 9], 7);
        let alive: Vec<_> = live.alive().into_iter().map(|(_, stack, owned)| (stack[2], owned)).collect();
        let fields = |(stack, owned): &(u64, Owned)| {
            let event = owned.borrowed();
            (*stack, event.word(0), event.head.value, event.word(1))
        };
        assert_eq!(alive.iter().map(fields).collect::<Vec<_>>(), [(8, 1, 100, 4), (9, 1, 100, 7)]);
        let (left, _) = live.take();
        let seen: Vec<_> =
            left.iter().map(|(_, stack, owned)| (stack[2], owned.borrowed().word(0))).collect();
        assert_eq!(seen, [(8, 32), (9, 16)]);
        assert!(live.take().0.is_empty());
    }

    #[test]
    fn partly_unmapped_mapping_has_its_remaining_size() {
        let (mut live, mut gone) = (Live::default(), Vec::new());
        let mut map = |live: &mut Live, kind, at: u64, bytes: u64| {
            let head = Head { kind, index: alloc_flags::MAPPED | alloc_flags::WATCHED, value: 2 * bytes };
            live.arrived(1, &[0, 0, at], at, &Event { head, extra: &[at, bytes] }, &mut gone);
        };
        map(&mut live, event_kind::ALLOC, 0x10000, 0x4000);
        map(&mut live, event_kind::ALLOC, 0x20000, 100);
        map(&mut live, event_kind::FREE, 0x11000, 0x1000);
        map(&mut live, event_kind::ALLOC, 0x30000, 0x2000);
        map(&mut live, event_kind::FREE, 0x2f000, 0x10000);
        assert_eq!(gone, [0x30000]);
        let left: Vec<_> = live.take().0.into_iter().map(|(_, _, owned)| owned).collect();
        let fields = |owned: &Owned| {
            let event = owned.borrowed();
            (event.word(0), event.word(1), event.head.value)
        };
        assert_eq!(
            left.iter().map(fields).collect::<Vec<_>>(),
            [(0x10000, 0x3000, 0x6000), (0x20000, 100, 200)]
        );
    }

    #[test]
    fn freed_stacks_do_not_accumulate() {
        let mut live = Live::default();
        for i in 0..200_000u64 {
            let stack: Vec<u64> = (0..50).map(|frame| i * 64 + frame).collect();
            alloc(&mut live, i, &stack, i);
            if i >= 10 {
                free(&mut live, i - 10);
            }
        }
        assert!(live.stacks.bytes() <= 2 * STACK_BYTES, "{}", live.stacks.bytes());
        let (left, _) = live.take();
        assert_eq!(left.len(), 10);
        assert!(left.iter().all(|(_, stack, owned)| stack[0] == owned.borrowed().word(0) * 64));
    }
}
