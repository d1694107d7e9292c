//! What the words of lock, I/O and exception events mean, as both sides know them. Text follows its length in bytes,
//! eight bytes to a word, little endian, the last word padded with zeros.

use crate::layout::MAX_EXTRA;

/// A wait: value = ns waited; words: start, address, kind and outcome, owner, timeout.
pub mod lock {
    /// CLOCK_MONOTONIC ns when the wait began.
    pub const START: usize = 0;
    /// What was waited for.
    pub const ADDRESS: usize = 1;
    /// One of the kinds below, and [`TIMED_OUT`].
    pub const KIND: usize = 2;
    /// Kernel thread id of the holder when the wait began, 0 if it is not known.
    pub const OWNER: usize = 3;
    /// Longest wait asked for, ns; [`FOREVER`] without a limit.
    pub const TIMEOUT: usize = 4;
    /// Number of words.
    pub const WORDS: usize = 5;

    /// No limit.
    pub const FOREVER: u64 = u64::MAX;
    /// Flag beside the kind: the wait ended without what it waited for, by its limit.
    pub const TIMED_OUT: u64 = 1 << 8;
    /// Bits of the kind itself.
    pub const MASK: u64 = 0xff;

    /// `pthread_mutex_t`
    pub const MUTEX: u64 = 1;
    /// `pthread_rwlock_t`, to read.
    pub const READ: u64 = 2;
    /// `pthread_rwlock_t`, to write.
    pub const WRITE: u64 = 3;
    /// `pthread_cond_t`
    pub const CONDITION: u64 = 4;
    /// `sem_t`
    pub const SEMAPHORE: u64 = 5;
    /// `pthread_barrier_t`
    pub const BARRIER: u64 = 6;
    /// The end of a thread.
    pub const JOIN: u64 = 7;
    /// A futex, by the system call itself: which lock it belongs to only the stack tells.
    pub const FUTEX: u64 = 8;
    /// A futex with priority inheritance, whose word names the owner.
    pub const FUTEX_PI: u64 = 9;
}

/// A read, write or the like: value = ns; words: start, operation and descriptor, result, text.
pub mod io {
    /// CLOCK_MONOTONIC ns when the call began.
    pub const START: usize = 0;
    /// One of the operations below, flags, the descriptor in the upper half.
    pub const OPERATION: usize = 1;
    /// Bytes moved, or the negative errno.
    pub const RESULT: usize = 2;
    /// Bytes of the text behind it: a path or, with [`PEER`], a socket address as the kernel gives it.
    pub const TEXT: usize = 3;
    /// Words before the text.
    pub const WORDS: usize = 4;

    /// Bits of the operation itself.
    pub const MASK: u64 = 0xff;
    /// Flag: the text is a socket address.
    pub const PEER: u64 = 1 << 8;
    /// Flag: the text is cut.
    pub const CUT: u64 = 1 << 9;
    /// Flag: the file ended here.
    pub const END: u64 = 1 << 10;
    /// Flag: a stream socket, where nothing read means the end.
    pub const STREAM: u64 = 1 << 11;

    /// Data came in.
    pub const READ: u64 = 1;
    /// Data went out.
    pub const WRITE: u64 = 2;
    /// A file and all about it was forced to its device.
    pub const FORCE: u64 = 3;
    /// The same of the data alone.
    pub const FORCE_DATA: u64 = 4;
    /// A connection was asked for.
    pub const CONNECT: u64 = 5;
    /// A connection was waited for.
    pub const ACCEPT: u64 = 6;
}

/// Something thrown: value = 1; words: language, length of the type's name, the name, length of the message, the
/// message.
pub mod throw {
    /// C++: the name is that of the `type_info`, mangled.
    pub const CPP: u64 = 1;
    /// Rust: a panic.
    pub const RUST: u64 = 2;
    /// Another language's, its exception class in the second word instead of a length, no text.
    pub const OTHER: u64 = 3;
}

/// Last samples: the index says whose, the words are signal and code, address, sender.
pub mod fatal {
    /// The thread that took a signal which ends the process.
    pub const FATAL: u16 = 0;
    /// A thread that took such a signal in a program that has a handler for it.
    pub const CAUGHT: u16 = 1;
    /// Another thread of a process that a signal ends. Its words are signal, 0, thread that took it.
    pub const LAST: u16 = 2;

    /// Number of the signal, `si_code` in the upper half.
    pub const SIGNAL: usize = 0;
    /// Address that could not be used (of a system call that was refused: where it was made), 0 if nobody says.
    pub const ADDRESS: usize = 1;
    /// Process id of the sender, 0 for the kernel; of the last sample of another thread: id of the thread that died.
    pub const SENDER: usize = 2;
    /// Number of words.
    pub const WORDS: usize = 3;
}

