//! The current span of each thread, for profilers, in memory that a signal handler or another process can
//! read at any instruction.
//!
//! The layout is OpenTelemetry's: records of OTEP 4947 behind the thread-local variable `otel_thread_ctx_v1`,
//! names of label keys in the process context of OTEP 4719. So every reader of these proposals can read it.
//! Flightline's recorder stores the span with every sample, and the start and end of every span that contains
//! samples.
//!
//! [`Span`] creates spans, [`enter_context`] enters spans of other libraries, and [`label`] adds a label to
//! the active span. [`scope()`] adds labels to all samples of a unit of work, such as a task attempt.
//! `flightline-tracing` supports `tracing` and OpenTelemetry; `flightline.h` is for C and languages that call
//! C.
//!
//! Entering and leaving uses no locks, system calls or heap, and takes about ten nanoseconds, with a recorder
//! about twenty. A thread's first use maps 16 KiB, which are unmapped at its end. `libflightline.so`, if it
//! is in the process, is found by its data symbol ([`abi`]); a recorder that is linked in calls
//! [`set_recorder`].
//!
//! Other tools see an executable's thread-local variable only if it is exported: build with `-C
//! link-arg=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1`. Flightline's recorder does not need that.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod abi;
mod clock;
mod context;
mod ids;
mod json;
mod key_table;
mod labels;
mod process;
pub mod record;
mod recorder;
mod scope;
mod span;
mod sys;
mod thread;
mod tls;

pub use context::{
    Ended, Entering, begin, current, end, enter, exit, exit_owner, innermost_owner, label, samples_so_far,
};
pub use ids::{RANDOM, SAMPLED, SpanContext};
pub use labels::{LabelError, Labels};
pub use process::SCHEMA;
pub use recorder::set_recorder;
pub use scope::{ActiveScope, InScope, LEFT_OUT, SCOPE_LABELS_MAX, Scope, VALUE_MAX, scope};
pub use span::{Entered, Guard, Span, beginning, enter_context, new_context, span_ended};

/// The process's table of label keys, for a recorder.
pub mod keys {
    pub use crate::key_table::{KEY_MAX, KEYS_MAX, all};
    pub use crate::recorder::{index, own_key, own_key_name};
}

/// The calling thread's `otel_thread_ctx_v1` of this copy of the crate: [`abi::Abi::slot`] of a recorder in the same binary.
#[inline(never)]
pub fn own_slot() -> *const abi::Slot {
    &raw const tls::local().slot
}
