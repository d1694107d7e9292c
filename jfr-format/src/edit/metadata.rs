//! Changes metadata events: another id, other type ids, a region.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;

use crate::cursor::Cursor;
use crate::strings::{self, StringRef};
use crate::types::Types;
use crate::varint;

/// New ids of types, old to new.
pub(super) type TypeIds = HashMap<u64, u64>;

/// Ids of metadata: if the ids are equal, the JDK uses the types of the previous chunk.
#[derive(Default)]
pub(super) struct Ids {
    of: HashMap<u64, Bytes>,
    /// Ids by their length in bytes and the declared types.
    by_tree: HashMap<(usize, Bytes), u64>,
    /// By the length of an id in bytes: the next candidate for a free one, counting down.
    free: HashMap<usize, u64>,
}

impl Ids {
    /// Returns the id that this content needs instead of its own; `None` if it can retain its own.
    pub(super) fn other(&mut self, content: &Bytes) -> Option<u64> {
        let (id, tree) = id_and_tree(content)?;
        let len = varint::len(id);
        match self.of.get(&id) {
            None => {
                self.take(id, len, tree);
                None
            }
            Some(same) if *same == tree => None,
            // The same length, so that no byte moves; ids of one byte are enough for 128 sets of types.
            Some(_) => match self.by_tree.get(&(len, tree.clone())) {
                Some(&known) => Some(known),
                None => self.fresh(len, tree),
            },
        }
    }

    /// Returns an id that was not used before, and reserves it.
    pub(super) fn unused(&mut self) -> Option<u64> {
        (1..=3).find_map(|len| self.fresh(len, Bytes::new()))
    }

    fn take(&mut self, id: u64, len: usize, tree: Bytes) {
        self.by_tree.entry((len, tree.clone())).or_insert(id);
        self.of.insert(id, tree);
    }

    fn fresh(&mut self, len: usize, tree: Bytes) -> Option<u64> {
        let last = if len >= 3 { 1 << 16 } else { (1 << (7 * len)) - 1 };
        let mut id = self.free.get(&len).copied().unwrap_or(last);
        while id > 0 && self.of.contains_key(&id) {
            id -= 1;
        }
        self.free.insert(len, id.saturating_sub(1));
        if id == 0 {
            return None;
        }
        self.take(id, len, tree);
        Some(id)
    }
}

/// Returns the id of a metadata event's content, and the bytes after it.
pub(super) fn id_and_tree(content: &Bytes) -> Option<(u64, Bytes)> {
    let mut cursor = Cursor::new(content);
    cursor.skip_varints(2).ok()?;
    let id = cursor.varint().ok()?;
    Some((id, content.slice(cursor.pos()..)))
}

/// Returns the range of the id in a metadata event.
pub(super) fn id_place(content: &[u8]) -> Option<Range<usize>> {
    let mut cursor = Cursor::new(content);
    cursor.skip_varints(2).ok()?;
    let from = cursor.pos();
    cursor.varint().ok()?;
    Some(from..cursor.pos())
}

/// Encodes `value` in exactly `len` bytes.
pub(super) fn in_bytes(value: u64, len: usize) -> Option<Vec<u8>> {
    if varint::len(value) > len || len > varint::MAX_LEN {
        return None;
    }
    let mut out: Vec<u8> = (0..len).map(|i| (value >> (7 * i)) as u8 | 0x80).collect();
    match len {
        9 => out[8] = (value >> 56) as u8,
        _ => out[len - 1] &= 0x7f,
    }
    Some(out)
}

/// Ids of types across several recordings: if two use one id for different types, the second one's get new
/// ids.
#[derive(Default)]
pub(super) struct TypeSpace {
    /// The first use of each id, and whether the type had constants.
    names: HashMap<u64, (String, bool)>,
    /// The ids of the current recording and their new values.
    mapped: HashMap<(u64, String), u64>,
    next: u64,
}

impl TypeSpace {
    /// Begins another recording, with other constants.
    pub(super) fn begin(&mut self) {
        self.mapped.clear();
    }

    /// Returns the ids that must change in a chunk of the current recording; `pooled` are the types with
    /// constants.
    pub(super) fn enter(&mut self, types: &Types, pooled: &HashSet<u64>) -> TypeIds {
        let own: HashSet<u64> = types.classes().iter().map(|class| class.id).collect();
        let mut changed = TypeIds::new();
        for class in types.classes() {
            let key = (class.id, class.name.to_string());
            let with_constants = pooled.contains(&class.id);
            let new = match self.mapped.get(&key) {
                Some(&new) => new,
                None => {
                    let clashes = self
                        .names
                        .get(&class.id)
                        .is_some_and(|(name, constants)| *name != *class.name || *constants);
                    let new = if clashes { self.unused(&own) } else { class.id };
                    self.mapped.insert(key, new);
                    new
                }
            };
            self.names.entry(new).or_insert_with(|| (class.name.to_string(), false)).1 |= with_constants;
            if new != class.id {
                changed.insert(class.id, new);
            }
        }
        changed
    }