/// A span that ended: value = its ns. Behind the words stand its name and its labels, a JSON object's text or nothing.
pub mod span {
    /// CLOCK_MONOTONIC ns of its beginning.
    pub const START: usize = 0;
    /// CLOCK_MONOTONIC ns of its end.
    pub const END: usize = 1;
    /// Its id; big-endian bytes are W3C's, as of all ids here.
    pub const SPAN: usize = 2;
    /// The span it is a child of, 0: none.
    pub const PARENT: usize = 3;
    /// The outermost span of its trace in the process.
    pub const ROOT: usize = 4;
    /// High half of the trace's id.
    pub const TRACE_HI: usize = 5;
    /// Low half of the trace's id.
    pub const TRACE_LO: usize = 6;
    /// Trace flags, the number of samples in the upper half.
    pub const FLAGS: usize = 7;
    /// Number of words before the texts.
    pub const WORDS: usize = 8;
}

/// An activation of a span on the thread of the record, that ended: value = its ns.
pub mod scope {
    /// CLOCK_MONOTONIC ns of its beginning.
    pub const START: usize = 0;
    /// CLOCK_MONOTONIC ns of its end.
    pub const END: usize = 1;
    /// The span's id.
    pub const SPAN: usize = 2;
    /// The span that was active before, 0: none.
    pub const PREVIOUS: usize = 3;
    /// The activation's number.
    pub const SEQ: usize = 4;
    /// Number of words.
    pub const WORDS: usize = 5;
}

/// Time without a processor that a thread noted; the value is what that stands for, ns.
pub mod waited {
    /// CLOCK_MONOTONIC less the thread's CPU clock when it noted it, ns.
    pub const OFF: usize = 0;
    /// How long the time was itself, ns.
    pub const WAITED: usize = 1;
    /// Number of words.
    pub const WORDS: usize = 2;
}

/// Words of an event, put together where nothing may be allocated.
pub struct Words {
    words: [u64; MAX_EXTRA],
    len: usize,
}

impl Words {
    /// Begins with these.
    #[inline]
    pub fn new(first: &[u64]) -> Words {
        let mut all = Words { words: [0; MAX_EXTRA], len: 0 };
        for word in first {
            all.push(*word);
        }
        all
    }

    /// Appends a word; what does not fit is dropped.
    #[inline]
    pub fn push(&mut self, word: u64) {
        if let Some(to) = self.words.get_mut(self.len) {
            *to = word;
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Bytes of text that still fit behind a length.
    pub fn room(&self) -> usize {
        MAX_EXTRA.saturating_sub(self.len).saturating_sub(1).wrapping_mul(8)
    }

    /// Appends the length of a text and its bytes; `false` if it was cut.
    pub fn text(&mut self, bytes: &[u8]) -> bool {
        let kept = bytes.get(..self.room()).unwrap_or(bytes);
        self.push(kept.len() as u64);
        for chunk in kept.chunks(8) {
            let mut word = [0u8; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.push(u64::from_le_bytes(word));
        }
        kept.len() == bytes.len()
    }

    /// All of them.
    #[inline]
    pub fn get(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or_default()
    }

    /// Sets bits of a word that is there.
    pub fn set_bits(&mut self, index: usize, bits: u64) {
        if let Some(word) = self.words.get_mut(index).filter(|_| index < self.len) {
            *word |= bits;
        }
    }
}

/// Reads a text written by [`Words::text`] at word `at` to `to`; the index of the word behind it. The words are not
/// trusted: a length beyond their end is cut.
pub fn read_text(words: &[u64], at: usize, to: &mut impl FnMut(u8)) -> usize {
    let Some(len) = words.get(at) else { return at };
    let rest = words.get(at.wrapping_add(1)..).unwrap_or_default();
    let len = (*len).min((rest.len() as u64).wrapping_mul(8)) as usize;
    for byte in rest.iter().flat_map(|word| word.to_le_bytes()).take(len) {
        to(byte);
    }
    at.wrapping_add(1).wrapping_add(len.div_ceil(8))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn texts_come_back_as_they_were() {
        for len in [0, 1, 7, 8, 9, 700] {
            let text: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut words = Words::new(&[7, 8]);
            assert!(words.text(&text));
            assert!(words.text(b"second"));
            let mut back = Vec::new();
            let next = read_text(words.get(), 2, &mut |b| back.push(b));
            assert_eq!(back, text);
            back.clear();
            assert_eq!(read_text(words.get(), next, &mut |b| back.push(b)), words.get().len());
            assert_eq!(back, b"second");
        }
    }

    #[test]
    fn long_payload_is_truncated_and_marked() {
        let mut words = Words::new(&[1, 2, 3]);
        assert!(!words.text(&[b'x'; 2000]));
        assert_eq!(words.get().len(), MAX_EXTRA);
        let mut count = 0;
        read_text(words.get(), 3, &mut |_| count += 1);
        assert_eq!(count, (MAX_EXTRA - 4) * 8);
        words.push(9);
        assert_eq!(words.get().len(), MAX_EXTRA);
    }

    #[test]
    fn lengths_are_not_believed() {
        let mut count = 0;
        assert_eq!(read_text(&[u64::MAX, 1, 2], 0, &mut |_| count += 1), 3);
        assert_eq!(count, 16);
        assert_eq!(read_text(&[], 0, &mut |_| count += 1), 0);
    }
}
