//! What one event may become: references can make a small file describe an endless tree.

use jfr_format::error::{Error, Malformed};
use jfr_format::event::EventRef;

/// Values of one event before the rest is left out.
const MAX_VALUES: usize = 1 << 18;
/// Bytes of one event, likewise.
const MAX_BYTES: usize = 32 << 20;

/// What an event may still have.
#[derive(Debug, Default)]
pub(super) struct Budget {
    pub(super) values: usize,
    /// Length of the output at which the event is too long.
    pub(super) end: usize,
    /// Something of the event was left out.
    lost: bool,
}

impl Budget {
    /// An event, or a constant told beside it, begins behind `len` bytes of output.
    pub(super) fn start(&mut self, len: usize) {
        (self.values, self.end) = (MAX_VALUES, len.saturating_add(MAX_BYTES));
    }

    /// Whether one more value may stand behind `len` bytes of output.
    pub(super) fn spend(&mut self, len: usize) -> bool {
        if self.values == 0 || len >= self.end {
            self.lost = true;
            return false;
        }
        self.values -= 1;
        true
    }

    /// Something has to be left out.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// What came of `event`; says so if something of it was left out since the last call.
    pub(super) fn outcome(&mut self, event: &EventRef<'_>, outcome: Result<(), Error>) -> Result<(), Error> {
        let lost = std::mem::take(&mut self.lost);
        outcome?;
        if !lost {
            return Ok(());
        }
        let within = format!("{}, of which the rest is left out", event.class().name);
        Err(Error::from_fault(Malformed::Values, event.offset(), event.chunk().index, within))
    }
}
