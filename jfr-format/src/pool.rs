//! Constant pools of one chunk: where each constant lies, found by type and key.
//!
//! ```text
//! start  duration  delta  flags(1 byte)  poolCount  { typeId  count  { key  value }* }*
//! ```
//! Values stay as bytes until asked for. The first definition of a key wins, as in the JDK, jfr-converter, jfrs and
//! the Go parser.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;

use crate::error::Malformed;
use crate::read::cursor::Cursor;
use crate::read::layout;
use crate::read::{ClassIndex, Types};

/// Head of a checkpoint event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHead {
    /// Signed distance to the previous checkpoint of the chain; 0 ends it.
    pub delta: i64,
    /// `CHECKPOINT_*` bits.
    pub flags: u8,
    /// How many pools follow.
    pub pools: usize,
}

impl CheckpointHead {
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        cursor.skip_varints(2)?; // start, duration
        let delta = cursor.varint()? as i64;
        let flags = cursor.byte()?;
        Ok(Self { delta, flags, pools: cursor.count()? })
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    segment: u32,
    at: u32,
}

/// The bytes of one checkpoint and where they lie in the input.
#[derive(Debug)]
struct Segment {
    bytes: Bytes,
    offset: u64,
}

/// All constants of a chunk met so far.
#[derive(Debug, Default)]
pub struct Pools {
    segments: Vec<Segment>,
    by_class: Vec<Table>,
    hash: KeyHash,
}

type Table = HashMap<u64, Place, KeyHash>;

/// A constant's bytes, from its first byte to the end of its checkpoint, and their offset in the input.
#[derive(Clone, Copy, Debug)]
pub struct RawConstant<'a> {
    /// The value and whatever follows it.
    pub bytes: &'a [u8],
    /// Offset of the first byte in the input.
    pub offset: u64,
}

impl Pools {
    /// The constant `key` of the pool of `class`.
    #[inline]
    pub fn get(&self, class: ClassIndex, key: u64) -> Option<RawConstant<'_>> {
        let place = self.by_class.get(class.0 as usize)?.get(&key)?;
        let segment = self.segments.get(place.segment as usize)?;
        let bytes = segment.bytes.get(place.at as usize..)?;
        Some(RawConstant { bytes, offset: segment.offset + u64::from(place.at) })
    }

    /// How many constants the pool of `class` holds.
    pub fn len(&self, class: ClassIndex) -> usize {
        self.by_class.get(class.0 as usize).map_or(0, HashMap::len)
    }

    /// Whether no constant was met.
    pub fn is_empty(&self) -> bool {
        self.by_class.iter().all(HashMap::is_empty)
    }

    /// Keys of the pool of `class`, in no order.
    pub fn keys(&self, class: ClassIndex) -> impl Iterator<Item = u64> + '_ {
        self.by_class.get(class.0 as usize).into_iter().flat_map(|table| table.keys().copied())
    }

    /// Notes the constants of one checkpoint: `payload` is the event after its type id, `offset` its place in the
    /// input.
    ///
    /// Returns the head and the bytes read.
    ///
    /// # Errors
    /// The fault and its position in `payload`; the constants before it are kept.
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
        let hash = self.hash.clone();
        for _ in 0..head.pools {
            let type_id = cursor.varint()?;
            let class = types.index_of(type_id).ok_or(Malformed::UnknownType)?;
            let steps = &types.classes()[class.0 as usize].layout;
            let count = cursor.count()?;
            let at = class.0 as usize;
            if self.by_class.len() <= at {
                self.by_class.resize_with(at + 1, || Table::with_hasher(hash.clone()));
            }
            let table = &mut self.by_class[at];
            for _ in 0..count {
                let key = cursor.varint()?;
                // Events are smaller than 4 GiB: the push decoder bounds them.
                let place = Place { segment, at: cursor.pos() as u32 };
                skip_constant(types, class, steps, cursor)?;
                table.entry(key).or_insert(place);
            }
        }
        Ok(head)
    }
}

#[inline]
fn skip_constant(
    types: &Types,
    class: ClassIndex,
    steps: &[layout::Step],
    cursor: &mut Cursor<'_>,
) -> Result<(), Malformed> {
    if steps.is_empty() {
        return layout::skip_value(types.classes(), class, cursor);
    }
    layout::skip(types.classes(), steps, cursor, 0)
}

/// Hashes keys by one multiplication with a seed of this process: keys are mostly small and dense, but a hostile
/// file must not choose the buckets.
#[derive(Clone, Debug)]
pub struct KeyHash(u64);

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

/// State of [`KeyHash`].
#[derive(Clone, Debug)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn write_u64(&mut self, key: u64) {
        let wide =
            u128::from(self.0 ^ key) * u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ self.0.rotate_left(32) | 1);
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    #[inline]
    fn write_u32(&mut self, key: u32) {
        self.write_u64(u64::from(key));
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
