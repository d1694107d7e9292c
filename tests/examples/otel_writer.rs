//! A library that publishes thread contexts (OTEP 4947) with Datadog's crate, to be opened by a program, like
//! another vendor's tracer.

use libdd_otel_thread_ctx::linux::OwnedThreadContext;

/// The variable in the symbol table: rustc lists the names that it exports as patterns, and this one matches what the crate's assembler defines.
#[unsafe(export_name = "otel_thread_ctx_v1*")]
pub static EXPORT: u8 = 0;

/// Enters a span of the trace 1111…; its local root is span 1.
#[unsafe(no_mangle)]
pub extern "C" fn writer_enter(span: u64) {
    let mut trace = [0x11; 16];
    trace[8..].copy_from_slice(&span.to_be_bytes());
    let root = 1u64.to_be_bytes();
    OwnedThreadContext::update(
        trace,
        span.to_be_bytes(),
        1,
        root,
        &[(1, &format!("/span/{span}")), (7, "x")],
    );
}

/// Leaves it.
#[unsafe(no_mangle)]
pub extern "C" fn writer_leave() {
    drop(OwnedThreadContext::detach());
}
