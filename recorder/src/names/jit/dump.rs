//! Parses jitdump files: a header, then records that begin with their kind, size and time.
//!
//! ```text
//! header   magic u32, version u32, size u32, …
//! record   kind u32, size of all u32, time u64, and by kind
//!   0 load    pid u32, tid u32, vma u64, address u64, size u64, index u64, name\0, code
//!   1 move    pid u32, tid u32, vma u64, old address u64, new address u64, size u64, index u64
//!   2 lines   address u64, count u64, count × (address u64, line u32, discriminator u32, file\0)   of the load that follows
//! ```

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use super::{Codes, Grown, Lines};

const MAGIC: u32 = 0x4a69_5444;
const PREFIX: u64 = 16;
const MAX_HEADER: u32 = 4096;
/// Limit of bytes read of one record. Code is skipped.
const MAX_RECORD: u64 = 1 << 20;

/// Limit of records read at a time, so that rings do not wait.
const MAX_RECORDS: u32 = 10_000;

/// The position in a file.
#[derive(Default)]
pub struct Reader {
    at: u64,
    /// Lines of the code at an address. The record with this code follows.
    lines: Option<(u64, Lines)>,
    /// The file is not a jitdump, or damaged.
    odd: bool,
}

impl Grown for Reader {
    fn read(&mut self, file: &File, codes: &mut Codes) -> bool {
        let Ok(size) = file.metadata().map(|m| m.len()) else { return false };
        let mut more = false;
        if self.at == 0 && !self.odd {
            let Some(header) = bytes(file, 0, 12).filter(|_| size > 12) else { return false };
            let len = word(&header, 8);
            self.odd = word(&header, 0) != MAGIC || !(40..=MAX_HEADER).contains(&len);
            self.at = u64::from(len);
        }
        let mut left = MAX_RECORDS;
        while !self.odd && self.at + PREFIX <= size && left > 0 {
            left -= 1;
            let Some(prefix) = bytes(file, self.at, PREFIX) else { break };
            let (kind, len) = (word(&prefix, 0), u64::from(word(&prefix, 4)));
            if len < PREFIX {
                self.odd = true;
                break;
            }
            // The program may still be writing this record.
            if self.at + len > size {
                break;
            }
            if let Some(body) = bytes(file, self.at + PREFIX, (len - PREFIX).min(MAX_RECORD)) {
                self.record(kind, &body, codes);
            }
            self.at += len;
            more = true;
        }
        more
    }
}

impl Reader {
    fn record(&mut self, kind: u32, body: &[u8], codes: &mut Codes) {
        match kind {
            0 if body.len() > 40 => {
                let (address, size) = (long(body, 16), long(body, 24));
                let name = body[40..].split(|b| *b == 0).next().unwrap_or(&[]);
                let lines = self.lines.take().filter(|(of, _)| *of == address).map(|(_, lines)| lines);
                codes.add(address, size, &String::from_utf8_lossy(name), lines.unwrap_or_default());
            }
            1 if body.len() >= 40 => {
                let (old, new, size) = (long(body, 16), long(body, 24), long(body, 32));
                if let Some((name, _)) = codes.find(old) {
                    codes.add(new, size, &name, Arc::new([]));
                }
            }
            2 if body.len() >= 16 => self.lines = Some((long(body, 0), lines(&body[16..]).into())),
            _ => {}
        }
    }
}

fn lines(mut entries: &[u8]) -> Vec<(u64, u32)> {
    let mut lines = Vec::new();
    while entries.len() > 16 {
        lines.push((long(entries, 0), word(entries, 8)));
        let Some(end) = entries[16..].iter().position(|b| *b == 0) else { break };
        entries = &entries[16 + end + 1..];
    }
    lines.sort_unstable();
    lines
}

fn bytes(file: &File, at: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend((body.len() as u32 + 16).to_ne_bytes());
        bytes.extend(0u64.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn header() -> Vec<u8> {
        let mut bytes = [MAGIC, 1, 40, 62, 0, 1].map(u32::to_ne_bytes).concat();
        bytes.resize(40, 0);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn jitdump_loads_lines_and_moves_are_read() {
        let mut debug = words(&[0x1000, 2, 0x1000]);
        debug.extend([5u32, 0].map(u32::to_ne_bytes).concat());
        debug.extend(b"a.lua\0");
        debug.extend(words(&[0x1010]));
        debug.extend([8u32, 0].map(u32::to_ne_bytes).concat());
        debug.extend(b"\xff\0");
        let mut load = words(&[0, 0x1000, 0x1000, 0x40, 1]);
        load.extend(b"trace_1\0");
        load.extend([0x90; 0x40]);
        let moved = words(&[0, 0, 0x1000, 0x5000, 0x40, 1]);
        let mut file = tempfile::tempfile().unwrap();
        let (mut reader, mut codes) = (Reader::default(), Codes::default());
        assert!(!reader.read(&file, &mut codes));
        let all = [header(), record(2, &debug), record(0, &load), record(3, b""), record(1, &moved)].concat();
        let (first, rest) = all.split_at(all.len() - 70);
        file.write_all(first).unwrap();
        assert!(reader.read(&file, &mut codes));
        file.write_all(rest).unwrap();
        assert!(reader.read(&file, &mut codes));
        let found = |at| codes.find(at).map(|(name, line)| (name.to_string(), line));
        assert_eq!(found(0x1000), Some(("trace_1".into(), 5)));
        assert_eq!(found(0x103f), Some(("trace_1".into(), 8)));
        assert_eq!(found(0x5001), Some(("trace_1".into(), 0)));
        assert!(!reader.read(&file, &mut codes));
    }

    #[test]
    fn other_files_are_ignored() {
        for bytes in [b"no jitdump at all, but long enough".to_vec(), [header(), vec![0; 40]].concat()] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let (mut reader, mut codes) = (Reader::default(), Codes::default());
            reader.read(&file, &mut codes);
            assert!(reader.odd && !reader.read(&file, &mut codes));
        }
    }
}
