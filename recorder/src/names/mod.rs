//! From an address to a frame with a name: which file it lies in, what that file calls it, which source line it is.
//!
//! ```text
//! modules.rs    what is mapped where in a process; stack_table.rs: raw stacks, each once
//! frames.rs     addresses of a process → frames, by:
//!   images.rs     the distinct files, each read once, by reader.rs (a thread of low priority)
//!     elf.rs symbols.rs plt.rs go.rs       what a file says of itself
//!     debug_files.rs dwarf.rs              what its debug information says: lines, inlined functions
//!     declarations.rs                      the same by name: where a function is defined
//!     demangle.rs                          names as people write them
//!   jit/          code that lies in no file            kernel/   the kernel's
//! context_words.rs  where a file's thread-local variables of tracing contexts are; allocators.rs: which allocator a program has
//! intern.rs     stacks, methods, classes: one key each in the output
//! symbolize.rs  the same again, later, for a finished recording
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
pub(crate) mod images;
pub(crate) mod intern;
pub(crate) mod jit;
pub(crate) mod kernel;
pub(crate) mod modules;
pub(crate) mod plt;
pub(crate) mod reader;
pub(crate) mod stack_table;
pub mod symbolize;
pub(crate) mod symbols;
