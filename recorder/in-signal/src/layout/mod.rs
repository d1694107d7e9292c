//! The shared memory of one recording, as both sides map it.
//!
//! ```text
//! SESSION DIRECTORY  (tmpfs, mode 0700)                 writer            reader
//!   session           SessionPage   two pages           drain             every program
//!   rows              unwind rows of all modules        drain             every program (read only)
//!   <pid>-<n>.proc    ProcHeader                        program           drain
//!                     ThreadSlot  × thread_slots        program           drain
//!                     ModuleTable × MODULE_TABLES       program: table 0; drain: the others, then all
//!                     InitModule  × n, string area      program           drain
//!                     sample ring                       program           drain
//! ```
//! All contents are integers. The drain treats everything that a program wrote as hostile, and a program checks
//! all bounds that the drain wrote.
//!
//! Every structure has a *fixed* part and a *live* part. The fixed part is a [`SharedCell`], written once
//! before the file gets its name; the other side copies it when it opens the file. The live part consists of
//! atomics. So a reference to a structure in shared memory is sound, and every access to it is safe.

mod cell;
mod jvm;
mod modules;
mod parts;
mod process;
mod records;
mod session;

pub use cell::{Plain, SharedCell};
pub use jvm::*;
pub use modules::*;
pub use parts::ProcParts;
pub use process::*;
pub use records::*;
pub use session::*;

/// `"FLIGHTL7"`: first word of every shared file; the digit is the layout version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FLIGHTL7");

/// Environment variable by which a program finds its session directory.
pub const SESSION_ENV: &str = "FLIGHTLINE_SESSION";
/// Name of the [`SessionPage`] file inside the session directory.
pub const SESSION_FILE: &str = "session";
/// Name of the rows arena inside the session directory.
pub const ROWS_FILE: &str = "rows";
/// Suffix of a process file; it is created as `<pid>-<n>.tmp` and renamed when its header is complete.
pub const PROC_SUFFIX: &str = ".proc";

/// Deepest stack a sample can hold, in frames (one word each).
pub const MAX_DEPTH: usize = 2048;
/// Number of module tables; the drain never rewrites the active one nor the one before it.
pub const MODULE_TABLES: usize = 4;
/// Entries of one module table.
pub const MODULES_PER_TABLE: usize = 2048;
/// Entries of the log of modules written by the program.
pub const INIT_MODULES: usize = 2048;
/// Bytes of the string area (module paths, executable, command line).
pub const STRING_BYTES: usize = 512 * 1024;
/// Maximum length of a short name, such as a thread's, in bytes.
pub const NAME_BYTES: usize = 16;

/// The engine that takes the samples ([`FixedSettings::engine`], [`EngineStatus::kind`]).
pub mod engine {
    /// The program selects an engine that its kernel allows.
    pub const AUTO: u32 = 0;
    /// `perf_event_open` cpu-clock, `sigtrap`, kernel time included (signal arrives on return to user mode).
    pub const PERF: u32 = 1;
    /// The same with `exclude_kernel`, for unprivileged users; a complementary timer sees kernel time.
    pub const PERF_USER: u32 = 2;
    /// `timer_create` on the thread's CPU clock, signal `SIGPROF`, at most CONFIG_HZ per second.
    pub const TIMER: u32 = 3;
    /// No engine can sample here (see [`super::EngineStatus::errno`]).
    pub const NONE: u32 = 4;
    /// `timer_create` on the process's CPU clock, signal `SIGPROF` to a thread that runs, see [`crate::engine::process_timer`].
    pub const ITIMER: u32 = 5;
}

const _: () = {
    assert!(size_of::<SessionPage>() <= SESSION_BYTES);
    assert!(
        core::mem::offset_of!(SessionPage, drain_pid) == 24,
        "`tests/src/shared_memory.rs` reads it there"
    );
    assert!(size_of::<Identity>() == 64);
    assert!(align_of::<ModuleTable>() == 8 && align_of::<ThreadSlot>() == 64);
    assert!(size_of::<ModuleEntry>() == 64);
    assert!(size_of::<InitModule>() == 88);
    assert!(size_of::<SampleRecord>() == 40, "five words");
    assert!(size_of::<Row>() == 8);
    assert!(size_of::<RowsHeader>() == 32);
    assert!(size_of::<ThreadSlot>() == 768, "twelve cache lines");
};

/// The four sizes that both sides compare before they use each other's memory.
pub const SIZES: [u32; 4] = [
    size_of::<SessionPage>() as u32,
    size_of::<ProcHeader>() as u32,
    size_of::<ThreadSlot>() as u32,
    size_of::<ModuleTable>() as u32,
];

/// Offsets of a process file with these parameters; the file's length is `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcLayout {
    /// Number of [`ThreadSlot`]s.
    pub thread_slots: u32,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Offset of the thread slots.
    pub threads: u64,
    /// Offset of [`MODULE_TABLES`] × [`ModuleTable`].
    pub modules: u64,
    /// Offset of the [`InitModule`] log.
    pub init_modules: u64,
    /// Offset of the string area ([`STRING_BYTES`]).
    pub strings: u64,
    /// Offset of the ring.
    pub ring: u64,
    /// Length of the file.
    pub end: u64,
}

impl ProcLayout {
    /// Lays out a process file; every part starts on a page.
    pub const fn new(thread_slots: u32, ring_bytes: u64) -> ProcLayout {
        const fn page(x: u64) -> u64 {
            (x + 4095) & !4095
        }
        let threads = page(size_of::<ProcHeader>() as u64);
        let modules = page(threads + thread_slots as u64 * size_of::<ThreadSlot>() as u64);
        let init_modules = page(modules + (MODULE_TABLES * size_of::<ModuleTable>()) as u64);
        let strings = page(init_modules + (INIT_MODULES * size_of::<InitModule>()) as u64);
        let ring = page(strings + STRING_BYTES as u64);
        let end = ring + page(ring_bytes);
        ProcLayout { thread_slots, ring_bytes, threads, modules, init_modules, strings, ring, end }
    }
}
