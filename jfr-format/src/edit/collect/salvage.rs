//! Salvages the rest of a chunk that is damaged or cut short, as a separate chunk.

use std::io;

use bytes::{Bytes, BytesMut};

use super::super::filter::{Decision, Scope, filter};
use super::super::repair::{Options, repair};
use super::super::source::Source;
use super::segment::Segment;
use super::{ChunkSink, Collector, Inside, State, Step, Unverified};
use crate::constants::*;
use crate::event::EventRef;
use crate::header::{ChunkHeader, LEN};
use crate::ids::{ChunkOffset, Ticks};
use crate::read::push::trusted_end;
use crate::read::resync;

/// Returns the bytes that the rest of a chunk needs before it: a header that continues the chunk, and the
/// chunk's types and constants.
pub(super) fn before(inside: &Inside) -> BytesMut {
    let header = ChunkHeader {
        size: LEN as u64,
        checkpoint: ChunkOffset(0),
        metadata: ChunkOffset(0),
        start_nanos: inside.header.start_nanos.saturating_add(super::span(&inside.header, inside.tick)),
        start_ticks: Ticks(inside.tick),
        duration_nanos: 0,
        state: STATE_FIRST,
        ..inside.header
    };
    let mut bytes = BytesMut::from(&header.encode()[..]);
    bytes.extend_from_slice(&inside.constants);
    bytes
}

impl Collector {
    /// Waits for the end of a buffered chunk, then writes the events that can be salvaged.
    pub(super) fn check_unverified(&mut self, over: bool, place: &mut dyn ChunkSink) -> io::Result<Step> {
        let State::Unverified(unverified) = &mut self.state else { return Ok(Step::Again) };
        let left = usize::try_from(unverified.remaining).unwrap_or(usize::MAX);
        let next = if unverified.sound { None } else { next_chunk(&self.buffer, unverified) };
        let end = next.or_else(|| (over || self.buffer.len() >= left).then(|| left.min(self.buffer.len())));
        let Some(end) = end else { return Ok(Step::NeedsMore) };
        let State::Unverified(unverified) = std::mem::take(&mut self.state) else { return Ok(Step::Again) };
        let rest = self.buffer.split_to(end);
        let at = self.offset;
        self.offset += end as u64;
        // The JDK looks for a chunk that begins where this one ends.
        let next = ChunkHeader::decode(&self.buffer).ok().map(|next| next.start_nanos);
        self.salvage(*unverified, &rest, at, next, place)?;
        Ok(Step::Again)
    }

    fn salvage(
        &mut self,
        unverified: Unverified,
        rest: &[u8],
        at: u64,
        next: Option<i64>,
        place: &mut dyn ChunkSink,
    ) -> io::Result<()> {
        let own = unverified.before.is_empty();
        let mut bytes = unverified.before;
        bytes.extend_from_slice(rest);
        let source = Source::from(bytes.freeze());
        let mut out = Vec::new();
        // An event with damaged constants would appear without its stack or thread, as if it never had one.
        let options = Options { drop_unresolved: !unverified.sound, ..Options::default() };
        let report = repair(&source, &options, &mut out)?;
        let lost: u64 = report.lost.values().map(|lost| lost.bytes).sum();
        self.report.lost_bytes += lost;
        if unverified.sound && report.unchanged() {
            return self.write(out.into(), own, next, place);
        }
        if unverified.sound {
            self.report.damaged(at, "a chunk that had to be repaired");
        }
        // Offsets and checksums in segment events do not match the rewritten chunk.
        let mut output = Vec::new();
        let mut decide = |event: &EventRef<'_>| {
            if &*event.class().name == Segment::NAME { Decision::Drop } else { Decision::Keep }
        };
        let scope = Scope { all_constants: true, ..Scope::default() };
        let filtered = filter(&Source::from(out), scope, &mut decide, &mut output)?;
        let events = filtered.types.values().map(|share| share.all - share.dropped).sum::<u64>();
        self.report.events += events;
        self.report.salvaged += events;
        // Only constants, which are already written.
        if events == 0 && !own {
            return Ok(());
        }
        self.write(output.into(), own, next, place)
    }

    /// Passes on finished chunks; `next`: the start of the chunk after them.
    fn write(
        &mut self,
        mut out: Bytes,
        own: bool,
        next: Option<i64>,
        place: &mut dyn ChunkSink,
    ) -> io::Result<()> {
        while let Ok(mut header) = ChunkHeader::decode(&out) {
            let Some(size) = trusted_end(&header, 0).and_then(|size| usize::try_from(size).ok()) else {
                break;
            };
            if size > out.len() {
                break;
            }
            if let Some(next) = next.filter(|next| *next > header.start_nanos) {
                header.duration_nanos = header.duration_nanos.min(next - header.start_nanos);
            }
            self.close(false, place)?;
            let chunk = out.split_to(size);
            place.begin(header.size)?;
            place.grow(&chunk, &header)?;
            self.open = Some(header);
            self.report.written += header.size;
            self.report.chunks += u64::from(own);
        }
        Ok(())
    }
}

/// Returns the start of the next chunk of a stream, if it has arrived.
fn next_chunk(bytes: &[u8], unverified: &mut Unverified) -> Option<usize> {
    while let Some(found) = resync::find_header(bytes.get(unverified.searched..)?) {
        let at = unverified.searched + found;
        let header = ChunkHeader::decode(bytes.get(at..)?).ok()?;
        // The bytes are events, which may contain anything.
        if trusted_end(&header, 0).is_some() && header.flags & FLAG_COMPRESSED != 0 {
            return Some(at);
        }
        unverified.searched = at + 1;
    }
    unverified.searched = bytes.len().saturating_sub(LEN - 1).max(1);
    None
}
