#![allow(dead_code)] // not every test uses all of it

//! A separate decoder for the tests of the writer: it shares no code with the crate, and panics on anything
//! unexpected.

use std::collections::{BTreeMap, BTreeSet};

pub struct Bytes<'a> {
    pub all: &'a [u8],
    pub at: usize,
}

impl<'a> Bytes<'a> {
    pub fn new(all: &'a [u8]) -> Bytes<'a> {
        Bytes { all, at: 0 }
    }

    pub fn u8(&mut self) -> u8 {
        self.at += 1;
        self.all[self.at - 1]
    }

    pub fn take(&mut self, len: usize) -> &'a [u8] {
        self.at += len;
        &self.all[self.at - len..self.at]
    }

    pub fn varint(&mut self) -> u64 {
        let mut value = 0;
        for i in 0..8 {
            let byte = u64::from(self.u8());
            value |= (byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                return value;
            }
        }
        value | u64::from(self.u8()) << 56
    }

    pub fn string(&mut self) -> Option<String> {
        match self.u8() {
            0 => None,
            1 => Some(String::new()),
            3 => {
                let len = self.varint() as usize;
                assert!(len > 0, "empty strings are written as such");
                Some(String::from_utf8(self.take(len).to_vec()).unwrap())
            }
            other => panic!("string encoding {other}"),
        }
    }
}

pub fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

pub struct Header {
    pub size: usize,
    pub checkpoint: usize,
    pub metadata: usize,
    pub start_nanos: u64,
    pub duration: u64,
    pub start_ticks: u64,
    pub ticks_per_second: u64,
    pub state: u8,
    pub flags: u64,
}

pub fn header(chunk: &[u8]) -> Header {
    assert_eq!(&chunk[..8], b"FLR\0\0\x02\0\x01");
    assert_eq!(chunk[65], 0);
    let at = |from: usize| be(&chunk[from..from + 8]);
    Header {
        size: at(8) as usize,
        checkpoint: at(16) as usize,
        metadata: at(24) as usize,
        start_nanos: at(32),
        duration: at(40),
        start_ticks: at(48),
        ticks_per_second: at(56),
        state: chunk[64],
        flags: be(&chunk[66..68]),
    }
}

/// The results of a walk over a chunk.
#[derive(Default)]
pub struct Chunk {
    /// Offsets of all checkpoints.
    pub checkpoints: BTreeSet<usize>,
    /// Values by pool and key, as their bytes.
    pub constants: BTreeMap<(u64, u64), Vec<u8>>,
    /// Type and body of all events except checkpoints and metadata.
    pub events: Vec<(u64, Vec<u8>)>,
    /// Bytes in fillers.
    pub filler: usize,
    /// Offset and flags of the last checkpoint.
    pub last: (usize, u8),
}

/// Walks over one chunk, which is the whole of `chunk`, from start to end like a stream.
///
/// Checks: sizes end exactly at the end; one metadata event, right after the header; no constant is defined
/// twice; every pool a sample or stack refers to is defined **before** it is used; the chain from the
/// header's checkpoint reaches every checkpoint.
pub fn chunk(chunk: &[u8]) -> Chunk {
    let header = header(chunk);
    assert_eq!(header.size, chunk.len());
    assert_eq!(header.metadata, 68);
    let mut found = Chunk::default();
    let mut deltas = BTreeMap::new();
    let mut bytes = Bytes { all: chunk, at: 68 };
    while bytes.at < chunk.len() {
        let start = bytes.at;
        let size = bytes.varint() as usize;
        let end = start + size;
        assert!(end <= chunk.len(), "event at {start} of {size} bytes leaves the chunk");
        let ty = bytes.varint();
        match ty {
            0 if start == 68 => assert!(size > 1000),
            0 => {
                assert!(chunk[bytes.at..end].iter().all(|&byte| byte == 0));
                found.filler += size;
            }
            1 => {
                let (delta, flags) = checkpoint(&mut bytes, end, &mut found.constants);
                assert!(found.checkpoints.insert(start));
                deltas.insert(start, delta);
                found.last = (start, flags);
            }
            ty => {
                let body = chunk[bytes.at..end].to_vec();
                uses(ty, &body, &found.constants);
                found.events.push((ty, body));
            }
        }
        bytes.at = end;
    }
    assert_eq!(bytes.at, chunk.len());
    assert_eq!(chain(header.checkpoint, &deltas), found.checkpoints);
    found
}

