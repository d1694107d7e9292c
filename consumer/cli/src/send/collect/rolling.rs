//! Collects a stream in a repository: one file per chunk, which the JDK's event streams and `tail` can follow
//! while it grows.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flightline_recorder::RepositorySink;
use flightline_recorder::repository::{self, Owner, Repository};
use jfr_format::constants::{STATE_FINISHED, STATE_FIRST, STATE_LAST, STATE_UPDATING};
use jfr_format::edit::collect::ChunkSink;
use jfr_format::header::{ChunkHeader, LEN, PATCHED, STATE};
use jfr_format::ids::{ChunkOffset, FileOffset};
use jfr_format::write::Output;

use crate::diagnostics;

/// Interval between checks for expired chunks.
const TIDY: Duration = Duration::from_secs(1);

/// The repository output.
pub struct RollingPlace {
    sink: RepositorySink,
    /// State byte of the chunk's header.
    generation: u8,
    /// A chunk has begun, but nothing has been written.
    begun: bool,
    /// The disk rejected a part of the chunk, so the rest is skipped.
    refused: bool,
    told: bool,
    /// Bytes that could not be written.
    refused_bytes: u64,
    tidied: Instant,
}

impl RollingPlace {
    /// Finishes chunks that a killed collector left incomplete. The folder is created when the first chunk
    /// arrives.
    pub fn open(repository: &Repository, name: &str) -> Result<RollingPlace> {
        if repository.root.exists() {
            finish(&repository.root).with_context(|| format!("cannot read {}", repository.root.display()))?;
        }
        let pid = std::process::id();
        let labels = vec![("collected".to_owned(), name.to_owned())];
        let owner = Owner { pid, recorder: pid, labels, ..Owner::default() };
        Ok(RollingPlace {
            sink: RepositorySink::later(repository, owner),
            generation: STATE_FIRST,
            begun: false,
            refused: false,
            told: false,
            refused_bytes: 0,
            tidied: Instant::now(),
        })
    }

    /// Returns the number of bytes that could not be written.
    pub fn refused(&self) -> u64 {
        self.refused_bytes
    }

    /// Finishes the output.
    pub fn close(&mut self) {
        let nothing = self.sink.bytes() == 0;
        self.sink.end(nothing);
    }

    /// Updates the header as a recorder does: readers trust data read between two equal states.
    fn patch(&mut self, header: &ChunkHeader, state: u8) -> io::Result<()> {
        let bytes = ChunkHeader { state, ..*header }.encode();
        let at = |offset: usize| FileOffset(offset as u64);
        self.sink.patch(at(STATE), &[STATE_UPDATING])?;
        self.sink.patch(at(PATCHED.start), &bytes[PATCHED])?;
        self.sink.patch(at(STATE), &bytes[STATE..])
    }

    fn try_grow(&mut self, bytes: &[u8], header: &ChunkHeader) -> io::Result<()> {
        if std::mem::take(&mut self.begun) {
            self.sink.next_chunk()?;
            self.generation = STATE_FIRST;
            let mut first = bytes.to_vec();
            // With this size, a JDK waits for more.
            let begun = ChunkHeader {
                size: LEN as u64,
                checkpoint: ChunkOffset(0),
                metadata: ChunkOffset(0),
                duration_nanos: 0,
                state: STATE_FIRST,
                ..*header
            };
            first[..LEN].copy_from_slice(&begun.encode());
            self.sink.append(&first)?;
        } else {
            self.sink.append(bytes)?;
        }
        self.generation = if self.generation >= STATE_LAST { STATE_FIRST } else { self.generation + 1 };
        self.patch(header, self.generation)
    }
}

impl ChunkSink for RollingPlace {
    fn begin(&mut self, _: u64) -> io::Result<()> {
        (self.begun, self.refused) = (true, false);
        if self.tidied.elapsed() >= TIDY {
            self.tidied = Instant::now();
            repository::tidy(self.sink.repository());
        }
        Ok(())
    }

    fn grow(&mut self, bytes: &[u8], header: &ChunkHeader) -> io::Result<()> {
        let before = self.sink.position();
        if !self.refused
            && let Err(error) = self.try_grow(bytes, header)
        {
            self.refused = true;
            let name = self.sink.repository().root.display().to_string();
            if !std::mem::replace(&mut self.told, true) {
                diagnostics::warning(format_args!("{name}: {error}; the rest of this chunk is missing"));
            }
            // The data written so far remains a valid chunk.
            if before >= LEN as u64 {
                let _ = self.sink.patch(FileOffset(STATE as u64), &[STATE_FINISHED]);
            }
            self.sink.close();
        }
        if self.refused {
            self.refused_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    fn end(&mut self, header: &ChunkHeader, last: bool) -> io::Result<()> {
        use jfr_format::constants::FLAG_FINAL;
        if self.refused {
            return Ok(());
        }
        let flags = if last { header.flags | FLAG_FINAL } else { header.flags & !FLAG_FINAL };
        self.patch(&ChunkHeader { flags, ..*header }, STATE_FINISHED)?;
        self.sink.close();
        Ok(())
    }
}

/// Finishes chunks of a killed collector; each is as long as its header states.
fn finish(root: &Path) -> io::Result<()> {
    for folder in repository::folders(root)? {
        let collected = |owner: &Owner| owner.labels.iter().any(|label| label.0 == "collected");
        if repository::in_use(&folder) || !Owner::read(&folder).as_ref().is_some_and(collected) {
            continue;
        }
        for chunk in repository::chunks(&folder)? {
            let Ok(file) = OpenOptions::new().read(true).write(true).open(&chunk) else { continue };
            let mut bytes = [0; LEN];
            let header =
                file.read_exact_at(&mut bytes, 0).ok().and_then(|()| ChunkHeader::decode(&bytes).ok());
            match header {
                Some(header) if header.state == STATE_FINISHED => {}
                Some(header) if header.size > LEN as u64 && header.size <= file.metadata()?.len() => {
                    file.set_len(header.size)?;
                    file.write_all_at(&[STATE_FINISHED], STATE as u64)?;
                }
                // The header was never completed.
                _ => std::fs::remove_file(&chunk)?,
            }
        }
    }
    Ok(())
}
