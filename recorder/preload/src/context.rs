//! The data symbol for copies of `flightline-context` in the program. The thread-local variable
//! `otel_thread_ctx_v1` is not exported. The preload object comes first in the loader's search order, so
//! another tracer's library that is opened later would get this object's variable in the place of its own,
//! and free the records that it finds there.

use flightline_capture::context::TABLE;
use flightline_context::abi::Abi;

/// The recorder's interface; see `flightline_context::abi`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // as C has it
pub static flightline_context_v1: Abi = TABLE;
