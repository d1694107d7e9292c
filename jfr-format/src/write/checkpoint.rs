//! Constants that wait for the next checkpoint, and the checkpoint event itself.
//!
//! ```text
//! size, padded to 4   type 1   start   duration 0   delta to the previous checkpoint   flags u8   pool count
//!   pool = type   count   count × (key, value)
//! ```

use super::fields::{FieldWriter, constant_key};
use super::{WriteError, buffer};
use crate::constants::CHECKPOINT_EVENT;
use crate::ids::{ChunkOffset, Ticks, TypeId};
use crate::schema::{self, Type};
use crate::varint;
use bytes::{BufMut, BytesMut};

/// Most bytes a checkpoint takes besides its pools: size, type, ticks, duration, delta, flags, pool count.
pub(super) const MAX_FRAME: usize = 4 + 1 + varint::MAX_LEN + 1 + varint::MAX_LEN + 1 + 2;
/// Most bytes a pool takes besides its entries: type (two bytes: below 2^14) and count.
const MAX_POOL_FRAME: usize = 2 + 5;

/// The constants added since the last checkpoint, by pool.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pools: Vec<Pool>,
    /// Upper bound of what the pools will take, without the checkpoint's frame.
    len: usize,
}

#[derive(Debug)]
struct Pool {
    ty: TypeId,
    count: u64,
    entries: BytesMut,
}

impl Pending {
    /// Upper bound of what the pools will take in a checkpoint, without its frame.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory that the pools keep.
    pub(super) fn buffer_capacity(&self) -> usize {
        self.pools.iter().map(|pool| pool.entries.capacity()).sum()
    }

    pub(super) fn clear(&mut self) {
        // Empty pools stay for their memory: there are no more than the schema has pool types.
        for pool in &mut self.pools {
            pool.count = 0;
            buffer::reuse(&mut pool.entries);
        }
        self.len = 0;
    }

    /// Adds a constant unless it takes more than `room` bytes.
    pub(super) fn add(
        &mut self,
        of: &'static Type,
        key: u64,
        room: usize,
        value: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), WriteError> {
        self.add_static(of, constant_key(key)?, room, value)
    }

    /// As [`Pending::add`], but the key may be 0.
    pub(super) fn add_static(
        &mut self,
        of: &'static Type,
        key: u64,
        room: usize,
        value: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), WriteError> {
        let pool = self.pool(of.id);
        let frame = if pool.count == 0 { MAX_POOL_FRAME } else { 0 };
        let start = pool.entries.len();
        varint::put(&mut pool.entries, key);
        let mut writer = FieldWriter::new(&mut pool.entries, of);
        value(&mut writer);
        let mut result = writer.end();
        let need = pool.entries.len() - start + frame;
        if result.is_ok() && need > room {
            result = Err(WriteError::Full { need, room });
        }
        if result.is_err() {
            pool.entries.truncate(start);
            return result;
        }
        pool.count += 1;
        self.len += need;
        Ok(())
    }

    fn pool(&mut self, ty: TypeId) -> &mut Pool {
        let known = self.pools.iter().position(|pool| pool.ty == ty);
        let index = known.unwrap_or_else(|| {
            self.pools.push(Pool { ty, count: 0, entries: BytesMut::new() });
            self.pools.len() - 1
        });
        &mut self.pools[index]
    }

    /// Appends a checkpoint with all of them (none: an empty checkpoint) that will stand at `at`.
    ///
    /// The caller keeps the whole below 2^28 bytes.
    pub(super) fn put(
        &self,
        out: &mut BytesMut,
        at: ChunkOffset,
        previous: Option<ChunkOffset>,
        now: Ticks,
        flags: u8,
    ) {
        let start = out.len();
        out.put_bytes(0, 4);
        varint::put(out, u64::from(CHECKPOINT_EVENT.0));
        varint::put(out, now.0 as u64);
        varint::put(out, 0);
        let delta = previous.map_or(0, |previous| previous.0.wrapping_sub(at.0));
        varint::put(out, delta);
        out.put_u8(flags);
        let pools = || self.pools.iter().filter(|pool| pool.count > 0);
        varint::put(out, pools().count() as u64);
        for pool in pools() {
            varint::put(out, u64::from(pool.ty.0));
            varint::put(out, pool.count);
            out.put_slice(&pool.entries);
        }
        let size = u32::try_from(out.len() - start).ok().and_then(varint::padded);
        out[start..start + 4].copy_from_slice(&size.unwrap_or([0xff, 0xff, 0xff, 0x7f]));
    }
}

/// The constants that are the same in every chunk.
pub(super) fn statics() -> Pending {
    let mut statics = Pending::default();
    let mut add = |ty: TypeId, texts: &[&str]| {
        let Some(of) = schema::get(ty) else { return };
        for (key, text) in (0..).zip(texts) {
            let added = statics.add_static(of, key, usize::MAX, |value| {
                value.string(text);
            });
            debug_assert_eq!(added, Ok(()));
        }
    };
    add(schema::FRAME_TYPE, &schema::frame_type::ALL);
    add(schema::THREAD_STATE, &schema::thread_state::ALL);
    statics
}
