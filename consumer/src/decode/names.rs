//! Names of a chunk. Each is decoded and stored once, for all constants that share it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{StructRef, Value};
use jfr_format::pool::KeyHash;

/// Longer names are cut: a few bytes of a recording can refer to a name of megabytes any number of times.
pub(crate) const LONGEST: usize = 4096;
/// Marks a name that was cut.
const CUT: char = '…';
/// Maximum length of a chain of references to a text.
const MAX_DEPTH: usize = 8;

/// Names found in the current chunk.
#[derive(Debug, Default)]
pub(crate) struct Names {
    kept: HashSet<Arc<str>, KeyHash>,
    /// By type id and key of the constant; `None` if it has no readable text.
    by_constant: HashMap<(u64, u64), Option<Arc<str>>, KeyHash>,
}

impl Names {
    /// Returns the text of a string, or of a struct with one string, and follows references; `None` if it
    /// is something else.
    ///
    /// # Errors
    /// A constant is malformed. This is reported once; afterwards it has no text.
    pub(crate) fn text(&mut self, value: Value<'_>) -> Result<Option<Arc<str>>, Error> {
        self.followed(value, 0)
    }

    /// Returns the text of the field `name`.
    ///
    /// # Errors
    /// As for [`Names::text`], or a field is malformed.
    pub(crate) fn field_text(
        &mut self,
        record: &StructRef<'_>,
        name: &str,
    ) -> Result<Option<Arc<str>>, Error> {
        match record.field(name)? {
            Some(value) => self.text(value),
            None => Ok(None),
        }
    }

    fn followed(&mut self, value: Value<'_>, depth: usize) -> Result<Option<Arc<str>>, Error> {
        match value {
            _ if depth > MAX_DEPTH => Ok(None),
            Value::Text(text) => Ok(Some(self.keep(&text.to_str()))),
            Value::Struct(record) if record.class().fields.len() == 1 => match record.iter().next() {
                Some(field) => self.followed(field?.1, depth + 1),
                None => Ok(None),
            },
            Value::Reference(reference) => {
                let Some(class) = reference.class() else { return Ok(None) };
                let constant = (class.id, reference.key());
                if let Some(known) = self.by_constant.get(&constant) {
                    return Ok(known.clone());
                }
                self.by_constant.insert(constant, None);
                let text = match reference.resolve()? {
                    Some(value) => self.followed(value, depth + 1)?,
                    None => None,
                };
                self.by_constant.insert(constant, text.clone());
                Ok(text)
            }
            _ => Ok(None),
        }
    }

    /// Returns the number of cached entries.
    pub(crate) fn len(&self) -> usize {
        self.kept.len() + self.by_constant.len()
    }

    /// Returns the shared copy of `text`.
    pub(crate) fn keep(&mut self, text: &str) -> Arc<str> {
        let text = cut(text);
        if let Some(known) = self.kept.get(&*text) {
            return known.clone();
        }
        let kept: Arc<str> = Arc::from(text);
        self.kept.insert(kept.clone());
        kept
    }
}

/// Cuts a long text and marks it.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST {
        return Cow::Borrowed(text);
    }
    let head = &text[..text.floor_char_boundary(LONGEST - CUT.len_utf8())];
    Cow::Owned(format!("{head}{CUT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut names = Names::default();
        let exact = "x".repeat(LONGEST);
        assert_eq!(*names.keep(&exact), *exact);
        for long in [format!("{exact}x"), "\u{1f980}".repeat(LONGEST)] {
            let kept = names.keep(&long);
            let head = kept.strip_suffix(CUT).unwrap();
            assert!(long.starts_with(head) && kept.len() <= LONGEST && kept.len() > LONGEST - 8);
            assert!(Arc::ptr_eq(&kept, &names.keep(&long)));
        }
    }
}
