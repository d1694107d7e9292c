//! Reads memory of a JVM. All lengths are checked by the callers; a failed or short read is `None`.

use flightline_in_signal::os::sys;

/// Memory that may be unmapped or change at any time.
pub trait ReadMemory {
    /// Copies bytes from `address` on; returns the number of bytes copied, which may be fewer than requested.
    fn read(&self, address: u64, to: &mut [u8]) -> usize;

    /// Returns `N` bytes.
    fn array<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(address, &mut bytes) == N).then_some(bytes)
    }

    /// Returns exactly `len` bytes.
    fn bytes(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        (self.read(address, &mut bytes) == len).then_some(bytes)
    }

    /// Returns the 16-bit value at an address.
    fn u16(&self, address: u64) -> Option<u16> {
        self.array(address).map(u16::from_le_bytes)
    }

    /// Returns the 32-bit value at an address.
    fn u32(&self, address: u64) -> Option<u32> {
        self.array(address).map(u32::from_le_bytes)
    }

    /// Returns the 64-bit value at an address.
    fn u64(&self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_le_bytes)
    }

    /// Returns a string that ends with a zero byte and has at most `max` bytes.
    fn c_string(&self, address: u64, max: usize) -> Option<String> {
        const PIECE: usize = 64;
        let mut text = Vec::new();
        while text.len() <= max {
            let from = address.checked_add(text.len() as u64)?;
            let mut piece = [0; PIECE];
            // A piece does not extend beyond its 64-byte block, so that it never touches a page that the
            // string does not reach.
            let len = PIECE - (from % PIECE as u64) as usize;
            let got = self.read(from, &mut piece[..len]);
            let piece = piece.get(..got)?;
            if let Some(end) = piece.iter().position(|b| *b == 0) {
                text.extend_from_slice(&piece[..end]);
                return (text.len() <= max).then(|| String::from_utf8_lossy(&text).into_owned());
            }
            if got < len {
                return None;
            }
            text.extend_from_slice(piece);
        }
        None
    }
}

/// Memory of another process.
#[derive(Clone, Copy, Debug)]
pub struct RemoteMemory {
    /// The process.
    pub pid: u32,
}

impl ReadMemory for RemoteMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        // SAFETY: the buffer is valid for writes of its length.
        unsafe { sys::read_process(self.pid, address, to.as_mut_ptr(), to.len()) }
    }
}

/// Ranges of bytes at chosen addresses.
#[cfg(test)]
#[derive(Clone, Default)]
pub struct FakeMemory {
    ranges: std::collections::BTreeMap<u64, Vec<u8>>,
}

#[cfg(test)]
impl FakeMemory {
    /// Sets the bytes from `address` on, which may overwrite a part of an earlier range.
    pub fn set(&mut self, address: u64, bytes: &[u8]) {
        if let Some((start, range)) = self.ranges.range_mut(..=address).next_back() {
            let at = (address - start) as usize;
            if at + bytes.len() <= range.len() {
                range[at..at + bytes.len()].copy_from_slice(bytes);
                return;
            }
        }
        self.ranges.insert(address, bytes.to_vec());
    }

    /// Sets a 64-bit value.
    pub fn set_u64(&mut self, address: u64, value: u64) {
        self.set(address, &value.to_le_bytes());
    }

    /// Sets a string that ends with a zero byte.
    pub fn set_c_string(&mut self, address: u64, text: &str) {
        self.set(address, &[text.as_bytes(), &[0]].concat());
    }

    /// Returns all bytes, for tests that change them.
    pub fn all_bytes(&mut self) -> impl Iterator<Item = &mut u8> {
        self.ranges.values_mut().flatten()
    }
}

#[cfg(test)]
impl ReadMemory for FakeMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let Some((start, range)) = self.ranges.range(..=address).next_back() else { return 0 };
        let found = range.get((address - start) as usize..).unwrap_or(&[]);
        let len = found.len().min(to.len());
        to[..len].copy_from_slice(&found[..len]);
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read() {
        let own = RemoteMemory { pid: std::process::id() };
        let text = *b"\x01\x02\x03\x04\x05\x06\x07\x08 text\0";
        let at = text.as_ptr() as u64;
        assert_eq!(own.u16(at), Some(0x0201));
        assert_eq!(own.u32(at), Some(0x0403_0201));
        assert_eq!(own.u64(at), Some(0x0807_0605_0403_0201));
        assert_eq!(own.c_string(at + 8, 5).as_deref(), Some(" text"));
        assert_eq!(own.c_string(at + 8, 4), None, "longer than the limit");
        assert_eq!(own.bytes(8, 4), None);
        assert_eq!(own.c_string(8, 4), None);
    }

    #[test]
    fn string_without_end_is_rejected() {
        let mut memory = FakeMemory::default();
        memory.set(0x1000, &[b'x'; 200]);
        assert_eq!(memory.c_string(0x1000, 1000), None);
        assert_eq!(memory.c_string(0x1000, 100), None);
        assert_eq!(memory.c_string(u64::MAX - 3, 100), None);
    }
}
