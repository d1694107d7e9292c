//! Constant pools of one chunk: the position of each constant, by type and key.
//!
//! ```text
//! start  duration  delta  flags(1 byte)  poolCount  { typeId  count  { key  value }* }*
//! ```
//! Values are decoded on demand. The first definition of a key wins, as in the JDK, jfr-converter, jfrs and
//! the Go parser.
//!
//! A checkpoint is walked once, which records where its constants are. A pool is indexed at the first lookup
//! in it.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::cursor::Cursor;
use crate::error::{Malformed, Nonconformance, shortened};
use crate::strings::{OwnedText, TextRef};
use crate::types::layout;
use crate::types::{Class, ClassIndex, Kind, Types};

/// Head of a checkpoint event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHead {
    /// Signed distance to the previous checkpoint of the chain; 0 ends it.
    pub delta: i64,
    /// `CHECKPOINT_*` bits.
    pub flags: u8,
    /// Number of pools that follow.
    pub pools: usize,
}

impl CheckpointHead {
    /// Reads only the distance to the previous checkpoint.
    pub(crate) fn delta(cursor: &mut Cursor<'_>) -> Result<i64, Malformed> {
        cursor.skip_varints(2)?; // start, duration
        Ok(cursor.varint()? as i64)
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let delta = Self::delta(cursor)?;
        let flags = cursor.byte()?;
        Ok(Self { delta, flags, pools: cursor.count()? })
    }
}

/// The bytes of one checkpoint and their offset in the input.
#[derive(Debug)]
struct Segment {
    bytes: Bytes,
    offset: u64,
}

/// Maximum bytes of cached text per byte of checkpoint: UTF-16 grows threefold in UTF-8, and symbols and
/// strings share their text.
const TEXTS_PER_BYTE: usize = 4;

/// All constants of a chunk that have been read so far.
///
/// Reading a checkpoint only stores the positions of its constants, in file order. A pool gets its index at
/// the first lookup of a key: most pools of most recordings are never used.
#[derive(Debug, Default)]
pub struct Pools {
    segments: Vec<Segment>,
    by_class: Vec<Table>,
    hash: KeyHash,
    /// Sum of the segments' bytes.
    bytes: usize,
    /// Size of all cached texts in bytes.
    cached_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    lookup: OnceLock<Lookup>,
    /// Decoded texts of constants, by [`Lookup::slot`].
    texts: OnceLock<Vec<OnceLock<OwnedText>>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    place: Location,
}

/// The position of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Location {
    segment: u32,
    at: u32,
}

/// A constant's bytes, from its first byte to the end of its checkpoint, and their offset in the input.
#[derive(Clone, Copy, Debug)]
pub struct RawConstant<'a> {
    /// The value and the bytes after it.
    pub bytes: &'a [u8],
    /// Offset of the first byte in the input.
    pub offset: u64,
}

