//! The events of a window printed by several threads: in turn, each prints the next few; what they print is written in
//! order.

use std::io::Write;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use jfr_format::error::Error as Warning;
use jfr_format::read::Chunk;

use super::STACK;
use super::printer::{BLOCK, EventWriter};
use super::window::{Place, Window};
use crate::error::Error;
use crate::warnings::Warnings;

/// Events a thread prints before it is the next one's turn.
const TURN: usize = 512;
/// Pieces of output that may wait to be written, per thread.
const AHEAD: usize = 2;

/// Whether so many events are worth the start of threads.
pub(super) fn worth_it(events: usize) -> bool {
    events >= 8 * TURN
}

/// Some output; `last` of a turn.
struct Piece {
    bytes: Vec<u8>,
    warnings: Vec<Warning>,
    last: bool,
}

/// Prints the events of a window; `any` says that something was printed before.
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

/// Writes the pieces of one turn. Leaving early ends the threads: nobody takes what they send.
fn take(
    (pieces, spare): &(Receiver<Piece>, Sender<Vec<u8>>),
    warnings: &mut Warnings,
    out: &mut dyn Write,
) -> Result<(), Error> {
    // No sender: the thread has panicked, which the scope passes on.
    while let Ok(piece) = pieces.recv() {
        out.write_all(&piece.bytes).map_err(Error::Write)?;
        warnings.extend(piece.warnings);
        // A thread that is done takes nothing back.
        let _ = spare.send(piece.bytes);
        if piece.last {
            break;
        }
    }
    Ok(())
}

/// One thread's part.
struct Lane<'p> {
    writer: &'p mut dyn EventWriter,
    chunk: &'p Chunk,
    window: &'p Window,
    sender: SyncSender<Piece>,
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

    /// `false` if nobody wants more.
    fn turn(&mut self, places: &[Place], mut any: bool) -> bool {
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
                let piece = Piece { bytes: full, warnings: std::mem::take(&mut warnings), last: false };
                if self.sender.send(piece).is_err() {
                    return false;
                }
            }
        }
        self.sender.send(Piece { bytes, warnings, last: true }).is_ok()
    }
}
