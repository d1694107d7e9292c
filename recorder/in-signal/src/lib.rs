//! Everything that runs inside a signal handler of the recorded program, and the memory it shares with the drain.
//!
//! Rules of this crate (checked by `.ci/fence.sh` over its object code):
//! no heap, no `std`, no lock, no libc call outside `allowed-symbols.txt`, no panic path, no thread-local
//! through `__tls_get_addr`. System calls are made by the instruction itself (`sys`).
//!
//! A sample's way here: [`handler`] → [`walk`] → [`ring`]; [`layout`] is what both processes see.
#![no_std]

pub mod layout;
pub mod ring;