    fn unused(&mut self, own: &HashSet<u64>) -> u64 {
        // Above the range in which JVMs number their types.
        self.next = self.next.max(1 << 15);
        while self.names.contains_key(&self.next) || own.contains(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        self.next - 1
    }
}

/// Returns the content of a metadata event with a region, which the JDK requires, if it has none; with
/// another id; and with other ids of types.
pub(super) fn metadata(content: &[u8], types: &Types, id: Option<u64>, type_ids: &TypeIds) -> Vec<u8> {
    let edited = edit(content, types.region.is_none(), id, type_ids);
    edited.unwrap_or_else(|| content.to_vec())
}

/// Strings of a metadata event, and added ones.
struct Strings<'a> {
    known: Vec<StringRef<'a>>,
    added: Vec<String>,
    /// Indexes of the strings of added type ids.
    ids: HashMap<u64, u64>,
}

impl Strings<'_> {
    fn is(&self, index: u64, text: &str) -> bool {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        matches!(self.known.get(index), Some(StringRef::Text(known)) if known == text)
    }

    fn number(&self, index: u64) -> Option<u64> {
        match self.known.get(usize::try_from(index).ok()?)? {
            StringRef::Text(text) => text.parse().ok().or_else(|| text.parse().ok().map(i64::cast_unsigned)),
            _ => None,
        }
    }

    fn id(&mut self, id: u64) -> u64 {
        match self.ids.get(&id) {
            Some(&at) => at,
            None => {
                let at = self.add(id.to_string());
                self.ids.insert(id, at);
                at
            }
        }
    }

    fn add(&mut self, text: String) -> u64 {
        self.added.push(text);
        (self.known.len() + self.added.len() - 1) as u64
    }
}

fn edit(content: &[u8], region: bool, id: Option<u64>, type_ids: &TypeIds) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(content);
    let mut out = Vec::with_capacity(content.len() + 64);
    varint::put(&mut out, cursor.varint().ok()?);
    varint::put(&mut out, cursor.varint().ok()?);
    let old = cursor.varint().ok()?;
    varint::put(&mut out, id.unwrap_or(old));
    if !region && type_ids.is_empty() {
        out.extend_from_slice(&content[cursor.pos()..]);
        return Some(out);
    }
    let count = cursor.count().ok()?;
    let table = cursor.pos();
    let mut strings = Strings { known: Vec::new(), added: Vec::new(), ids: HashMap::new() };
    for _ in 0..count {
        strings.known.push(cursor.string().ok()?);
    }
    let table = &content[table..cursor.pos()];
    let mut tree = Vec::with_capacity(content.len());
    element(&mut cursor, &mut strings, type_ids, &mut tree)?;
    let children = cursor.varint().ok()?;
    varint::put(&mut tree, children + u64::from(region));
    let mut left = children;
    // The number of elements to come. Each takes at least one byte, so the loop ends.
    while left > 0 {
        element(&mut cursor, &mut strings, type_ids, &mut tree)?;
        let children = cursor.varint().ok()?;
        varint::put(&mut tree, children);
        left = (left - 1).checked_add(children)?;
    }
    if region {
        let [name, locale, value, offset, zero] =
            ["region", "locale", "en_US", "gmtOffset", "0"].map(|s| strings.add(s.to_owned()));
        for value in [name, 2, locale, value, offset, zero, 0] {
            varint::put(&mut tree, value);
        }
    }
    varint::put(&mut out, (count + strings.added.len()) as u64);
    out.extend_from_slice(table);
    strings.added.iter().for_each(|s| strings::put(&mut out, s));
    out.extend_from_slice(&tree);
    Some(out)
}

/// Copies name and attributes of an element.
fn element(
    cursor: &mut Cursor<'_>,
    strings: &mut Strings<'_>,
    type_ids: &TypeIds,
    out: &mut Vec<u8>,
) -> Option<()> {
    let name = cursor.varint().ok()?;
    varint::put(out, name);
    let names_type = if strings.is(name, "class") { "id" } else { "class" };
    let attributes = cursor.varint().ok()?;
    varint::put(out, attributes);
    for _ in 0..attributes {
        let (key, mut value) = (cursor.varint().ok()?, cursor.varint().ok()?);
        if !type_ids.is_empty()
            && strings.is(key, names_type)
            && let Some(new) = strings.number(value).and_then(|old| type_ids.get(&old))
        {
            value = strings.id(*new);
        }
        varint::put(out, key);
        varint::put(out, value);
    }
    Some(())
}
