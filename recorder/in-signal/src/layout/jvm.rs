//! The code cache of a HotSpot JVM, as the walker in the handler needs it, and the words of Java frames.
//!
//! The drain reads the JVM's description of its own structures and writes this part of the header. The values
//! do not change, except that the committed parts of the code heaps grow and the interpreter's range shrinks while
//! the JVM starts. They are addresses that the handler loads from: a wrong value can crash the program.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Maximum number of code heaps of a JVM.
pub const CODE_HEAPS: usize = 4;

/// One code heap. HotSpot never unmaps or decommits the memory of a code heap.
#[repr(C)]
#[derive(Default)]
pub struct CodeHeap {
    /// First address.
    pub start: AtomicU64,
    /// One past the last committed address, when the drain last looked. 0: no heap.
    pub end: AtomicU64,
    /// Address at which the JVM keeps the present `end`.
    pub end_at: AtomicU64,
    /// First byte of the segment map.
    pub segments: AtomicU64,
    /// One past the last committed byte of the segment map, when the drain last looked.
    pub segments_end: AtomicU64,
    /// Address at which the JVM keeps the present `segments_end`.
    pub segments_end_at: AtomicU64,
}

/// Offsets of the fields of a `CodeBlob` and an `nmethod`.
#[repr(C)]
#[derive(Default)]
pub struct BlobLayout {
    /// `CodeBlob::_size`, 32 bits.
    pub size: AtomicU32,
    /// `CodeBlob::_frame_size`, 32 bits, in words.
    pub frame_size: AtomicU32,
    /// `CodeBlob::_frame_complete_offset`, and its size in bytes.
    pub frame_complete: [AtomicU32; 2],
    /// `CodeBlob::_code_begin`, an address of 8 bytes, or from JDK 23 on `_code_offset`, a distance from the
    /// blob in fewer bytes. The second element is the size.
    pub code: [AtomicU32; 2],
    /// `nmethod::_compile_id`, 32 bits.
    pub compile_id: AtomicU32,
}

/// The code cache of the process's JVM. All zero: no JVM, or one of an unknown version.
#[repr(C)]
#[derive(Default)]
pub struct JvmLayout {
    /// Size of the reserved code cache in bytes; 0: no JVM. Written last.
    pub code_size: AtomicU64,
    /// First address of the reserved code cache.
    pub code_start: AtomicU64,
    /// First address of the interpreter and one past its last. The end shrinks while the JVM starts.
    pub interpreter: [AtomicU64; 2],
    /// The return address in the stub by which native code calls Java.
    pub call_stub_return: AtomicU64,
    /// The code heaps; unused entries are zero.
    pub heaps: [CodeHeap; CODE_HEAPS],
    /// Binary logarithm of the size of a segment.
    pub segment_shift: AtomicU32,
    /// Size of the header before each blob.
    pub block_header: AtomicU32,
    /// Offsets in a blob.
    pub blob: BlobLayout,
}

/// The words by which a stack in the ring describes Java frames. A native frame is an address, which is below
/// 2^47 or in the kernel's half; these words lie between.
pub mod java_frame {
    /// Tag of the first word of an interpreted frame: its `Method*`.
    const METHOD: u64 = 4;
    /// Tag of a frame in the code cache.
    const CODE: u64 = 5;
    /// Tag of the second word of an interpreted frame: its bytecode pointer.
    const BYTECODE: u64 = 6;

    const TAG_SHIFT: u32 = 60;
    const ADDRESS: u64 = (1 << 48) - 1;
    const OFFSET_BITS: u32 = 36;
    const COMPILE_ID: u64 = 0xff_ffff;

    /// A decoded word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Word {
        /// An address of native code or of the kernel.
        Native(u64),
        /// The `Method*` of an interpreted frame; a [`Word::Bytecode`] follows.
        Method(u64),
        /// The bytecode pointer of an interpreted frame.
        Bytecode(u64),
        /// An address in the code cache, relative to its start, and the low 24 bits of the compile id of the
        /// method at the time of the sample. The id of other code has no meaning.
        Code {
            /// Distance from the start of the code cache.
            offset: u64,
            /// Low 24 bits of the compile id.
            compile_id: u32,
        },
    }

    /// Decodes a word of a stack.
    #[inline]
    pub const fn decode(word: u64) -> Word {
        match word >> TAG_SHIFT {
            METHOD => Word::Method(word & ADDRESS),
            BYTECODE => Word::Bytecode(word & ADDRESS),
            CODE => Word::Code {
                offset: word & ((1 << OFFSET_BITS) - 1),
                compile_id: ((word >> OFFSET_BITS) & COMPILE_ID) as u32,
            },
            _ => Word::Native(word),
        }
    }

    /// Returns true if a word is part of a Java frame.
    #[inline]
    pub const fn is_java(word: u64) -> bool {
        matches!(word >> TAG_SHIFT, METHOD..=BYTECODE)
    }

    /// Low 24 bits of a compile id, as [`Word::Code`] has them.
    #[inline]
    pub const fn short_id(compile_id: u32) -> u32 {
        compile_id & COMPILE_ID as u32
    }

    /// The word of an address in the code cache.
    #[inline]
    pub const fn code(offset: u64, compile_id: u32) -> u64 {
        let id = (compile_id as u64 & COMPILE_ID) << OFFSET_BITS;
        CODE << TAG_SHIFT | id | (offset & ((1 << OFFSET_BITS) - 1))
    }

    /// The two words of an interpreted frame.
    #[inline]
    pub const fn interpreted(method: u64, bytecode: u64) -> [u64; 2] {
        [METHOD << TAG_SHIFT | (method & ADDRESS), BYTECODE << TAG_SHIFT | (bytecode & ADDRESS)]
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn words_round_trip() {
            let word = code(0x1234_5678, 0x0101_0203);
            assert_eq!(decode(word), Word::Code { offset: 0x1234_5678, compile_id: 0x01_0203 });
            let [method, bytecode] = interpreted(0x7f12_3456_7890, 0x7f00_0000_0001);
            assert_eq!(decode(method), Word::Method(0x7f12_3456_7890));
            assert_eq!(decode(bytecode), Word::Bytecode(0x7f00_0000_0001));
            for native in [0, 0x7fff_ffff_ffff, 0xffff_ffff_8100_0000] {
                assert_eq!((decode(native), is_java(native)), (Word::Native(native), false));
            }
            assert!([word, method, bytecode].into_iter().all(is_java));
        }
    }
}
