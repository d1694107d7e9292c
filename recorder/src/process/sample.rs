//! Samples and events on their way from a process to its recording.

use std::sync::Arc;

use super::threads::ThreadIndex;
use crate::{
    names::images::Images,
    recording::{Recording, Worked},
    shared_memory::{journal::Entry, proc_file::ProcFile},
};

/// The destination of a process's samples, and the files for symbolizing them.
pub struct SampleSink<'a> {
    /// The process's shared file.
    pub file: &'a ProcFile,
    /// Its recording.
    pub recording: &'a mut Recording,
    /// Files with code.
    pub images: &'a mut Images,
}

/// The thread, time and context of a sample or event.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub thread: ThreadIndex,
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// The span and labels that were active.
    pub context: Option<&'a Arc<Worked>>,
}

/// A sample or event whose stack is not resolved yet.
pub(super) struct RawSample<'a> {
    pub origin: Origin<'a>,
    /// Raw stack: [`super::stack_resolver::STACK_HEAD`] words, then addresses.
    pub stack: &'a [u64],
    /// The reason why the stack is truncated ([`flightline_in_signal::layout::walk_end`]), if it is.
    pub truncation: Option<u16>,
    /// Its record in the journal. A sample that has to wait takes it.
    pub entry: &'a mut Option<Entry>,
}
