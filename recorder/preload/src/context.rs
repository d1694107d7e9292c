//! Data symbols for what works with spans: copies of `flightline-context` in the program, and other tools.

use flightline_capture::context::TABLE;
use flightline_context::abi::Abi;

/// What the recorder offers; see `flightline_context::abi`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // as C has it
pub static flightline_context_v1: Abi = TABLE;

/// Exports the thread-local variable of the name before the star, which the linker takes for a pattern: Rust's list of exported symbols
/// has none that are made in assembler.
#[unsafe(export_name = "otel_thread_ctx_v1*")]
pub static OTEL_THREAD_CTX: u8 = 0;
