//! Input as a whole.

use std::fs::File;
use std::path::Path;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::read::map;

/// Maps the regular file at `path`.
///
/// # Errors
/// The file cannot be opened or mapped.
pub fn open(path: &Path) -> Result<Bytes> {
    let file = File::open(path).map_err(|e| Error::io(e, 0))?;
    Ok(map::Mapped::file(&file).map_err(|e| Error::io(e, 0))?.bytes())
}
