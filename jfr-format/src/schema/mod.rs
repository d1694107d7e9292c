//! The types and events that this project writes, declared once. Readers of other recordings use the metadata
//! in the file, never this schema.
//!
//! `jdk.*` and `profiler.*` events have exactly the fields, in exactly the order, that async-profiler's
//! converter hard-codes: additional data goes into a separate event. No part of a dotted name may be a Java
//! keyword (JDK 25 refuses the file).

mod declare;
mod events;
mod kernel_io;
mod names;
mod sched;
mod signals;
mod spans;
mod structs;
mod waits;

pub use declare::{Field, Kind, Shape, Type, Unit};
pub(crate) use declare::{OwnType, field};
pub use events::*;
pub use kernel_io::*;
pub(crate) use names::{is_java_identifier, is_java_type_name};
pub use sched::*;
pub use signals::*;
pub use spans::*;
pub use structs::*;
pub use waits::*;

use crate::ids::TypeId;

/// Frame type keys. The numbers are async-profiler's; its converter uses them, not the text.
pub mod frame_type {
    /// "Interpreted"
    pub const INTERPRETED: u64 = 0;
    /// "JIT compiled"
    pub const JIT_COMPILED: u64 = 1;
    /// "Inlined"
    pub const INLINED: u64 = 2;
    /// "Native"
    pub const NATIVE: u64 = 3;
    /// "C++": any native code of a program or library.
    pub const CPP: u64 = 4;
    /// "Kernel"
    pub const KERNEL: u64 = 5;
    /// "C1 compiled"
    pub const C1_COMPILED: u64 = 6;

    /// Texts by key.
    pub const ALL: [&str; 7] =
        ["Interpreted", "JIT compiled", "Inlined", "Native", "C++", "Kernel", "C1 compiled"];
}

/// Thread state keys. The first three have async-profiler's numbers.
pub mod thread_state {
    /// "STATE_DEFAULT": a CPU sample.
    pub const DEFAULT: u64 = 0;
    /// "STATE_RUNNABLE": a wall-clock sample of a running thread.
    pub const RUNNABLE: u64 = 1;
    /// "STATE_SLEEPING": a wall-clock sample of a waiting thread.
    pub const SLEEPING: u64 = 2;

    /// "STATE_WAITING_FOR_CPU": ready to run, without a processor.
    pub const WAITING_FOR_CPU: u64 = 3;
    /// "STATE_DISK_SLEEP": in the kernel's disk sleep, which no signal ends.
    pub const DISK_SLEEP: u64 = 4;

    /// Texts by key.
    pub const ALL: [&str; 5] =
        ["STATE_DEFAULT", "STATE_RUNNABLE", "STATE_SLEEPING", "STATE_WAITING_FOR_CPU", "STATE_DISK_SLEEP"];
}

const ALL: [&[Type]; 7] = [
    structs::TYPES,
    events::TYPES,
    waits::TYPES,
    sched::TYPES,
    kernel_io::TYPES,
    signals::TYPES,
    spans::TYPES,
];

/// Iterates over all types in the order of the metadata.
pub fn types() -> impl Iterator<Item = &'static Type> {
    ALL.into_iter().flatten()
}

/// Returns the declaration of `id`.
#[inline]
pub fn get(id: TypeId) -> Option<&'static Type> {
    INDEX.get(id.0 as usize).copied().flatten()
}

/// The ids of the schema's types are below this number.
pub(crate) const IDS: usize = 256;
static INDEX: [Option<&'static Type>; IDS] = index();

const fn index() -> [Option<&'static Type>; IDS] {
    let mut index = [None; IDS];
    let mut i = 0;
    while i < ALL.len() {
        add(&mut index, ALL[i]);
        i += 1;
    }
    index
}

const fn add(index: &mut [Option<&'static Type>; IDS], types: &'static [Type]) {
    let mut i = 0;
    while i < types.len() {
        let id = types[i].id.0 as usize;
        assert!(id > 1, "0 and 1 are the metadata and checkpoint events");
        assert!(id != b'L' as usize, "an event of type 'L' and size 'F' would look like a chunk header");
        assert!(index[id].is_none(), "type id declared twice");
        index[id] = Some(&types[i]);
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_legal_java_types() {
        let mut seen = HashSet::new();
        for ty in types() {
            assert!(seen.insert(ty.name), "{} twice", ty.name);
            if ty.kind == Kind::Primitive {
                continue;
            }
            assert!(is_java_type_name(ty.name), "{}", ty.name);
        }
    }

    #[test]
    fn every_field_has_a_declared_type_that_fits_its_use() {
        for ty in types() {
            for field in ty.fields {
                let of = get(field.ty).unwrap_or_else(|| panic!("{}.{}", ty.name, field.name));
                let at = format!("{}.{}", ty.name, field.name);
                assert_eq!(field.pooled, field.shape == Shape::Key, "{at}");
                assert!(!field.pooled || of.is_pool(), "{at}");
                if field.shape == Shape::Structs {
                    assert!(of.fields.iter().all(|inner| inner.shape.is_scalar()), "{at}: nested too deep");
                }
            }
            if ty.kind == Kind::Event {
                assert_eq!(ty.fields[0].name, "startTime", "{}", ty.name);
            }
            if ty.kind == Kind::Simple {
                assert_eq!(ty.fields.len(), 1, "{}", ty.name);
            }
        }
    }

    #[test]
    fn frequent_events_have_one_byte_ids() {
        // One event per failure of the output, so its id may take two bytes.
        let rare = |ty: &&Type| ty.name == "flightline.Outage";
        assert!(types().filter(|ty| ty.kind == Kind::Event && !rare(ty)).all(|ty| ty.id.0 < 128));
    }
}