impl Pools {
    /// Returns the constant `key` of the pool of `class`.
    #[inline]
    pub fn get(&self, class: ClassIndex, key: u64) -> Option<RawConstant<'_>> {
        self.constant(self.by_class.get(class.0 as usize)?.get(key, &self.hash)?)
    }

    #[inline]
    fn constant(&self, place: Location) -> Option<RawConstant<'_>> {
        let segment = self.segments.get(place.segment as usize)?;
        let bytes = segment.bytes.get(place.at as usize..)?;
        Some(RawConstant { bytes, offset: segment.offset + u64::from(place.at) })
    }

    /// Returns the text of the constant `key` of the pool of `class`, if it is cached.
    #[inline]
    pub(crate) fn known_text(&self, class: ClassIndex, key: u64) -> Option<TextRef<'_>> {
        let table = self.by_class.get(class.0 as usize)?;
        let texts = table.texts.get()?;
        texts.get(table.lookup(&self.hash).slot(&table.entries, key, &self.hash)?)?.get().map(OwnedText::text)
    }

    /// Caches the text of a constant for the lifetime of the pools. The cache is limited to a small multiple
    /// of their size, because a constant of a few bytes may refer to the text of another one.
    pub(crate) fn keep_text(&self, class: ClassIndex, key: u64, text: Cow<'_, str>) -> Option<TextRef<'_>> {
        let table = self.by_class.get(class.0 as usize)?;
        let lookup = table.lookup(&self.hash);
        let none = || (0..lookup.slots(&table.entries)).map(|_| OnceLock::new()).collect();
        let slot = lookup.slot(&table.entries, key, &self.hash)?;
        let slot = table.texts.get_or_init(none).get(slot)?;
        if let Some(text) = slot.get() {
            return Some(text.text());
        }
        let before = self.cached_bytes.fetch_add(text.len(), Ordering::Relaxed);
        if before.saturating_add(text.len()) > TEXTS_PER_BYTE * self.bytes {
            self.cached_bytes.fetch_sub(text.len(), Ordering::Relaxed);
            return None;
        }
        Some(slot.get_or_init(|| text.into()).text())
    }

    /// Returns the number of constants in the pool of `class`.
    pub fn len(&self, class: ClassIndex) -> usize {
        self.keys(class).count()
    }

    /// Returns true if no constant has been read.
    pub fn is_empty(&self) -> bool {
        self.by_class.iter().all(|table| table.entries.is_empty())
    }

    /// Returns the keys of the pool of `class`, in the order of their definitions.
    pub fn keys(&self, class: ClassIndex) -> impl Iterator<Item = u64> + '_ {
        let table = self.by_class.get(class.0 as usize);
        table.into_iter().flat_map(|table| table.keys(&self.hash))
    }

    /// Returns constants that were defined again with other content, with their offsets, for pools that were
    /// used. Only types without references are checked: the JDK defines classes and methods again with other
    /// keys of the same symbols.
    pub(crate) fn redefined(&self, types: &Types) -> Vec<(Nonconformance, u64)> {
        let mut found = Vec::new();
        for (at, table) in self.by_class.iter().enumerate() {
            let class = ClassIndex(at as u32);
            let plain = |class: &&Class| {
                class.fields.iter().all(|f| {
                    !f.pooled
                        && f.class.and_then(|of| types.class(of)).is_some_and(|of| of.kind != Kind::Struct)
                })
            };
            let Some(declared) = types.class(class).filter(plain).filter(|_| table.repeats()) else {
                continue;
            };
            let mut count = 0;
            let mut first = None;
            let look = |steps: &[layout::Step]| {
                for entry in &table.entries {
                    let defined = table.lookup(&self.hash).find(&table.entries, entry.key, &self.hash);
                    let (Some(defined), Some(again)) = (defined, self.constant(entry.place)) else {
                        continue;
                    };
                    let mut cursor = Cursor::new(again.bytes);
                    if defined == entry.place || layout::skip(types.classes(), steps, &mut cursor, 0).is_err()
                    {
                        continue;
                    }
                    let value = again.bytes.get(..cursor.pos()).unwrap_or_default();
                    // The bytes start with all bytes of the other value, so the values are equal.
                    if self.constant(defined).is_some_and(|before| !before.bytes.starts_with(value)) {
                        count += 1;
                        first.get_or_insert((entry.key, again.offset));
                    }
                }
                Ok(())
            };
            if layout::with_steps(types.classes(), class, look).is_err() {
                continue;
            }
            if let Some((key, offset)) = first {
                found.push((
                    Nonconformance::Redefined { class: shortened(&*declared.name), key, count },
                    offset,
                ));
            }
        }
        found
    }

    /// Empties the pools and retains their memory, because chunks of one recording are similar.
    pub(crate) fn emptied(mut self) -> Self {
        self.segments.clear();
        self.bytes = 0;
        self.cached_bytes = AtomicUsize::new(0);
        for table in &mut self.by_class {
            table.entries.clear();
            table.lookup.take();
            table.texts.take();
        }
        self
    }

    /// Adds the constants of one checkpoint: `payload` is the event after its type id, `offset` its position
    /// in the input.
    ///
    /// Returns the head and the bytes read.
    ///
    /// # Errors
    /// The fault and its position in `payload`; the constants before it are retained.
    pub(crate) fn add(
        &mut self,
        types: &Types,
        payload: &Bytes,
        offset: u64,
    ) -> Result<(CheckpointHead, usize), (Malformed, usize)> {
        let segment = self.segments.len() as u32;
        let mut cursor = Cursor::new(payload);
        let outcome = self.index(types, &mut cursor, segment).map(|head| (head, cursor.pos()));
        if matches!(&outcome, Ok((head, _)) if head.pools == 0) {
            return outcome.map_err(|fault| (fault, 0));
        }
        self.bytes += payload.len();
        self.segments.push(Segment { bytes: payload.clone(), offset });
        outcome.map_err(|fault| (fault, cursor.pos()))
    }

    fn index(
        &mut self,
        types: &Types,
        cursor: &mut Cursor<'_>,
        segment: u32,
    ) -> Result<CheckpointHead, Malformed> {
        let head = CheckpointHead::read(cursor)?;
        for _ in 0..head.pools {
            let type_id = cursor.varint()?;
            let class = types.class_index(type_id).ok_or(Malformed::UnknownType)?;
            let count = cursor.count()?;
            let at = class.0 as usize;
            if self.by_class.len() <= at {
                self.by_class.resize_with(at + 1, Table::default);
            }
            self.by_class[at].add(types, class, cursor, count, segment, &self.hash)?;
        }
        Ok(head)
    }
}

