//! Values written anew: text replaced by a mark; ticks by another clock; ids of types and keys by others.

use std::collections::HashMap;

use super::clock::Clock;
use super::keys::{self, Shift};
use super::metadata::TypeIds;
use super::scan::Framed;
use crate::constants::STRING_NULL;
use crate::cursor::Cursor;
use crate::error::Malformed;
use crate::strings::{self, StringRef};
use crate::types::layout::{self, MAX_DEPTH};
use crate::types::{Class, ClassIndex, Field, Kind, Types};
use crate::varint;

/// Which text to replace, and by what.
#[derive(Clone, Copy)]
pub struct Redaction<'a> {
    /// The text to write instead. Fields that hold a key into a pool get the null key, and null stays null.
    pub mark: &'a str,
    /// Returns what to do with the text of this field of this type, an event's or a constant's.
    pub fields: &'a dyn Fn(&Class, &Field) -> Redact,
    /// Finds the secrets of fields with [`Redact::Secrets`].
    pub secrets: FindSecrets,
}

/// Returns a text without its secrets, or `None` if it has none. The arguments are the text of the field `key` or `name`
/// in front of it, the text, and the mark.
pub type FindSecrets = fn(Option<&str>, &str, &str) -> Option<String>;

/// The treatment of the text of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redact {
    /// It stays.
    Keep,
    /// [`Redaction::secrets`] decides. Text in a pool other than that of `java.lang.String` is replaced.
    Secrets,
    /// All of it is replaced.
    All,
}

impl std::fmt::Debug for Redaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redaction").field("mark", &self.mark).finish_non_exhaustive()
    }
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Keep,
    /// Text, or what holds it: all of it goes.
    Mark,
    /// Text whose secrets go.
    Secrets,
    /// A point in time.
    Stamp,
    Span,
    /// The id of a type.
    Id,
    /// The key of a constant: so much larger.
    Key(u64),
}

/// The same for the types of one chunk.
#[derive(Debug, Default)]
pub(super) struct Rewrite {
    mark: String,
    secrets: Option<FindSecrets>,
    /// The pool of `java.lang.String`, if secrets are to be found in text that may refer to it.
    pooled: HashMap<u64, String>,
    pub(super) clock: Option<Clock>,
    type_ids: TypeIds,
    /// By class: what becomes of its fields; empty where all of the class, and of what lies within it, stay.
    fields: Vec<Vec<Change>>,
}

impl Rewrite {
    /// Replaces text. `pooled` returns the pool of `java.lang.String`; it is called if it is needed.
    pub(super) fn redact(
        types: &Types,
        redaction: &Redaction<'_>,
        pooled: impl FnOnce() -> HashMap<u64, String>,
    ) -> Self {
        let fields = changes(types, |class, _, field| {
            let of = field.class.and_then(|index| types.class(index));
            let Some(of) = of.filter(|of| of.textual) else { return Change::Keep };
            match (redaction.fields)(class, field) {
                Redact::Keep => Change::Keep,
                Redact::Secrets if of.kind == Kind::Text && !field.pooled => Change::Secrets,
                Redact::Secrets | Redact::All => Change::Mark,
            }
        });
        let needed = fields.iter().flatten().any(|&change| change == Change::Secrets);
        let pooled = if needed { pooled() } else { HashMap::new() };
        let (mark, secrets) = (redaction.mark.to_owned(), Some(redaction.secrets));
        Self { mark, secrets, pooled, fields, ..Self::default() }
    }

