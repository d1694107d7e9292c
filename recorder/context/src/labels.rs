//! Labels that belong to a span, whether it is active or not.

use core::fmt;

use crate::record::{ATTRS_MAX, Record};
use crate::recorder::recorder;

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

/// Why a label was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LabelError {
    /// Nothing is entered on this thread.
    NoSpan,
    /// The key is empty or too long, or the process has 256 keys already.
    Key,
    /// The labels would take more than [`ATTRS_MAX`] bytes.
    Full,
}

/// Index of a key in the process's table.
pub(crate) fn key_index(key: &str) -> Result<u8, LabelError> {
    // SAFETY: a string.
    let index = unsafe { (recorder().key)(key.as_ptr(), key.len()) };
    u8::try_from(index).map_err(|_| LabelError::Key)
}

/// Name of a key in the process's table.
pub(crate) fn key_name(index: u8) -> Option<&'static str> {
    let mut len = 0;
    // SAFETY: `len` is written only; the answer is a name that stays, of that length.
    unsafe {
        let name = (recorder().key_name)(index, &mut len);
        if name.is_null() {
            return None;
        }
        core::str::from_utf8(core::slice::from_raw_parts(name, len)).ok()
    }
}
