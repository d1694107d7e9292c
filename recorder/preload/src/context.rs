//! The data symbol for copies of `flightline-context` in the program. The thread-local variable `otel_thread_ctx_v1` is none of the symbols:
//! we come first in the order in which the loader looks for names, so another tracer's library that is opened later would get ours in the
//! place of its own, and free the records that it finds there.

use flightline_capture::context::TABLE;
use flightline_context::abi::Abi;

/// What the recorder offers; see `flightline_context::abi`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // as C has it
pub static flightline_context_v1: Abi = TABLE;
