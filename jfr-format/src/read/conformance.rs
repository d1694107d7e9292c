//! Checks whether a chunk conforms to the format. These violations cost this reader no event, but other readers fail or
//! return something else; `docs/decisions.md` lists what each of them does.

use crate::constants::{FLAG_COMPRESSED, STATE_FINISHED, STATE_UPDATING};
use crate::error::{Nonconformance, shortened};
use crate::header::{self, ChunkHeader};
use crate::types::Types;

/// A violation and its distance from the start of the chunk.
pub(crate) type Finding = (Nonconformance, u64);

/// Checks the header alone.
pub(crate) fn check_header(header: &ChunkHeader) -> impl Iterator<Item = Finding> {
    let frequency = header.ticks_per_second;
    let clock =
        (frequency <= 0).then_some((Nonconformance::Frequency(frequency), header::TICKS_PER_SECOND as u64));
    let fixed = header.flags & FLAG_COMPRESSED == 0;
    clock.into_iter().chain(fixed.then_some((Nonconformance::Uncompressed, header::FLAGS as u64)))
}

/// Where the events lie that a header and the checkpoints point at.
#[derive(Debug, Default)]
pub(crate) struct Landmarks {
    /// Metadata events, as all here by their distance from the start of the chunk, ascending. Which one the header
    /// points at is known at the end: a live one is completed then.
    metadata: Vec<u64>,
    /// Checkpoints and their distance to the one before.
    checkpoints: Vec<(u64, i64)>,
}

impl Landmarks {
    pub(crate) fn metadata(&mut self, at: u64) {
        self.metadata.push(at);
    }

    pub(crate) fn checkpoint(&mut self, at: u64, delta: i64) {
        self.checkpoints.push((at, delta));
    }

    /// Checks a chunk of `size` bytes, none of which is missing.
    pub(crate) fn check(&self, header: &ChunkHeader, types: &Types, size: u64) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(class) = types.contradicted.and_then(|index| types.class(index)) {
            let again = Nonconformance::Redeclared { class: shortened(&*class.name), id: class.id };
            findings.push((again, self.metadata.last().copied().unwrap_or(0)));
        }
        match header.state {
            STATE_FINISHED if header.metadata.0 == 0 && size > header::LEN as u64 => {
                findings.push((Nonconformance::Unpatched, header::CHUNK_SIZE as u64));
            }
            STATE_FINISHED if size > header::LEN as u64 => {
                if header.size != size {
                    let finding = Nonconformance::ChunkSize { declared: header.size, found: size };
                    findings.push((finding, header::CHUNK_SIZE as u64));
                }
                let checkpoint = header.checkpoint.0;
                if self.find(checkpoint).is_none() && (checkpoint != 0 || !self.checkpoints.is_empty()) {
                    findings.push((Nonconformance::CheckpointOffset(checkpoint), header::CHECKPOINT as u64));
                }
                if self.metadata.binary_search(&header.metadata.0).is_err() {
                    findings
                        .push((Nonconformance::MetadataOffset(header.metadata.0), header::METADATA as u64));
                }
            }
            STATE_UPDATING => findings.push((Nonconformance::Updating, header::STATE as u64)),
            _ => {}
        }
        self.chain(header, &mut findings);
        findings
    }

    fn find(&self, at: u64) -> Option<usize> {
        self.checkpoints.binary_search_by_key(&at, |&(at, _)| at).ok()
    }

    /// The checkpoint that the one at `index` names as the one before; `None` if it names none.
    fn previous(&self, index: usize) -> Option<Result<usize, u64>> {
        let &(at, delta) = self.checkpoints.get(index).filter(|&&(_, delta)| delta != 0)?;
        let target = at.wrapping_add_signed(delta);
        Some(self.find(target).ok_or(target))
    }

    fn chain(&self, header: &ChunkHeader, findings: &mut Vec<Finding>) {
        let at = |index: usize| self.checkpoints.get(index).map_or(0, |&(at, _)| at);
        let mut nowhere = 0;
        let mut first = None;
        for index in 0..self.checkpoints.len() {
            if let Some(Err(target)) = self.previous(index) {
                nowhere += 1;
                first.get_or_insert((index, target));
            }
        }
        if let Some((index, target)) = first {
            findings.push((Nonconformance::CheckpointChain { target, count: nowhere }, at(index)));
        }
        // The walk that first came by; a checkpoint is passed once.
        let mut walks = vec![0; self.checkpoints.len()];
        let mut circle = None;
        let last = self.find(header.checkpoint.0).filter(|_| header.state == STATE_FINISHED);
        for (walk, start) in last.into_iter().chain(0..self.checkpoints.len()).enumerate() {
            let walk = walk + 1;
            let mut next = Some(start);
            while let Some(index) = next {
                let Some(passed) = walks.get_mut(index) else { break };
                if *passed != 0 {
                    if *passed == walk {
                        circle.get_or_insert(index);
                    }
                    break;
                }
                *passed = walk;
                next = self.previous(index).and_then(Result::ok);
            }
        }
        if let Some(index) = circle {
            findings.push((Nonconformance::CheckpointCircle, at(index)));
        }
        let aside = |&walk: &usize| last.is_some() && walk != 1;
        let count = walks.iter().filter(|walk| aside(walk)).count() as u64;
        if let Some(index) = walks.iter().position(aside) {
            findings.push((Nonconformance::Unchained { count }, at(index)));
        }
    }
}
