//! Event types of the kernel's work for a program: requests to block devices, growth of its memory.

use super::declare::{Type, Unit, event, field};
use super::events::{DURATION, EVENT_THREAD, FLIGHTLINE, STACK, START_TIME};
use super::structs::{INT, LONG, STRING, ids};
use crate::ids::TypeId;

ids! {
    BLOCK_IO = 82 "flightline.BlockIo";
    MEMORY_GROWTH = 83 "flightline.MemoryGrowth";
}

#[rustfmt::skip]
pub(super) const TYPES: &[Type] = &[
    event(BLOCK_IO, "flightline.BlockIo", "Block I/O", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        field("device", STRING, "Device"),
        field("operation", STRING, "Operation"),
        field("flags", STRING, "Flags"),
        field("sector", LONG, "First Sector"),
        field("bytes", LONG, "Bytes").unit(Unit::Bytes),
        field("error", INT, "Error Number"),
    ]).about("A request to a block device, from its submission by a thread to its completion"),
    event(MEMORY_GROWTH, "flightline.MemoryGrowth", "Memory Growth", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        field("call", STRING, "System Call"),
        field("bytes", LONG, "Bytes").unit(Unit::Bytes),
        field("address", LONG, "Address").unit(Unit::Address),
    ]).about("A system call extended the address space of a program"),
];