fn checkpoint(bytes: &mut Bytes<'_>, end: usize, constants: &mut BTreeMap<(u64, u64), Vec<u8>>) -> (i64, u8) {
    let _ticks = bytes.varint();
    assert_eq!(bytes.varint(), 0);
    let delta = bytes.varint() as i64;
    let flags = bytes.u8();
    for _ in 0..bytes.varint() {
        let pool = bytes.varint();
        let count = bytes.varint();
        assert!(count > 0, "the JDK refuses empty pools");
        for _ in 0..count {
            let key = bytes.varint();
            let start = bytes.at;
            value(pool, bytes);
            let value = bytes.all[start..bytes.at].to_vec();
            assert!(constants.insert((pool, key), value).is_none(), "pool {pool}, key {key} twice");
        }
    }
    assert_eq!(bytes.at, end, "a checkpoint must end where its size says");
    (delta, flags)
}

/// Skips one constant. Supports only the pools that the tests use.
fn value(pool: u64, bytes: &mut Bytes<'_>) {
    match pool {
        // Class, Method: keys and numbers only
        21 | 28 => {
            for _ in 0..4 {
                bytes.varint();
            }
            bytes.u8();
        }
        // Thread
        22 => {
            bytes.string();
            bytes.varint();
            bytes.string();
            bytes.varint();
            bytes.varint();
        }
        // FrameType, ThreadState, Symbol
        24 | 25 | 31 => {
            bytes.string();
        }
        // StackTrace
        26 => {
            bytes.u8();
            for _ in 0..bytes.varint() * 4 {
                bytes.varint();
            }
        }
        other => panic!("pool {other}"),
    }
}

/// The keys that a sample uses must be known by now.
fn uses(ty: u64, body: &[u8], constants: &BTreeMap<(u64, u64), Vec<u8>>) {
    if ty != 101 {
        return;
    }
    let mut bytes = Bytes::new(body);
    bytes.varint();
    for pool in [22, 26, 25] {
        let key = bytes.varint();
        assert!(constants.contains_key(&(pool, key)), "pool {pool}: {key} used before it is defined");
    }
    assert_eq!(bytes.at, body.len());
}

fn chain(last: usize, deltas: &BTreeMap<usize, i64>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut at = last;
    loop {
        assert!(reached.insert(at), "the chain of checkpoints runs in circles");
        match deltas.get(&at) {
            None => panic!("the chain of checkpoints leads to {at}, where none is"),
            Some(0) => return reached,
            Some(&delta) => at = (at as i64 + delta) as usize,
        }
    }
}

/// Splits a file by the chunk sizes in its headers.
pub fn chunks(mut file: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    while !file.is_empty() {
        let (chunk, rest) = file.split_at(header(file).size);
        chunks.push(chunk);
        file = rest;
    }
    chunks
}

/// Pseudo-random numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Returns type, body and offset of each event of a chunk except metadata, checkpoints and fillers.
pub fn events(chunk: &[u8]) -> Vec<(u64, &[u8], usize)> {
    let mut found = Vec::new();
    let mut bytes = Bytes { all: chunk, at: 68 };
    while bytes.at < chunk.len() {
        let start = bytes.at;
        let size = bytes.varint() as usize;
        let ty = bytes.varint();
        if ty > 1 {
            found.push((ty, &chunk[bytes.at..start + size], start));
        }
        bytes.at = start + size;
    }
    found
}
