//! Prints the events of a window on several threads. Threads take turns of a few events; the output is
//! written in order.

use std::io::Write;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use jfr_format::error::Error as Warning;
use jfr_format::read::Chunk;

use super::STACK;
use super::printer::{BLOCK, EventWriter};
use super::window::{EventPosition, Window};
use crate::error::Error;
use crate::warnings::Warnings;

/// Events per turn.
const TURN: usize = 512;
/// Maximum number of output pieces per thread that wait to be written.
const AHEAD: usize = 2;

/// Returns true if this number of events justifies starting threads.
pub(super) fn worth_it(events: usize) -> bool {
    events >= 8 * TURN
}

/// A piece of output; `last` is true at the end of a turn.
struct OutputPiece {
    bytes: Vec<u8>,
    warnings: Vec<Warning>,
    last: bool,
}

/// Prints the events of a window. `any` is true if an event was printed before.
pub(super) fn print(
    writers: &mut [Box<dyn EventWriter>],
    chunk: &Chunk,
    window: &Window,
    any: bool,
    warnings: &mut Warnings,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let (threads, turns) = (writers.len(), window.places().len().div_ceil(TURN));
    thread::scope(|scope| {
        let mut lanes = Vec::with_capacity(threads);
        for (first, writer) in writers.iter_mut().enumerate() {
            let (sender, pieces) = mpsc::sync_channel(AHEAD);
            let (spare, spares) = mpsc::channel();
            let lane = Lane { writer: writer.as_mut(), chunk, window, sender, spares };
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, move || lane.run(first, threads, any)).map_err(Error::Write)?;
            lanes.push((pieces, spare));
        }
        (0..turns).try_for_each(|turn| take(&lanes[turn % threads], warnings, out))
    })
}

/// Writes the pieces of one turn. Returning early ends the threads, because the channel closes.
fn take(
    (pieces, spare): &(Receiver<OutputPiece>, Sender<Vec<u8>>),
    warnings: &mut Warnings,
    out: &mut dyn Write,
) -> Result<(), Error> {
    // A closed channel means that the thread has panicked; the scope propagates the panic.
    while let Ok(piece) = pieces.recv() {
        out.write_all(&piece.bytes).map_err(Error::Write)?;
        warnings.extend(piece.warnings);
        // A finished thread takes no buffer back.
        let _ = spare.send(piece.bytes);
        if piece.last {
            break;
        }
    }
    Ok(())
}

/// The part of one thread.
struct Lane<'p> {
    writer: &'p mut dyn EventWriter,
    chunk: &'p Chunk,
    window: &'p Window,
    sender: SyncSender<OutputPiece>,
    spares: Receiver<Vec<u8>>,
}

impl Lane<'_> {
    fn run(mut self, first: usize, threads: usize, any: bool) {
        self.writer.chunk(self.chunk);
        for (turn, places) in self.window.places().chunks(TURN).enumerate().skip(first).step_by(threads) {
            if !self.turn(places, any || turn > 0) {
                return;
            }
        }
    }

    /// Prints one turn; returns false if the receiver is gone.
    fn turn(&mut self, places: &[EventPosition], mut any: bool) -> bool {
        let mut bytes = self.spares.try_recv().unwrap_or_default();
        bytes.clear();
        let mut warnings = Vec::new();
        for place in places {
            let Some(event) = self.window.event(self.chunk, place) else { continue };
            if any {
                bytes.extend_from_slice(self.writer.between());
            }
            any = true;
            warnings.extend(self.writer.event(&event, &mut bytes).err());
            if bytes.len() >= BLOCK {
                let spare = self.spares.try_recv().unwrap_or_default();
                let full = std::mem::replace(&mut bytes, spare);
                bytes.clear();
                let piece = OutputPiece { bytes: full, warnings: std::mem::take(&mut warnings), last: false };
                if self.sender.send(piece).is_err() {
                    return false;
                }
            }
        }
        self.sender.send(OutputPiece { bytes, warnings, last: true }).is_ok()
    }
}