impl Table {
    fn add(
        &mut self,
        types: &Types,
        class: ClassIndex,
        cursor: &mut Cursor<'_>,
        count: usize,
        segment: u32,
        hash: &KeyHash,
    ) -> Result<(), Malformed> {
        let before = self.entries.len();
        let outcome = layout::with_steps(types.classes(), class, |steps| {
            (0..count).try_for_each(|_| {
                let key = cursor.varint()?;
                // Events are smaller than 4 GiB: the push decoder bounds them.
                let at = cursor.pos() as u32;
                layout::skip(types.classes(), steps, cursor, 0)?;
                self.entries.push(Entry { key, place: Location { segment, at } });
                Ok(())
            })
        });
        if let Some(lookup) = self.lookup.get_mut() {
            let dense = matches!(lookup, Lookup::Dense { .. });
            for index in before..self.entries.len() {
                lookup.insert(&self.entries, index, hash);
            }
            if dense != matches!(lookup, Lookup::Dense { .. }) {
                self.texts.take();
            } else if let Some(texts) = self.texts.get_mut() {
                texts.resize_with(lookup.slots(&self.entries), OnceLock::new);
            }
        }
        outcome
    }

    #[inline]
    fn get(&self, key: u64, hash: &KeyHash) -> Option<Location> {
        self.lookup(hash).find(&self.entries, key, hash)
    }

    fn lookup(&self, hash: &KeyHash) -> &Lookup {
        self.lookup.get_or_init(|| Lookup::new(&self.entries, hash))
    }

    /// Returns true if a key occurs twice; false if no key was looked up.
    fn repeats(&self) -> bool {
        let distinct = match self.lookup.get() {
            None => return false,
            Some(Lookup::Dense { places, .. }) => places.iter().filter(|&&place| place != NOWHERE).count(),
            Some(Lookup::Hashed { places }) => places.iter().filter(|&&index| index != FREE).count(),
        };
        distinct < self.entries.len()
    }

    fn keys(&self, hash: &KeyHash) -> impl Iterator<Item = u64> + '_ {
        let lookup = self.lookup(hash);
        let hash = hash.clone();
        let first = move |entry: &&Entry| lookup.find(&self.entries, entry.key, &hash) == Some(entry.place);
        self.entries.iter().filter(first).map(|entry| entry.key)
    }
}

/// Key → position of the first entry with it.
#[derive(Debug)]
enum Lookup {
    /// Indexed by key minus the smallest: keys of symbols, stacks and threads mostly count up. Events use
    /// them in any order, so each lookup is a cache miss. Storing the positions directly avoids a second
    /// miss.
    Dense { first: u64, places: Vec<Location> },
    /// Indexes of entries by hash, with linear probing; a power of two, at most half full.
    Hashed { places: Vec<u32> },
}

const NOWHERE: Location = Location { segment: u32::MAX, at: 0 };

