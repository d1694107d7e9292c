//! Limits the output for one event: by references, a small file can describe an endless tree.

use jfr_format::error::{Error, Malformed};
use jfr_format::event::EventRef;

/// Maximum number of values of one event; the rest is omitted.
const MAX_VALUES: usize = 1 << 18;
/// Maximum number of bytes of one event, likewise.
const MAX_BYTES: usize = 32 << 20;

/// The remaining budget of an event.
#[derive(Debug, Default)]
pub(super) struct Budget {
    pub(super) values: usize,
    /// Length of the output at which the event becomes too long.
    pub(super) end: usize,
    /// A part of the event was omitted.
    lost: bool,
}

impl Budget {
    /// Starts an event, or a constant that is defined with it, after `len` bytes of output.
    pub(super) fn start(&mut self, len: usize) {
        (self.values, self.end) = (MAX_VALUES, len.saturating_add(MAX_BYTES));
    }

    /// Returns true if one more value may follow after `len` bytes of output.
    pub(super) fn spend(&mut self, len: usize) -> bool {
        if self.values == 0 || len >= self.end {
            self.lost = true;
            return false;
        }
        self.values -= 1;
        true
    }

    /// Records that something was omitted.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// Returns `outcome`, or an error if a part of `event` was omitted since the last call.
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
