//! Ids: OpenTelemetry's span context, and the generator of new ones.

/// Ids of a span, as defined by OpenTelemetry and W3C Trace Context. Big-endian bytes of the numbers are the
/// bytes of the standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanContext {
    /// Common to all spans of a request; zeros: none.
    pub trace_id: [u8; 16],
    /// This span; 0: none.
    pub span_id: u64,
    /// Its parent span; 0: none or unknown.
    pub parent_span_id: u64,
    /// The outermost span of this trace in this process. 0: that of the enclosing span on the thread if it is of the same
    /// trace, else this span.
    pub local_root_span_id: u64,
    /// Trace flags: bit 0 means that the trace is sampled, so its tracer stores it.
    pub flags: u8,
}

/// The flag of sampled traces.
pub const SAMPLED: u8 = 1;

/// The flag of trace ids whose last seven bytes are random.
pub const RANDOM: u8 = 2;

/// xoshiro256++ (Blackman and Vigna), seeded by the kernel for each thread. Ids must be unique, not secret.
#[repr(C)]
pub(crate) struct Random([u64; 4]);

impl Random {
    pub(crate) fn seeded(thread: u64) -> Random {
        let mut bytes = [0u8; 32];
        if !crate::sys::random(&mut bytes) {
            // The kernel has no random bytes early at boot, and a system call filter may refuse them. Then
            // time and addresses, spread by splitmix64, are the seed.
            let mut seed =
                crate::clock::now_ns() ^ thread.rotate_left(32) ^ (&raw const bytes as u64).rotate_left(17);
            for word in bytes.chunks_exact_mut(8) {
                seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                word.copy_from_slice(&(z ^ z >> 31).to_ne_bytes());
            }
        }
        let word = |i: usize| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|b| bytes[i * 8 + b]));
        // A state of all zeros would never change.
        Random([word(0) | 1, word(1), word(2), word(3)])
    }

    /// Returns the next number that is not 0.
    pub(crate) fn next(&mut self) -> u64 {
        loop {
            let s = &mut self.0;
            let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
            let t = s[1] << 17;
            s[2] ^= s[0];
            s[3] ^= s[1];
            s[1] ^= s[2];
            s[0] ^= s[3];
            s[2] ^= t;
            s[3] = s[3].rotate_left(45);
            if result != 0 {
                return result;
            }
        }
    }
}
