//! Fixed numbers of the format: magic, flags, reserved type ids, string tags.

use crate::ids::TypeId;

/// First four bytes of every chunk.
pub const MAGIC: [u8; 4] = *b"FLR\0";
/// Size of a chunk's header in bytes.
pub const HEADER_LEN: usize = 68;
/// Major version that is written. The reader also accepts 1.
pub const MAJOR: u16 = 2;
/// Minor version that is written, as by JDK 17 and 25.
pub const MINOR: u16 = 1;

/// Header flag: integers are varints. This writer always sets it, because JMC and jfrs require it.
pub const FLAG_COMPRESSED: u16 = 1;
/// Header flag: the recording ends with this chunk.
pub const FLAG_FINAL: u16 = 2;

/// Header state: the chunk is finished and does not change any more.
pub const STATE_FINISHED: u8 = 0;
/// Header state: first live generation.
pub const STATE_FIRST: u8 = 1;
/// Header state: last live generation; [`STATE_FIRST`] follows.
pub const STATE_LAST: u8 = 254;
/// Header state: offsets are being rewritten; read the header again later.
pub const STATE_UPDATING: u8 = 255;

/// Type id of the metadata event.
pub const METADATA_EVENT: TypeId = TypeId(0);
/// Type id of the checkpoint (constant pool) event.
pub const CHECKPOINT_EVENT: TypeId = TypeId(1);

/// Checkpoint flag: a flushed segment ends here.
pub const CHECKPOINT_FLUSH: u8 = 1;
/// Checkpoint flag: the only pool is a `jdk.types.ChunkHeader`.
pub const CHECKPOINT_HEADER: u8 = 2;
/// Checkpoint flag: the constants never change.
pub const CHECKPOINT_STATICS: u8 = 4;

/// String tag: null.
pub const STRING_NULL: u8 = 0;
/// String tag: empty.
pub const STRING_EMPTY: u8 = 1;
/// String tag: key into the pool of `java.lang.String`.
pub const STRING_POOLED: u8 = 2;
/// String tag: byte length and UTF-8.
pub const STRING_UTF8: u8 = 3;
/// String tag: count and that many varint UTF-16 code units.
pub const STRING_UTF16: u8 = 4;
/// String tag: byte length and ISO 8859-1.
pub const STRING_LATIN1: u8 = 5;