    /// Appends the text at the cursor without its secrets. Returns true if that changed it.
    fn without_secrets(
        &self,
        name: Option<&str>,
        bytes: &[u8],
        cursor: &mut Cursor<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Malformed> {
        let from = cursor.pos();
        let text = match cursor.string()? {
            StringRef::Null => None,
            StringRef::Text(text) => Some(text),
            // A key that the pool lacks has no text.
            StringRef::Pooled(key) => self.pooled.get(&key).map(|text| text.as_str().into()),
        };
        let find = |text: &str| (self.secrets?)(name, text, &self.mark);
        match text.as_deref().and_then(find) {
            Some(text) => strings::put(out, &text),
            None => {
                out.extend_from_slice(&bytes[from..cursor.pos()]);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The text at `at`: what a value behind it is called.
    fn name_at(&self, bytes: &[u8], at: usize) -> Option<String> {
        match Cursor::at(bytes, at).string().ok()? {
            StringRef::Text(text) => Some(text.into_owned()),
            StringRef::Pooled(key) => self.pooled.get(&key).cloned(),
            StringRef::Null => None,
        }
    }

    /// Gives ticks by another clock, and ids of types and keys of constants as they are now.
    pub(super) fn renumber(types: &Types, clock: Option<Clock>, type_ids: &TypeIds, keys: Shift) -> Self {
        let fields = changes(types, |class, i, field| {
            let ticks = |annotation| field.annotation(annotation).and_then(|a| a.value()) == Some("TICKS");
            let first = |at, name| class.is_event() && i == at && &*field.name == name;
            let number = field.class.and_then(|index| types.class(index));
            if field.pooled {
                match number.map_or(0, |of| keys.offset(&of.name)) {
                    0 => Change::Keep,
                    by => Change::Key(by),
                }
            } else if !number.is_some_and(|c| c.kind == Kind::Long) {
                Change::Keep
            } else if clock.is_some() && (ticks("jdk.jfr.Timestamp") || first(0, "startTime")) {
                Change::Stamp
            } else if clock.is_some() && (ticks("jdk.jfr.Timespan") || first(1, "duration")) {
                Change::Span
            } else if (&*class.name, &*field.name) == ("jdk.ActiveSetting", "id") && !type_ids.is_empty() {
                Change::Id
            } else {
                Change::Keep
            }
        });
        Self { clock, type_ids: type_ids.clone(), fields, ..Self::default() }
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

    fn number(&self, change: Change, old: u64) -> u64 {
        match (change, &self.clock) {
            (Change::Stamp, Some(clock)) => clock.stamp(old as i64) as u64,
            (Change::Span, Some(clock)) => clock.span(old as i64) as u64,
            (Change::Key(by), _) => keys::moved(old, by),
            (Change::Id, _) => self.type_ids.get(&old).copied().unwrap_or(old),
            _ => old,
        }
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
        let mut name = None;
        for (i, field) in found.fields.iter().enumerate() {
            let change = self.fields.get(class.index()).and_then(|f| f.get(i)).copied();
            let change = change.unwrap_or(Change::Keep);
            if !all && !matches!(change, Change::Keep | Change::Mark | Change::Secrets) {
                let count = if field.array { cursor.count()? } else { 1 };
                if field.array {
                    varint::put(out, count as u64);
                }
                for _ in 0..count {
                    varint::put(out, self.number(change, cursor.varint()?));
                }
                continue;
            }
            if self.secrets.is_some()
                && !field.array
                && !field.pooled
                && matches!(&*field.name, "key" | "name")
            {
                name = self.name_at(bytes, cursor.pos());
            }
            let goes = all || matches!(change, Change::Mark | Change::Secrets);
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
                } else if !all && change == Change::Secrets {
                    let changed = self.without_secrets(name.as_deref(), bytes, cursor, out)?;
                    replaced += u64::from(changed);
                } else if target.kind == Kind::Text {
                    cursor.skip_string()?;
                    if bytes.get(from) == Some(&STRING_NULL) {
                        out.push(STRING_NULL);
                    } else {
                        strings::put(out, &self.mark);
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

/// By class what becomes of its fields, by class, position and field.
fn changes(types: &Types, of: impl Fn(&Class, usize, &Field) -> Change) -> Vec<Vec<Change>> {
    let of = |class: &Class| class.fields.iter().enumerate().map(|(i, field)| of(class, i, field)).collect();
    let classes = types.classes();
    let mut fields: Vec<Vec<Change>> = classes.iter().map(of).collect();
    let mut touched: Vec<bool> =
        fields.iter().map(|fields| fields.iter().any(|&change| change != Change::Keep)).collect();
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
    fields
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
