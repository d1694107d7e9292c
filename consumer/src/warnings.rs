//! Warnings of an input, in bounded memory.

use jfr_format::error::{Error, ErrorKind};

/// Maximum number of warnings that are stored; a hostile file can have one every three bytes.
const KEPT: usize = 1000;

/// Warnings of one input: the first ones are stored, the others counted.
#[derive(Debug, Default)]
pub struct Warnings {
    kept: Vec<Error>,
    more: u64,
    damage: bool,
}

/// Returns true if an undamaged input would have had more data.
pub(crate) fn is_damage(warning: &Error) -> bool {
    // No reader can decode events of an undeclared type.
    !matches!(
        warning.kind(),
        ErrorKind::UnknownEvents { .. } | ErrorKind::UnknownTypes { .. } | ErrorKind::Nonconformance(_)
    )
}

impl Warnings {
    /// Adds a warning.
    pub fn push(&mut self, warning: Error) {
        self.damage |= is_damage(&warning);
        if self.kept.len() < KEPT {
            self.kept.push(warning);
        } else {
            self.more += 1;
        }
    }

    /// Adds the warnings of a later part of the same input.
    pub fn merge(&mut self, later: Self) {
        let damage = self.damage || later.damage;
        self.more += later.more;
        self.extend(later.kept);
        self.damage = damage;
    }

    /// Returns the stored warnings.
    pub fn stored(&self) -> &[Error] {
        &self.kept
    }

    /// Returns the number of warnings.
    pub fn len(&self) -> u64 {
        self.kept.len() as u64 + self.more
    }

    /// Returns true if there are no warnings.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns true if an undamaged input would have had more data.
    pub fn damage(&self) -> bool {
        self.damage
    }
}

impl Extend<Error> for Warnings {
    fn extend<I: IntoIterator<Item = Error>>(&mut self, warnings: I) {
        warnings.into_iter().for_each(|warning| self.push(warning));
    }
}
