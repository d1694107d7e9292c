//! Values written anew: text replaced by a mark.

use super::scan::Framed;
use crate::constants::STRING_NULL;
use crate::error::Malformed;
use crate::read::cursor::Cursor;
use crate::read::layout::{self, MAX_DEPTH};
use crate::read::{Class, ClassIndex, Field, Kind, Types};
use crate::{strings, varint};

/// Which text to replace, and by what.
#[derive(Clone, Copy)]
pub struct Redaction<'a> {
    /// What stands in place of each text. Fields that hold a key into a pool get the null key instead, null stays null.
    pub mark: &'a str,
    /// Whether the text of this field of this type, an event's or a constant's, goes.
    pub fields: &'a dyn Fn(&Class, &Field) -> bool,
}

impl std::fmt::Debug for Redaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redaction").field("mark", &self.mark).finish_non_exhaustive()
    }
}

/// The same for the types of one chunk.
#[derive(Debug, Default)]
pub(super) struct Rewrite {
    /// The mark as a string.
    mark: Vec<u8>,
    /// By class: which fields go; empty where none of the class, nor of what lies within it, does.
    fields: Vec<Vec<bool>>,
}

impl Rewrite {
    /// Looks the fields up.
    pub(super) fn new(types: &Types, redaction: &Redaction<'_>) -> Self {
        let classes = types.classes();
        let text =
            |field: &Field| field.class.and_then(|index| types.class(index)).is_some_and(|c| c.textual);
        let of = |class: &Class| {
            let goes = |field: &Field| text(field) && (redaction.fields)(class, field);
            class.fields.iter().map(goes).collect::<Vec<bool>>()
        };
        let mut fields: Vec<Vec<bool>> = classes.iter().map(of).collect();
        let mut touched: Vec<bool> = fields.iter().map(|fields| fields.contains(&true)).collect();
        for _ in 0..MAX_DEPTH {
            let within = |class: &Class| {
                let inline = class.fields.iter().filter(|field| !field.pooled);
                inline.filter_map(|field| field.class).any(|index| touched.get(index.index()) == Some(&true))
            };
            let next: Vec<bool> =
                classes.iter().zip(&touched).map(|(c, &touched)| touched || within(c)).collect();
            if next == touched {
                break;
            }
            touched = next;
        }
        for (fields, _) in fields.iter_mut().zip(&touched).filter(|(_, touched)| !**touched) {
            fields.clear();
        }
        let mut mark = Vec::new();
        strings::put(&mut mark, redaction.mark);
        Self { mark, fields }
    }

    /// Whether values of the class may have to be written anew.
    #[inline]
    pub(super) fn touches(&self, class: ClassIndex) -> bool {
        self.fields.get(class.index()).is_some_and(|fields| !fields.is_empty())
    }

    /// Appends a value, with what follows it in `bytes`; gives how many texts were replaced.
    pub(super) fn value(
        &self,
        types: &Types,
        class: ClassIndex,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u64, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let replaced = self.fields(types, class, bytes, &mut cursor, out, false, 0)?;
        out.extend_from_slice(&bytes[cursor.pos()..]);
        Ok(replaced)
    }

    /// Appends an event; gives how many texts were replaced. An event that cannot be read is not written.
    pub(super) fn event(
        &self,
        types: &Types,
        class: ClassIndex,
        bytes: &[u8],
        event: &Framed,
        out: &mut Vec<u8>,
    ) -> Result<u64, Malformed> {
        let mut value = Vec::with_capacity(event.end - event.payload);
        let replaced = self.value(types, class, &bytes[event.payload..event.end], &mut value)?;
        put_event(out, event.type_id, &value);
        Ok(replaced)
    }

    #[allow(clippy::too_many_arguments)] // a walk with a place to write to
    fn fields(
        &self,
        types: &Types,
        class: ClassIndex,
        bytes: &[u8],
        cursor: &mut Cursor<'_>,
        out: &mut Vec<u8>,
        all: bool,
        depth: usize,
    ) -> Result<u64, Malformed> {
        let found = types.class(class).ok_or(Malformed::UnknownType)?;
        if depth > MAX_DEPTH {
            return Err(Malformed::Depth);
        }
        let mut replaced = 0;
        for (i, field) in found.fields.iter().enumerate() {
            let goes = all || self.fields.get(class.index()).and_then(|f| f.get(i)) == Some(&true);
            let target = field.class.and_then(|index| Some((index, types.class(index)?)));
            let into = target.filter(|(index, class)| {
                !class.nothing
                    && (goes || (class.kind == Kind::Struct && !field.pooled && self.touches(*index)))
            });
            let from = cursor.pos();
            let Some((index, target)) = into else {
                layout::skip_field(types.classes(), field, cursor, depth)?;
                out.extend_from_slice(&bytes[from..cursor.pos()]);
                continue;
            };
            let count = if field.array { cursor.count()? } else { 1 };
            out.extend_from_slice(&bytes[from..cursor.pos()]);
            for _ in 0..count {
                let from = cursor.pos();
                if field.pooled {
                    replaced += u64::from(cursor.varint()? != 0);
                    out.push(0);
                } else if target.kind == Kind::Text {
                    cursor.skip_string()?;
                    if bytes.get(from) == Some(&STRING_NULL) {
                        out.push(STRING_NULL);
                    } else {
                        out.extend_from_slice(&self.mark);
                        replaced += 1;
                    }
                } else {
                    replaced += self.fields(types, index, bytes, cursor, out, goes, depth + 1)?;
                }
            }
        }
        Ok(replaced)
    }
}

/// Appends an event: four bytes of size where they suffice, as every reader takes them.
pub(super) fn put_event(out: &mut Vec<u8>, type_id: u64, body: &[u8]) {
    put_event_head(out, type_id, body.len());
    out.extend_from_slice(body);
}

/// The same without its content.
pub(super) fn put_event_head(out: &mut Vec<u8>, type_id: u64, body: usize) {
    let rest = varint::len(type_id) + body;
    match u32::try_from(rest + 4).ok().and_then(varint::padded) {
        Some(size) => out.extend_from_slice(&size),
        None => varint::put(out, (rest + 5) as u64),
    }
    varint::put(out, type_id);
}