const FREE: u32 = u32::MAX;

/// Maximum length of an array by key, for `count` keys.
fn dense_limit(count: usize) -> u64 {
    4 * count as u64 + 64
}

impl Lookup {
    fn new(entries: &[Entry], hash: &KeyHash) -> Self {
        let first = entries.iter().map(|e| e.key).min().unwrap_or(0);
        let last = entries.iter().map(|e| e.key).max().unwrap_or(0);
        if last - first >= dense_limit(entries.len()) {
            return Self::hashed(entries, hash);
        }
        let mut places = vec![NOWHERE; (last - first) as usize + 1];
        for entry in entries {
            let place = &mut places[(entry.key - first) as usize];
            if *place == NOWHERE {
                *place = entry.place;
            }
        }
        Self::Dense { first, places }
    }

    fn hashed(entries: &[Entry], hash: &KeyHash) -> Self {
        // Twice as much room, so that growing by one entry at a time stays cheap.
        let mut places = vec![FREE; (entries.len() * 4).next_power_of_two()];
        for index in 0..entries.len() {
            insert_hashed(&mut places, entries, index, hash);
        }
        Self::Hashed { places }
    }

    /// Adds an entry, unless its key already has one.
    fn insert(&mut self, entries: &[Entry], index: usize, hash: &KeyHash) {
        let Entry { key, place: new } = entries[index];
        match self {
            Self::Dense { first, places } => match key.checked_sub(*first) {
                Some(at) if at < dense_limit(index + 1) => {
                    if at as usize >= places.len() {
                        places.resize(at as usize + 1, NOWHERE);
                    }
                    let place = &mut places[at as usize];
                    if *place == NOWHERE {
                        *place = new;
                    }
                }
                _ => *self = Self::hashed(&entries[..=index], hash),
            },
            Self::Hashed { places } if places.len() / 2 <= index => {
                *self = Self::hashed(&entries[..=index], hash);
            }
            Self::Hashed { places } => insert_hashed(places, entries, index, hash),
        }
    }

    #[inline]
    fn find(&self, entries: &[Entry], key: u64, hash: &KeyHash) -> Option<Location> {
        match self {
            Self::Dense { first, places } => {
                let place = *places.get(usize::try_from(key.checked_sub(*first)?).ok()?)?;
                (place != NOWHERE).then_some(place)
            }
            Self::Hashed { places } => {
                let index = places[find_slot(places, entries, key, hash)];
                Some(entries.get(index as usize)?.place)
            }
        }
    }

    /// Returns a number below [`slots`](Self::slots) for the key. It does not change as long as a dense
    /// lookup stays dense, or a hashed one hashed.
    #[inline]
    fn slot(&self, entries: &[Entry], key: u64, hash: &KeyHash) -> Option<usize> {
        match self {
            Self::Dense { first, .. } => usize::try_from(key.checked_sub(*first)?).ok(),
            Self::Hashed { places } => Some(places[find_slot(places, entries, key, hash)] as usize),
        }
    }

    fn slots(&self, entries: &[Entry]) -> usize {
        match self {
            Self::Dense { places, .. } => places.len(),
            Self::Hashed { .. } => entries.len(),
        }
    }
}

fn insert_hashed(places: &mut [u32], entries: &[Entry], index: usize, hash: &KeyHash) {
    let at = find_slot(places, entries, entries[index].key, hash);
    if places[at] == FREE {
        places[at] = index as u32;
    }
}

/// Returns the slot of the key, or the free slot for it.
#[inline]
fn find_slot(places: &[u32], entries: &[Entry], key: u64, hash: &KeyHash) -> usize {
    let mask = places.len() - 1;
    let mut at = hash.hash_one(key) as usize & mask;
    loop {
        let index = places[at];
        if index == FREE || entries.get(index as usize).is_none_or(|e| e.key == key) {
            return at;
        }
        at = (at + 1) & mask;
    }
}

/// Hashes keys by one multiplication with a seed of this process: keys are mostly small and dense, but a hostile
/// file must not choose the buckets.
#[derive(Clone, Debug)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Returns the hash of two numbers, with one more multiplication.
    #[inline(always)]
    pub fn pair(&self, a: u64, b: u64) -> u64 {
        let mut hasher = KeyHasher(self.0);
        hasher.write_u64(a);
        hasher.write_u64(b);
        hasher.finish()
    }
}

