//! Labels that belong to a span, whether it is active or not.

use core::fmt;

use crate::context::{LabelError, key_index};
use crate::record::{ATTRS_MAX, Record};

/// Labels of a span, as a record holds them ([`Record::attrs`]).
#[derive(Clone)]
pub struct Labels {
    len: u16,
    bytes: [u8; ATTRS_MAX],
}

impl Default for Labels {
    fn default() -> Labels {
        Labels { len: 0, bytes: [0; ATTRS_MAX] }
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(crate::record::labels(self.bytes())).finish()
    }
}

impl Labels {
    /// None.
    pub fn new() -> Labels {
        Labels::default()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Labels {
        let mut labels = Labels::new();
        labels.len = bytes.len() as u16;
        labels.bytes[..bytes.len()].copy_from_slice(bytes);
        labels
    }

    /// As a record holds them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Sets a label; its value is cut at 255 bytes, between characters.
    ///
    /// # Errors
    /// See [`LabelError`]; the labels are as they were.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), LabelError> {
        let key = key_index(key)?;
        let mut record = Record::empty();
        if record.append_without(self.bytes(), key) && record.append(key, value) {
            *self = Labels::from_bytes(record.labels());
            Ok(())
        } else {
            Err(LabelError::Full)
        }
    }
}
