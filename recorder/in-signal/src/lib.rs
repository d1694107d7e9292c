//! Internal to the recorder, no stable API.
//!
//! Everything that runs inside a signal handler of the recorded program, and the memory it shares with the drain.
//!
//! Rules of this crate (checked by `.ci/fence.sh` over its object code):
//! no heap, no `std`, no lock, no libc call outside `allowed-symbols.txt`, no panic path, no thread-local
//! through `__tls_get_addr`. System calls are made by the instruction itself ([`os::sys`]).
//!
//! The path of a sample, from the signal to the ring:
//!
//! ```text
//! handler/   recognizes the signal and computes the weight of the sample
//! context/   the span and the labels of the interrupted thread
//! unwind/    registers → stack
//! publish/   registers, stack and context → a record; also for events outside handlers and for last samples
//! ring       holds the record until the drain reads it
//! ```
//! Around it:
//!
//! ```text
//! layout/    the shared memory, as program and drain map it
//! payload    the words of lock, I/O and exception events;  command: the commands of the drain
//! state/     the data of the process that a handler needs: thread slots, cookies of signals, work memory
//! engine/    the interrupts: perf events, timers, breakpoints; each is armed for one thread
//! perf/      perf events and their memory
//! thread     registers a thread: claims and releases its slot
//! os/        system calls, clocks, the thread-local word
//! ```
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod atomic;
pub mod command;
pub mod context;
pub mod engine;
pub mod handler;
pub mod layout;
pub mod os;
pub mod payload;
pub mod perf;
pub mod publish;
pub mod ring;
pub mod state;
pub mod thread;
pub mod unwind;
