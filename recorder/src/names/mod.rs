//! Symbolization: finds the file, function and source line of an address.
//!
//! ```text
//! modules.rs    the mappings of a process; stack_table.rs: unique raw stacks
//! frames.rs     addresses of a process → frames, from:
//!   images.rs     files, each read once, by reader.rs (a thread of low priority)
//!     elf.rs symbols.rs plt.rs go.rs       symbols in the file
//!     debug_files.rs dwarf.rs              its debug information: lines, inlined functions
//!     declarations.rs                      the definition of a function, by name
//!     demangle.rs                          readable names
//!   jit/          JIT-compiled code                    kernel/   kernel functions
//!   hotspot/      Java code, by java_frames.rs
//! context_words.rs  thread-local variables of tracing contexts; allocators.rs: the allocator of a program
//! intern.rs     stacks, methods, classes: one key each in the output
//! symbolize.rs  symbolizes a finished recording
//! ```

pub(crate) mod allocators;
pub(crate) mod context_words;
pub(crate) mod debug_files;
pub(crate) mod declarations;
pub(crate) mod demangle;
pub(crate) mod dwarf;
pub(crate) mod elf;
pub(crate) mod frames;
pub(crate) mod go;
pub(crate) mod hotspot;
pub(crate) mod images;
pub(crate) mod intern;
pub(crate) mod java_frames;
pub(crate) mod jit;
pub(crate) mod kernel;
pub(crate) mod modules;
pub(crate) mod plt;
pub(crate) mod reader;
pub(crate) mod stack_table;
pub mod symbolize;
pub(crate) mod symbols;
