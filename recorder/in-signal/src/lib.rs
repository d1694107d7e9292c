//! Internal to the recorder, no stable API.
//!
//! Everything that runs inside a signal handler of the recorded program, and the memory it shares with the drain.
//!
//! Rules of this crate (checked by `.ci/fence.sh` over its object code):
//! no heap, no `std`, no lock, no libc call outside `allowed-symbols.txt`, no panic path, no thread-local
//! through `__tls_get_addr`. System calls are made by the instruction itself ([`sys`]).
//!
//! A sample's way here: [`handler`] → [`interrupted`] → [`context`], [`walk`] ([`rule_cache`] →
//! [`unwind_table`] → [`eh_frame`], reading by [`stack`]) → [`publish`] → [`ring`]; [`layout`] defines the
//! shared memory, [`state`] the data that a handler needs. [`events`] is the handler's part in engines other
//! than CPU time, [`sync_event`] records events of a thread outside handlers. [`fatal`] takes last samples.
//! [`thread`] and [`engine`] register and arm threads, outside handlers and inside; [`slots`] finds a
//! thread's slot, [`cookie`] is the word by which a handler recognises a signal.
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod atomic;
pub mod clock;
pub mod command;
pub mod context;
pub mod cookie;
pub mod cost;
pub mod eh_frame;
pub mod engine;
mod engine_selection;
pub mod events;
pub mod expression;
pub mod fatal;
mod frame_pointer_fallback;
pub mod handler;
pub mod instruction_analysis;
pub mod interrupted;
mod labels;
pub mod layout;
pub mod loader;
pub mod modules;
mod open_calls;
mod pace;
pub mod payload;
pub mod perf_event;
pub mod perf_ring;
pub mod process_timer;
pub mod publish;
pub mod ring;
pub mod rule;
pub mod rule_cache;
pub mod scratch;
pub mod slots;
pub mod stack;
pub mod state;
pub mod sync_event;
pub mod sys;
pub mod thread;
mod timer;
pub mod tls;
pub mod trace;
pub mod unwind_table;
pub mod vdso;
pub mod walk;
mod weight;
pub mod x86;
