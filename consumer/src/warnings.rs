//! What could not be read, in bounded memory.

use jfr_format::error::{Error, ErrorKind};

/// Kept in full; a hostile file can hold one fault every three bytes.
const KEPT: usize = 1000;

/// Warnings of one input: the first ones in full, the others counted.
#[derive(Debug, Default)]
pub struct Warnings {
    kept: Vec<Error>,
    more: u64,
    damage: bool,
}

/// Whether something was lost that a sound input would have given.
pub(crate) fn is_damage(warning: &Error) -> bool {
    // Nobody could have read events of a type nobody declared.
    !matches!(
        warning.kind(),
        ErrorKind::UnknownEvents { .. } | ErrorKind::UnknownTypes { .. } | ErrorKind::Nonconformance(_)
    )
}

impl Warnings {
    /// Adds one.
    pub fn push(&mut self, warning: Error) {
        self.damage |= is_damage(&warning);
        if self.kept.len() < KEPT {
            self.kept.push(warning);
        } else {
            self.more += 1;
        }
    }

    /// Adds those of what comes later in the same input.
    pub fn merge(&mut self, later: Self) {
        let damage = self.damage || later.damage;
        self.more += later.more;
        self.extend(later.kept);
        self.damage = damage;
    }

    /// The first ones.
    pub fn kept(&self) -> &[Error] {
        &self.kept
    }

    /// How many there were.
    pub fn len(&self) -> u64 {
        self.kept.len() as u64 + self.more
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether something was lost that a sound input would have given.
    pub fn damage(&self) -> bool {
        self.damage
    }
}

impl Extend<Error> for Warnings {
    fn extend<I: IntoIterator<Item = Error>>(&mut self, warnings: I) {
        warnings.into_iter().for_each(|warning| self.push(warning));
    }
}