impl Default for KeyHash {
    fn default() -> Self {
        Self(std::collections::hash_map::RandomState::new().hash_one(0u64))
    }
}

impl BuildHasher for KeyHash {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0)
    }
}

/// The state of [`KeyHash`].
#[derive(Clone, Debug)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline(always)]
    fn write_u64(&mut self, key: u64) {
        let wide =
            u128::from(self.0 ^ key) * u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ self.0.rotate_left(32) | 1);
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    #[inline]
    fn write_u32(&mut self, key: u32) {
        self.write_u64(u64::from(key));
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        if let Some(last) = last.get_mut(..rest.len()) {
            last.copy_from_slice(rest);
        }
        self.write_u64(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Walks the pools of a checkpoint: calls `entry(class, key, value)` for each constant, and `pool(count)`
/// after each pool. Returns the head and the end of the content. As in the JDK, a pool of a primitive type is
/// an error, because damage can look like one.
pub(crate) fn walk_pools(
    types: &Types,
    payload: &[u8],
    mut entry: impl FnMut(ClassIndex, u64, Range<usize>),
    mut pool: impl FnMut(usize),
) -> Result<(CheckpointHead, usize), Malformed> {
    let mut cursor = Cursor::new(payload);
    let head = CheckpointHead::read(&mut cursor)?;
    for _ in 0..head.pools {
        let class = types.class_index(cursor.varint()?).ok_or(Malformed::UnknownType)?;
        if types.class(class).is_none_or(|class| !matches!(class.kind, Kind::Struct | Kind::Text)) {
            return Err(Malformed::PrimitivePool);
        }
        let count = cursor.count()?;
        for _ in 0..count {
            let key = cursor.varint()?;
            let from = cursor.pos();
            layout::skip_value(types.classes(), class, &mut cursor)?;
            entry(class, key, from..cursor.pos());
        }
        pool(count);
    }
    Ok((head, cursor.pos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// For any keys, and an index created at any time, the first entry of a key is found.
    fn check(keys: &[u64], asked_after: usize) {
        let hash = KeyHash::default();
        let mut table = Table::default();
        let mut expected: HashMap<u64, u32> = HashMap::new();
        for (at, &key) in keys.iter().enumerate() {
            table.entries.push(Entry { key, place: Location { segment: 0, at: at as u32 } });
            expected.entry(key).or_insert(at as u32);
            if at == asked_after {
                table.lookup(&hash);
            } else if let Some(lookup) = table.lookup.get_mut() {
                lookup.insert(&table.entries, at, &hash);
            }
        }
        for (&key, &at) in &expected {
            assert_eq!(table.get(key, &hash).map(|e| e.at), Some(at), "key {key} of {keys:?}");
            for other in [key.wrapping_sub(1), key.wrapping_add(1), !key] {
                let found = table.get(other, &hash).map(|e| e.at);
                assert_eq!(found, expected.get(&other).copied(), "key {other} of {keys:?}");
            }
        }
        let mut distinct: Vec<u64> = table.keys(&hash).collect();
        distinct.sort_unstable();
        let mut all: Vec<u64> = expected.into_keys().collect();
        all.sort_unstable();
        assert_eq!(distinct, all);
    }

    #[test]
    fn dense_sparse_repeated_and_extreme_keys_are_found() {
        let counting: Vec<u64> = (1000..1300).collect();
        let falling: Vec<u64> = (0..300).rev().collect();
        let spread: Vec<u64> = (0..300u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let repeated: Vec<u64> = (0..300).map(|i| i % 7 * 1000).collect();
        let mixed: Vec<u64> = (0..200).chain([u64::MAX, 0, u64::MAX, 5]).chain(200..400).collect();
        for keys in [counting, falling, spread, repeated, mixed, vec![], vec![u64::MAX]] {
            for asked_after in [0, 1, 50, 199, 203, 1000] {
                check(&keys, asked_after);
            }
        }
    }
}
