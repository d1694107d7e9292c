//! Bytes since the last segment whose checksum is not verified yet.

use bytes::{Buf, BytesMut};
use crc32fast::Hasher;

/// Hashes bytes as soon as no segment can end before them, so that they need not be stored.
#[derive(Debug, Default)]
pub(super) struct Window {
    bytes: BytesMut,
    /// Offset of the first byte in `bytes`.
    at: u64,
    hasher: Hasher,
    /// Offset at which the hashed bytes begin; `None` if some of them were discarded.
    start: Option<u64>,
}

impl Window {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A segment begins at `start`.
    pub(super) fn begin(&mut self, start: u64) {
        self.start = (start >= self.at).then_some(start);
        self.skip(start);
        self.hasher = Hasher::new();
    }

    /// No segment begins before `to`.
    pub(super) fn skip(&mut self, to: u64) {
        let n = self.until(to);
        self.bytes.advance(n);
        self.at += n as u64;
    }

    /// The segment does not end before `to`.
    pub(super) fn hash(&mut self, to: u64) {
        let n = self.until(to);
        self.hasher.update(self.bytes.get(..n).unwrap_or_default());
        self.bytes.advance(n);
        self.at += n as u64;
    }

    /// Returns the start and the checksum of the segment that ends at `end`.
    pub(super) fn end(&mut self, end: u64) -> Option<(u64, u32)> {
        self.hash(end);
        let whole = self.at == end;
        self.start.filter(|_| whole).map(|start| (start, self.hasher.clone().finalize()))
    }

    fn until(&self, to: u64) -> usize {
        usize::try_from(to.saturating_sub(self.at)).unwrap_or(usize::MAX).min(self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_splits_do_not_change_checksums() {
        let data: Vec<u8> = (0..1000u32).map(|i| ((i * i) >> 3) as u8).collect();
        for step in [1, 7, 64, 1000] {
            let mut window = Window::default();
            let mut pushed = 0;
            for piece in data.chunks(step) {
                window.push(piece);
                pushed += piece.len() as u64;
                if pushed == step as u64 {
                    window.begin(3.min(pushed));
                }
                window.hash(pushed.saturating_sub(5).min(900));
            }
            if step >= 3 {
                assert_eq!(window.end(900), Some((3, crc32fast::hash(&data[3..900]))));
                window.begin(910);
                assert_eq!(window.end(1000), Some((910, crc32fast::hash(&data[910..]))));
                assert_eq!(window.end(1001), None, "it has not come");
                window.begin(950);
                assert_eq!(window.end(1000), None, "it is gone");
            }
        }
    }
}
