//! The chunk that is being written: its writer, its declared event types, and its clock.

use jfr_format::{
    ids::{Ticks, TypeId},
    metadata::Declared,
    write::{ChunkWriter, ClockLine, Geometry, WriteError, min_fixed_size},
};

use crate::{
    os::clock::{TickLine, both_ns},
    output::sink::Sink,
    settings::Settings,
};

/// The duration for which the size of the next fixed chunk is chosen, ns.
const AIM_NS: u64 = 3_000_000_000;
/// Minimum age of a chunk for its size to be used as a rate, ns.
const LEAST_NS: u64 = 500_000_000;
/// Smallest and largest content of a fixed chunk, without its overhead, bytes.
const FIXED_BYTES: [u64; 2] = [48 << 10, 8 << 20];
/// The wall clock of later chunks is corrected if it is off by this much, ns.
const DRIFT_NS: i64 = 1_000_000;

/// The chunk that is being written.
///
/// Its number and start only grow, and it starts at least two ticks after the chunk before it. The next chunk declares
/// at least the types that this one declares.
pub(super) struct CurrentChunk {
    pub(super) writer: ChunkWriter,
    /// Event types that the next chunk declares, see [`super::declared`].
    types: Vec<TypeId>,
    declared: Declared,
    line: ClockLine,
    ticks: TickLine,
    /// Chunks have a fixed size: the output is a stream.
    pub(super) fixed: bool,
    /// The chunk's number, from 1.
    pub(super) number: u32,
    pub(super) start_ns: u64,
    start_byte: u64,
    /// Content for which the next fixed chunk should have room, bytes.
    wished_bytes: u64,
}

impl CurrentChunk {
    /// Starts the first chunk at `start`. It declares `types`.
    pub(super) fn first(
        sink: &Sink,
        types: Vec<TypeId>,
        (line, ticks): (ClockLine, TickLine),
        start: Ticks,
        now_ns: u64,
        settings: &Settings,
    ) -> Result<CurrentChunk, WriteError> {
        let fixed = sink.stream().is_some();
        let declared = Declared::new(types.iter().copied());
        let wished_bytes = first_content(settings);
        let geometry = match fixed {
            true => Geometry::Fixed { size: fixed_size(wished_bytes, &declared) },
            false => Geometry::Patched,
        };
        let mut writer = ChunkWriter::declaring(&declared, geometry, &line, sink.position(), start)?;
        if fixed {
            writer.enable_segments(0);
        }
        let start_byte = sink.bytes();
        Ok(CurrentChunk {
            writer,
            types,
            declared,
            line,
            ticks,
            fixed,
            number: 1,
            start_ns: now_ns,
            start_byte,
            wished_bytes,
        })
    }

    /// Starts the next chunk. This one had `size` bytes; the next one should have room for `need` bytes.
    pub(super) fn begin_next(
        &mut self,
        sink: &Sink,
        now_ns: u64,
        size: u64,
        need: u64,
    ) -> Result<(), WriteError> {
        // JMC treats two chunks with the same start as one, and a single read of the ring may fill several
        // chunks. The gap leaves a tick for a chunk that records the losses of a stream's reader.
        let start = Ticks(self.ticks(now_ns).0.max(self.writer.start().0 + 2));
        let geometry = if self.fixed {
            let age_ns = self.age_ns(now_ns);
            // A short chunk consists mostly of overhead, so its size is not a rate.
            if age_ns >= LEAST_NS {
                let content = size.saturating_sub(u64::from(min_fixed_size(&self.declared)));
                self.wished_bytes = content.saturating_mul(AIM_NS) / age_ns;
            }
            Geometry::Fixed { size: fixed_size(self.wished_bytes.max(2 * need), &self.declared) }
        } else {
            Geometry::Patched
        };
        let mut writer =
            ChunkWriter::declaring(&self.declared, geometry, &self.line, sink.position(), start)?;
        if let Some(next) = self.writer.next_segment() {
            writer.enable_segments(next);
        }
        self.writer = writer;
        self.number += 1;
        self.start_ns = now_ns;
        self.start_byte = sink.bytes();
        Ok(())
    }

    /// Converts a CLOCK_MONOTONIC time to ticks.
    pub(super) fn ticks(&self, mono_ns: u64) -> Ticks {
        Ticks(self.ticks.ticks(mono_ns))
    }

    /// Returns the CLOCK_MONOTONIC time of tick 0, ns.
    pub(super) fn origin_ns(&self) -> u64 {
        self.ticks.origin_ns()
    }

    /// Returns the chunk's size so far, bytes.
    pub(super) fn size(&self, sink: &Sink) -> u64 {
        sink.bytes() - self.start_byte
    }

    /// Returns the chunk's age, ns.
    pub(super) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns)
    }

    /// Returns true if the next chunk declares `id`.
    pub(super) fn next_declares(&self, id: TypeId) -> bool {
        self.declared.has(id)
    }

    /// Makes the next chunk declare these event types too.
    pub(super) fn declare_next(&mut self, types: impl IntoIterator<Item = TypeId>) {
        self.types.extend(types);
        self.declared = Declared::new(self.types.iter().copied());
    }

    /// Corrects the wall clock of later chunks.
    pub(super) fn correct_clock(&mut self) {
        let (mono, wall) = both_ns();
        let at = self.ticks(mono);
        let ahead = (wall as i64).saturating_sub(self.line.epoch_nanos(at));
        // Never backwards: a chunk must not start before the previous one ends.
        if ahead > DRIFT_NS {
            self.line = ClockLine { start_ticks: at, start_epoch_ns: wall as i64, ..self.line };
        }
    }
}

/// Returns the size of a fixed chunk with room for `content` bytes.
fn fixed_size(content: u64, declared: &Declared) -> u32 {
    let size = content.clamp(FIXED_BYTES[0], FIXED_BYTES[1]) + u64::from(min_fixed_size(declared));
    (size.next_multiple_of(4096)) as u32
}

/// Returns the content for which the first chunk needs room: names, stacks, and three seconds of samples of a
/// busy thread.
fn first_content(settings: &Settings) -> u64 {
    (settings.rate() * 3.0 * 14.0) as u64 + FIXED_BYTES[0]
}
