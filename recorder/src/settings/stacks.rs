//! Settings of stacks.

use flightline_in_signal::layout::MAX_DEPTH;

use super::hold;
use crate::error::Error;

/// Default depth of a stack, in frames.
pub const DEFAULT_DEPTH: u32 = 1024;

/// The stacks of samples.
#[derive(Clone, Debug)]
pub struct StackSettings {
    /// Limit of frames per stack, at most [`MAX_DEPTH`].
    pub depth: u32,
    /// Frames contain code addresses instead of source lines and inlined functions.
    pub addresses: bool,
}

impl Default for StackSettings {
    fn default() -> StackSettings {
        StackSettings { depth: DEFAULT_DEPTH, addresses: false }
    }
}

impl StackSettings {
    /// Returns an error if the depth is out of range.
    pub(super) fn check(&self) -> Result<(), Error> {
        let depth = self.depth;
        hold((1..=MAX_DEPTH).contains(&(depth as usize)), "depth", || {
            format!("{depth} is not between 1 and {MAX_DEPTH} frames")
        })
    }
}
