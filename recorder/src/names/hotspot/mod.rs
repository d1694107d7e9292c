//! Names of Java code in a HotSpot JVM, read from the JVM's memory.
//!
//! ```text
//! vm_structs.rs   the tables in which libjvm.so describes its structures    layout.rs  the parts that we need
//! memory.rs       checked reads of the JVM's memory
//! ```

pub mod layout;
#[cfg(test)]
mod live_tests;
pub mod memory;
pub mod vm_structs;
