//! The words of lock, I/O and exception events, as both sides interpret them. A text follows its length in
//! bytes, eight bytes to a word, little endian, and the last word is padded with zeros.

use crate::layout::MAX_EXTRA;

/// A wait: value = ns waited; words: start, address, kind and outcome, owner, timeout.
pub mod lock {
    /// CLOCK_MONOTONIC ns when the wait began.
    pub const START: usize = 0;
    /// Address of the lock or other object.
    pub const ADDRESS: usize = 1;
    /// One of the kinds below, and [`TIMED_OUT`].
    pub const KIND: usize = 2;
    /// Kernel thread id of the holder when the wait began, 0 if it is not known.
    pub const OWNER: usize = 3;
    /// Timeout of the wait, ns; [`FOREVER`] without a limit.
    pub const TIMEOUT: usize = 4;
    /// Number of words.
    pub const WORDS: usize = 5;

    /// No limit.
    pub const FOREVER: u64 = u64::MAX;
    /// Flag next to the kind: the wait ended by its timeout.
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
    /// A futex, used by the system call itself. Only the stack reveals the lock that it belongs to.
    pub const FUTEX: u64 = 8;
    /// A futex with priority inheritance, whose word contains the owner's thread id.
    pub const FUTEX_PI: u64 = 9;
}

/// A read, write or similar call: value = ns; words: start, operation and descriptor, result, text.
pub mod io {
    /// CLOCK_MONOTONIC ns when the call began.
    pub const START: usize = 0;
    /// One of the operations below, flags, the descriptor in the upper half.
    pub const OPERATION: usize = 1;
    /// Bytes moved, or the negative errno.
    pub const RESULT: usize = 2;
    /// Length in bytes of the text that follows: a path or, with [`PEER`], a socket address in the kernel's
    /// format.
    pub const TEXT: usize = 3;
    /// Words before the text.
    pub const WORDS: usize = 4;

    /// Bits of the operation itself.
    pub const MASK: u64 = 0xff;
    /// Flag: the text is a socket address.
    pub const PEER: u64 = 1 << 8;
    /// Flag: the text is cut.
    pub const CUT: u64 = 1 << 9;
    /// Flag: the call reached the end of the file.
    pub const END: u64 = 1 << 10;
    /// Flag: a stream socket, on which a read of zero bytes means the end.
    pub const STREAM: u64 = 1 << 11;

    /// A read or receive.
    pub const READ: u64 = 1;
    /// A write or send.
    pub const WRITE: u64 = 2;
    /// A file's data and metadata were forced to the device.
    pub const FORCE: u64 = 3;
    /// A file's data were forced to the device.
    pub const FORCE_DATA: u64 = 4;
    /// A connection was requested.
    pub const CONNECT: u64 = 5;
    /// A connection was accepted, or waited for.
    pub const ACCEPT: u64 = 6;
}

/// An exception: value = 1; words: language, length of the type's name, the name, length of the message, the
/// message.
pub mod throw {
    /// C++: the name is that of the `type_info`, mangled.
    pub const CPP: u64 = 1;
    /// Rust: a panic.
    pub const RUST: u64 = 2;
    /// An exception of another language: its exception class is in the second word instead of a length, and
    /// there is no text.
    pub const OTHER: u64 = 3;
}

/// Last samples: the index selects the kind of thread, the words are signal and code, address, sender.
pub mod fatal {
    /// The thread that received a signal which ends the process.
    pub const FATAL: u16 = 0;
    /// A thread that received such a signal in a program that has a handler for it.
    pub const CAUGHT: u16 = 1;
    /// Another thread of a process that a signal ends. Its words are the signal, 0, and the thread that
    /// received it.
    pub const LAST: u16 = 2;

    /// Number of the signal, `si_code` in the upper half.
    pub const SIGNAL: usize = 0;
    /// Address of the failed access (for a refused system call: the address of the call), 0 if it is not
    /// known.
    pub const ADDRESS: usize = 1;
    /// Process id of the sender, 0 for the kernel. In the last sample of another thread: id of the thread
    /// that received the signal.
    pub const SENDER: usize = 2;
    /// Number of words.
    pub const WORDS: usize = 3;
}

/// A span that ended: value = its duration in ns. Its name and its labels (a JSON object's text or nothing)
/// follow the words.
pub mod span {
    /// Time of its start, CLOCK_MONOTONIC ns.
    pub const START: usize = 0;
    /// Time of its end, CLOCK_MONOTONIC ns.
    pub const END: usize = 1;
    /// Its id. As for all ids here, the big-endian bytes are those of W3C trace context.
    pub const SPAN: usize = 2;
    /// Its parent span, 0: none.
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

/// An activation of a span on the thread of the record, that ended: value = its duration in ns.
pub mod scope {
    /// Time of its start, CLOCK_MONOTONIC ns.
    pub const START: usize = 0;
    /// Time of its end, CLOCK_MONOTONIC ns.
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

/// Off-CPU time that a thread recorded; the value is the time that the event represents, ns.
pub mod waited {
    /// CLOCK_MONOTONIC minus the thread's CPU clock at the time of the record, ns.
    pub const OFF: usize = 0;
    /// The duration of the interval itself, ns.
    pub const WAITED: usize = 1;
    /// Number of words.
    pub const WORDS: usize = 2;
}

/// The words of an event, assembled without allocating.
pub struct Words {
    words: [u64; MAX_EXTRA],
    len: usize,
}

impl Words {
    /// Starts with these words.
    #[inline]
    pub fn new(first: &[u64]) -> Words {
        let mut all = Words { words: [0; MAX_EXTRA], len: 0 };
        for word in first {
            all.push(*word);
        }
        all
    }

    /// Appends a word. It is dropped if there is no room.
    #[inline]
    pub fn push(&mut self, word: u64) {
        if let Some(to) = self.words.get_mut(self.len) {
            *to = word;
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Returns the number of text bytes that still fit after a length word.
    pub fn room(&self) -> usize {
        MAX_EXTRA.saturating_sub(self.len).saturating_sub(1).wrapping_mul(8)
    }

    /// Appends the length of a text and its bytes. Returns false if the text was cut.
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

    /// Returns all words.
    #[inline]
    pub fn get(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or_default()
    }

    /// Sets bits of an existing word.
    pub fn set_bits(&mut self, index: usize, bits: u64) {
        if let Some(word) = self.words.get_mut(index).filter(|_| index < self.len) {
            *word |= bits;
        }
    }
}

/// Reads a text written by [`Words::text`] at word `at` and passes its bytes to `to`. Returns the index of
/// the word after it. The words are not trusted: a length that exceeds them is cut.
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
    fn texts_round_trip() {
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
    fn excessive_text_length_is_bounded() {
        let mut count = 0;
        assert_eq!(read_text(&[u64::MAX, 1, 2], 0, &mut |_| count += 1), 3);
        assert_eq!(count, 16);
        assert_eq!(read_text(&[], 0, &mut |_| count += 1), 0);
    }
}
