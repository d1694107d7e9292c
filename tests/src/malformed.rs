//! Recordings with one thing wrong each, made from a sound one byte for byte the same every time.
//!
//! Each case says by hand how many events can still be had and what a reader must tell about the rest. The sound
//! recording is `fixtures/cases/01_defs_before.jfr`: metadata, four checkpoints, 15 samples of 3 threads.

use std::collections::HashMap;

/// The recording all cases are made of.
const SOUND: &[u8] = include_bytes!("../../fixtures/cases/01_defs_before.jfr");
/// Size of a chunk header.
const HEADER: usize = 68;
/// Type id of `jdk.ExecutionSample` in it.
const SAMPLE: u64 = 101;

/// In what is told of doubts, of events nobody can read, and by those alone who look at fields.
const LOSSLESS: &[&str] = &[
    "undeclared type",
    "the header says",
    "ticks per second",
    "in the middle of an update",
    "goes in a circle",
    "where no checkpoint is",
    "not in the chain",
    "the first is taken",
    "reading field",
];

/// A malformed recording.
#[derive(Debug)]
pub struct Case {
    /// Of the file, without extension.
    pub name: &'static str,
    /// What is wrong.
    pub wrong: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// Events that are there as a whole and of a declared type.
    pub events: u64,
    /// Parts of the warnings a reader must give, in any order; none if the file can be read without loss.
    pub told: &'static [&'static str],
}

impl Case {
    /// Whether all of declared types can be had; events of undeclared types belong to whoever declares them.
    pub fn lossless(&self) -> bool {
        self.told.iter().all(|text| LOSSLESS.iter().any(|harmless| text.contains(harmless)))
    }
}

/// A varint in as few bytes as can be.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..8 {
        if value < 0x80 {
            out.push(value as u8);
            return out;
        }
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A varint in all nine bytes.
fn nine(value: u64) -> Vec<u8> {
    let mut out: Vec<u8> = (0..8).map(|i| (value >> (7 * i)) as u8 | 0x80).collect();
    out.push((value >> 56) as u8);
    out
}

/// A size in four bytes.
fn four(value: u64) -> Vec<u8> {
    let group = |i: u64| (value >> (7 * i)) as u8 & 0x7f;
    vec![group(0) | 0x80, group(1) | 0x80, group(2) | 0x80, group(3)]
}

fn get(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for i in 0..9 {
        let byte = u64::from(bytes[*at]);
        *at += 1;
        if i == 8 {
            return value | byte << 56;
        }
        value |= (byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Steps over numbers of the sound recording.
fn skip(at: &mut usize, count: usize) {
    for _ in 0..count {
        get(SOUND, at);
    }
}

fn utf8(text: &str) -> Vec<u8> {
    if text.is_empty() {
        return vec![1];
    }
    [&[3][..], &varint(text.len() as u64), text.as_bytes()].concat()
}

/// The table of strings of a metadata event.
#[derive(Default)]
struct Strings<'e> {
    known: HashMap<&'e str, u64>,
    table: Vec<u8>,
}

impl<'e> Strings<'e> {
    fn index(&mut self, text: &'e str) -> u64 {
        let next = self.known.len() as u64;
        *self.known.entry(text).or_insert_with(|| {
            self.table.extend(utf8(text));
            next
        })
    }
}

/// An element of the metadata tree.
#[derive(Clone, Debug, Default)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
}

impl Element {
    fn new(name: &str, attributes: &[(&str, &str)], children: Vec<Element>) -> Element {
        let attributes = attributes.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        Element { name: name.to_owned(), attributes, children }
    }

    fn parse(bytes: &[u8], at: &mut usize, strings: &[String]) -> Element {
        let name = strings[get(bytes, at) as usize].clone();
        let attributes = (0..get(bytes, at))
            .map(|_| (strings[get(bytes, at) as usize].clone(), strings[get(bytes, at) as usize].clone()))
            .collect();
        let children = (0..get(bytes, at)).map(|_| Element::parse(bytes, at, strings)).collect();
        Element { name, attributes, children }
    }

    fn encode<'e>(&'e self, strings: &mut Strings<'e>, out: &mut Vec<u8>) {
        out.extend(varint(strings.index(&self.name)));
        out.extend(varint(self.attributes.len() as u64));
        for (key, value) in &self.attributes {
            out.extend(varint(strings.index(key)));
            out.extend(varint(strings.index(value)));
        }
        out.extend(varint(self.children.len() as u64));
        for child in &self.children {
            child.encode(strings, out);
        }
    }

    fn class(&mut self, name: &str) -> &mut Element {
        let classes = &mut self.children[0].children;
        let named = |e: &&mut Element| e.attributes.iter().any(|(k, v)| k == "name" && v == name);
        classes.iter_mut().find(named).unwrap_or_else(|| panic!("no class {name}"))
    }

    fn set(&mut self, key: &str, value: &str) {
        self.attributes.retain(|(k, _)| k != key);
        self.attributes.push((key.to_owned(), value.to_owned()));
    }
}

fn class(name: &str, id: u64, fields: Vec<Element>) -> Element {
    Element::new("class", &[("name", name), ("id", &id.to_string())], fields)
}

fn event_class(name: &str, id: u64, fields: Vec<Element>) -> Element {
    let mut class = class(name, id, fields);
    class.set("superType", "jdk.jfr.Event");
    class.children.insert(0, field("startTime", 11));
    class
}

fn field(name: &str, of: u64) -> Element {
    Element::new("field", &[("name", name), ("class", &of.to_string())], Vec::new())
}

fn array(name: &str, of: u64) -> Element {
    let mut field = field(name, of);
    field.set("dimension", "1");
    field
}

fn pooled(mut field: Element) -> Element {
    field.set("constantPool", "true");
    field
}

/// A piece of a chunk.
#[derive(Clone, Debug)]
enum Piece {
    Metadata(Element),
    /// `delta`: `None` chains it to the one before; else as given.
    Checkpoint {
        delta: Option<i64>,
        /// Count of pools, then the pools.
        pools: Vec<u8>,
    },
    Event {
        type_id: u64,
        body: Vec<u8>,
    },
    Raw(Vec<u8>),
}

/// A chunk taken apart. Sizes, offsets and deltas are right when it is put together, unless a case spoils them after.
#[derive(Clone, Debug)]
struct Chunk {
    header: Vec<u8>,
    pieces: Vec<Piece>,
}

/// A chunk put together, and where its pieces lie.
struct Built {
    bytes: Vec<u8>,
    at: Vec<usize>,
}

impl Chunk {
    fn sound() -> Chunk {
        let mut pieces = Vec::new();
        let mut at = HEADER;
        while at < SOUND.len() {
            let start = at;
            let end = start + get(SOUND, &mut at) as usize;
            let type_id = get(SOUND, &mut at);
            pieces.push(match type_id {
                0 => {
                    skip(&mut at, 3);
                    let strings: Vec<String> = (0..get(SOUND, &mut at))
                        .map(|_| {
                            let encoding = SOUND[at];
                            at += 1;
                            if encoding < 3 {
                                return String::new();
                            }
                            let len = get(SOUND, &mut at) as usize;
                            at += len;
                            String::from_utf8(SOUND[at - len..at].to_vec()).expect("metadata is UTF-8")
                        })
                        .collect();
                    Piece::Metadata(Element::parse(SOUND, &mut at, &strings))
                }
                1 => {
                    skip(&mut at, 3);
                    Piece::Checkpoint { delta: None, pools: SOUND[at + 1..end].to_vec() }
                }
                type_id => Piece::Event { type_id, body: SOUND[at..end].to_vec() },
            });
            at = end;
        }
        Chunk { header: SOUND[..HEADER].to_vec(), pieces }
    }

    fn build(&self) -> Built {
        let mut bytes = self.header.clone();
        let mut at = Vec::new();
        let (mut metadata, mut checkpoint) = (0, 0);
        for piece in &self.pieces {
            let start = bytes.len();
            at.push(start);
            let (type_id, body) = match piece {
                Piece::Metadata(root) => {
                    metadata = start;
                    (0, metadata_body(root))
                }
                Piece::Checkpoint { delta, pools } => {
                    let chained = if checkpoint == 0 { 0 } else { checkpoint as i64 - start as i64 };
                    checkpoint = start;
                    let delta = nine(delta.unwrap_or(chained) as u64);
                    (1, [&[0, 0][..], &delta, &[1], pools].concat())
                }
                Piece::Event { type_id, body } => (*type_id, body.clone()),
                Piece::Raw(raw) => {
                    bytes.extend(raw);
                    continue;
                }
            };
            bytes.extend(event(type_id, &body));
        }
        let mut built = Built { bytes, at };
        built.put(8, built.bytes.len() as i64);
        built.put(16, checkpoint as i64);
        built.put(24, metadata as i64);
        built
    }

    /// The tree of the metadata, to be changed.
    fn tree(&mut self) -> &mut Element {
        match &mut self.pieces[0] {
            Piece::Metadata(root) => root,
            _ => unreachable!("the sound recording begins with its metadata"),
        }
    }

    fn declare(&mut self, classes: impl IntoIterator<Item = Element>) {
        self.tree().children[0].children.extend(classes);
    }

    /// Puts events behind the last checkpoint but before its samples.
    fn insert(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        self.pieces.splice(15..15, pieces);
    }
}

impl Built {
    fn put(&mut self, at: usize, value: i64) -> &mut Built {
        self.bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        self
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

fn event(type_id: u64, body: &[u8]) -> Vec<u8> {
    let head = varint(type_id);
    [&four((4 + head.len() + body.len()) as u64), &head, body].concat()
}

fn metadata_body(root: &Element) -> Vec<u8> {
    let mut strings = Strings::default();
    let mut tree = Vec::new();
    root.encode(&mut strings, &mut tree);
    [&[0, 0, 1][..], &varint(strings.known.len() as u64), &strings.table, &tree].concat()
}

/// One pool with one constant.
fn pool(type_id: u64, key: u64, value: &[u8]) -> Vec<u8> {
    [&[1][..], &varint(type_id), &[1], &varint(key), value].concat()
}

fn checkpoint(pools: Vec<u8>) -> Piece {
    Piece::Checkpoint { delta: None, pools }
}

/// A sample of the third thread and its stack, a little later than the last.
fn sample() -> Piece {
    Piece::Event { type_id: SAMPLE, body: [&varint(20_000_000), &[0x66, 0x1e, 0x02][..]].concat() }
}

/// The sound recording with pieces more before its last five samples.
fn with(pieces: impl IntoIterator<Item = Piece>) -> Vec<u8> {
    let mut chunk = Chunk::sound();
    chunk.insert(pieces);
    chunk.build().take()
}

/// The sound recording after a change of its finished bytes.
fn spoilt(change: impl FnOnce(&mut Built)) -> Vec<u8> {
    let mut built = Chunk::sound().build();
    change(&mut built);
    built.take()
}

/// The sound recording with a header field changed.
fn header(at: usize, value: i64) -> Vec<u8> {
    spoilt(|b| {
        b.put(at, value);
    })
}

/// The sound recording with other or more types, and events of theirs.
fn typed(change: impl FnOnce(&mut Chunk)) -> Vec<u8> {
    let mut chunk = Chunk::sound();
    change(&mut chunk);
    chunk.build().take()
}

/// Metadata given as bytes behind its three leading numbers.
fn raw_metadata(body: &[u8]) -> Vec<u8> {
    typed(|c| c.pieces[0] = Piece::Raw(event(0, &[&[0, 0, 1], body].concat())))
}

/// The delta of the checkpoint that is piece `of`, changed.
fn delta(of: usize, value: impl FnOnce(&[usize]) -> i64) -> Vec<u8> {
    spoilt(|b| {
        let value = value(&b.at);
        // Size, type, start, duration.
        let at = b.at[of] + 4 + 1 + 2;
        b.bytes[at..at + 9].copy_from_slice(&nine(value as u64));
    })
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    })
}

/// A gzip file of one stored block.
fn gzip(content: &[u8]) -> Vec<u8> {
    let len = content.len() as u16;
    [
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1][..],
        &len.to_le_bytes(),
        &(!len).to_le_bytes(),
        content,
        &crc32(content).to_le_bytes(),
        &(content.len() as u32).to_le_bytes(),
    ]
    .concat()
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let mut case = |name, wrong, bytes, events, told| all.push(Case { name, wrong, bytes, events, told });
    let sound = Chunk::sound().build();
    let end = sound.bytes.len();

    case("sound", "nothing: the recording all others are made of", sound.bytes.clone(), 15, &[]);

    // Files that are none, or not whole.
    case("empty", "no byte at all", Vec::new(), 0, &["empty (at offset 0, reading the first chunk header)"]);
    case("one-byte", "only the first byte of the magic", b"F".to_vec(), 0, &["not a JFR chunk"]);
    case(
        "text",
        "a text file",
        b"Not a recording at all, but long enough for a header of one: 68 bytes are asked for.\n".to_vec(),
        0,
        &["not a JFR chunk (no \"FLR\\0\" header of version 1 or 2) (at offset 0"],
    );
    case(
        "gzip",
        "the recording in a gzip file, stored",
        gzip(&sound.bytes),
        15,
        &["skipped 15 bytes", "skipped 8 bytes"],
    );
    case(
        "header-torn",
        "the file ends inside the chunk header",
        sound.bytes[..40].to_vec(),
        0,
        &["not a JFR chunk"],
    );
    case(
        "header-only",
        "nothing behind the chunk header",
        sound.bytes[..HEADER].to_vec(),
        0,
        &["bytes before the chunk does"],
    );
    case(
        "event-torn",
        "the file ends inside the last event",
        sound.bytes[..end - 3].to_vec(),
        14,
        &["the input ends 3 bytes before the chunk does"],
    );
    case(
        "metadata-torn",
        "the file ends inside the metadata",
        sound.bytes[..1000].to_vec(),
        0,
        &["bytes before the chunk does"],
    );
    case(
        "trailing-garbage",
        "bytes behind the last chunk",
        [&sound.bytes[..], &[0xa5; 1000]].concat(),
        15,
        &["skipped 1000 bytes"],
    );
    case(
        "zeros-behind",
        "zeros behind the last chunk, as of a file set up in advance",
        [&sound.bytes[..], &[0; 4096]].concat(),
        15,
        &["skipped 4096 bytes"],
    );
    case(
        "garbage-between",
        "bytes between two chunks",
        [&sound.bytes[..], &[0x5a; 77], &sound.bytes].concat(),
        30,
        &["skipped 77 bytes"],
    );
    case(
        "second-chunk-torn",
        "the second of two chunks is cut in its metadata",
        [&sound.bytes[..], &sound.bytes[..500]].concat(),
        15,
        &["chunk 2"],
    );
    case(
        "ten-thousand-headers",
        "10,000 chunks of a header and nothing else",
        {
            let mut one = sound.bytes[..HEADER].to_vec();
            one[8..16].copy_from_slice(&68i64.to_be_bytes());
            one[16..32].fill(0);
            [&one.repeat(10_000)[..], &sound.bytes].concat()
        },
        15,
        &[],
    );

    // Headers.
    case("version-3", "format version 3.0", spoilt(|b| b.bytes[5] = 3), 0, &["not a JFR chunk"]);
    case(
        "size-zero",
        "chunk size 0",
        header(8, 0),
        15,
        &["the header says the chunk has 0 bytes, it has 4431 (at offset 8"],
    );
    case(
        "size-67",
        "chunk size smaller than the header",
        header(8, 67),
        15,
        &["the header says the chunk has 67 bytes, it has 4431 (at offset 8"],
    );
    case("size-negative", "chunk size -1", header(8, -1), 15, &["bytes before the chunk does"]);
    case("size-max", "chunk size 2^63-1", header(8, i64::MAX), 15, &["bytes before the chunk does"]);
    case(
        "size-too-large",
        "chunk size a gigabyte more than the file",
        header(8, end as i64 + (1 << 30)),
        15,
        &["the input ends 1073741824 bytes before the chunk does"],
    );
    case(
        "size-mid-event",
        "the chunk's size ends inside its last event",
        header(8, end as i64 - 2),
        14,
        &["impossible event size", "skipped 2 bytes"],
    );
    case(
        "metadata-nowhere",
        "metadata offset behind the file",
        header(24, 1 << 40),
        15,
        &["no metadata at byte 1099511627776 of the chunk, where the header says (at offset 24"],
    );
    case(
        "metadata-negative",
        "metadata offset -1",
        header(24, -1),
        15,
        &["no metadata at byte -1 of the chunk, where the header says (at offset 24"],
    );
    case(
        "metadata-mid-event",
        "metadata offset inside an event",
        header(24, 100),
        15,
        &["no metadata at byte 100 of the chunk, where the header says (at offset 24"],
    );
    case(
        "metadata-in-header",
        "metadata offset inside the header",
        header(24, 8),
        15,
        &["no metadata at byte 8 of the chunk, where the header says (at offset 24"],
    );
    case(
        "checkpoint-nowhere",
        "checkpoint offset behind the file",
        header(16, 1 << 40),
        15,
        &["no checkpoint at byte 1099511627776 of the chunk, where the header says (at offset 16"],
    );
    case(
        "checkpoint-negative",
        "checkpoint offset -1",
        header(16, -1),
        15,
        &["no checkpoint at byte -1 of the chunk, where the header says (at offset 16"],
    );
    case(
        "checkpoint-is-metadata",
        "checkpoint offset of the metadata",
        header(16, HEADER as i64),
        15,
        &["no checkpoint at byte 68 of the chunk, where the header says (at offset 16"],
    );
    case(
        "checkpoint-mid-event",
        "checkpoint offset inside an event",
        header(16, end as i64 - 3),
        15,
        &["no checkpoint at byte 4428 of the chunk, where the header says (at offset 16"],
    );
    case(
        "frequency-zero",
        "0 ticks per second",
        header(56, 0),
        15,
        &["a clock of 0 ticks per second; ticks are taken for nanoseconds (at offset 56"],
    );
    case(
        "frequency-negative",
        "-1 ticks per second",
        header(56, -1),
        15,
        &["a clock of -1 ticks per second; ticks are taken for nanoseconds (at offset 56"],
    );
    case(
        "clock-extreme",
        "start at -2^63 ns, ticks at 2^63-1",
        spoilt(|b| {
            b.put(32, i64::MIN).put(48, i64::MAX);
        }),
        15,
        &[],
    );
    case(
        "state-updating",
        "state 255: being updated for ever",
        spoilt(|b| b.bytes[64] = 255),
        15,
        &["left in the middle of an update (at offset 64"],
    );

    // Checkpoints.
    case(
        "checkpoint-two-cycle",
        "two checkpoints that name each other as the one before",
        delta(1, |at| at[2] as i64 - at[1] as i64),
        15,
        &["the checkpoint chain goes in a circle (at offset 3897"],
    );
    case(
        "checkpoint-three-cycle",
        "three checkpoints in a circle",
        delta(1, |at| at[8] as i64 - at[1] as i64),
        15,
        &["the checkpoint chain goes in a circle (at offset 4095"],
    );
    case(
        "checkpoint-chain-forward",
        "the chain leads behind the file",
        delta(1, |_| 1 << 40),
        15,
        &["leads to byte 1099511631538 of the chunk, where no checkpoint is (at offset 3762"],
    );
    case(
        "checkpoint-chain-min",
        "the chain leads 2^63 bytes back",
        delta(1, |_| i64::MIN),
        15,
        &["leads to byte -9223372036854772046 of the chunk, where no checkpoint is (at offset 3762"],
    );
    case(
        "checkpoint-chain-mid-event",
        "the chain leads into an event",
        delta(14, |at| at[4] as i64 + 2 - at[14] as i64),
        15,
        &[
            "leads to byte 4049 of the chunk, where no checkpoint is (at offset 4263",
            "3 checkpoints are not in the chain (at offset 3762",
        ],
    );
    case(
        "pool-count-huge",
        "a checkpoint of 2^63-1 pools",
        with([checkpoint(nine(i64::MAX as u64))]),
        15,
        &["a count is larger than the bytes left"],
    );
    case(
        "pool-entries-huge",
        "a pool of 2^62 symbols",
        with([checkpoint([&[1, 31][..], &nine(1 << 62)].concat())]),
        15,
        &["a count is larger than the bytes left"],
    );
    case("pool-empty", "a pool without entries", with([checkpoint(vec![1, 31, 0])]), 15, &[]);
    case(
        "pool-unknown-type",
        "a pool of an undeclared type",
        with([checkpoint(pool(9999, 1, &[0]))]),
        15,
        &["not declared in the metadata"],
    );
    case(
        "pool-of-events",
        "a pool of an event type, itself holding a stack",
        with([checkpoint(pool(SAMPLE, 1, &[1, 0x66, 0x1e, 2]))]),
        15,
        &[],
    );
    case(
        "pool-entry-torn",
        "a pool whose last constant is cut",
        with([checkpoint(vec![1, 31, 2, 0x7e, 3, 1, b'a', 0x7f, 3, 9, b'a'])]),
        15,
        &["constant pools"],
    );
    case(
        "key-redefined",
        "a symbol redefined in the last checkpoint",
        with([checkpoint(pool(31, 10, &utf8("other")))]),
        15,
        &[
            "constant 10 of jdk.types.Symbol is defined again with other content; the first is taken (at offset 4392",
        ],
    );
    case(
        "key-huge",
        "a constant with key 2^64-1",
        with([checkpoint(pool(31, u64::MAX, &utf8("x")))]),
        15,
        &[],
    );
    case(
        "keys-spread",
        "50,000 keys spread over all 64 bits",
        with([checkpoint({
            let mut pool = [&[1, 31][..], &varint(50_000)].concat();
            for i in 1..=50_000u64 {
                pool.extend(varint(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                pool.push(1);
            }
            pool
        })]),
        15,
        &[],
    );
    case(
        "frames-huge",
        "a stack of 2^62 frames",
        with([checkpoint(pool(26, 99, &[&[0][..], &nine(1 << 62)].concat()))]),
        15,
        &["a count is larger than the bytes left"],
    );
    case(
        "thread-group-own-parent",
        "a thread group that is its own parent",
        with([
            checkpoint(pool(33, 7, &[&[7][..], &utf8("g")].concat())),
            checkpoint(pool(22, 0x77, &[&utf8("t")[..], &[1], &utf8("t"), &[1, 7]].concat())),
            Piece::Event { type_id: SAMPLE, body: [&varint(20_000_000), &[0x77, 0x1e, 0x02][..]].concat() },
        ]),
        16,
        &[],
    );
    case(
        "class-and-loader-in-a-circle",
        "a class, its loader, and the loader's class",
        with([
            checkpoint(pool(21, 0x50, &[0x51, 0x0a, 0, 0, 0])),
            checkpoint(pool(23, 0x51, &[0x50, 0x0a])),
            checkpoint(pool(28, 0x52, &[0x50, 0x0a, 0, 0, 0])),
            checkpoint(pool(26, 0x53, &[0, 1, 0x52, 1, 0, 0])),
            Piece::Event { type_id: SAMPLE, body: [&varint(20_000_000), &[0x66, 0x53, 0x02][..]].concat() },
        ]),
        16,
        &[],
    );

    // Strings.
    case(
        "string-length-huge",
        "a symbol of 2^62 bytes",
        with([checkpoint(pool(31, 99, &[&[3][..], &nine(1 << 62)].concat()))]),
        15,
        &["a count is larger than the bytes left"],
    );
    case(
        "string-utf16-huge",
        "a symbol of 2^62 UTF-16 units",
        with([checkpoint(pool(31, 99, &[&[4][..], &nine(1 << 62)].concat()))]),
        15,
        &["a count is larger than the bytes left"],
    );
    case(
        "string-encoding",
        "a symbol in string encoding 6",
        with([checkpoint(pool(31, 99, &[6, 1, b'a']))]),
        15,
        &["unknown string encoding"],
    );
    let thread = |name: &[u8]| {
        let value = [name, &[1], name, &[1, 0]].concat();
        with([
            checkpoint(pool(22, 0x77, &value)),
            Piece::Event { type_id: SAMPLE, body: [&varint(20_000_000), &[0x77, 0x1e, 0x02][..]].concat() },
        ])
    };
    case(
        "string-surrogates",
        "a thread's name of lone surrogates",
        thread(&[&[4, 3][..], &varint(0xdc00), &varint(0xd800), &varint(0x41)].concat()),
        16,
        &[],
    );
    case(
        "string-unit-too-large",
        "a UTF-16 unit of more than 16 bits",
        thread(&[&[4, 1][..], &nine(u64::MAX)].concat()),
        16,
        &[],
    );
    case(
        "string-not-utf8",
        "a thread's name that is not UTF-8",
        thread(&[3, 4, 0xff, 0xc0, 0x80, 0xf8]),
        16,
        &[],
    );
    case(
        "string-in-itself",
        "a pooled string that refers to itself",
        typed(|c| {
            c.insert([
                checkpoint(pool(20, 5, &[2, 5])),
                checkpoint(pool(22, 0x77, &[2, 5, 1, 2, 5, 1, 0])),
                Piece::Event {
                    type_id: SAMPLE,
                    body: [&varint(20_000_000), &[0x77, 0x1e, 0x02][..]].concat(),
                },
            ]);
        }),
        16,
        &[],
    );

    // Events.
    let raw = |bytes: &[u8]| with([Piece::Raw(bytes.to_vec())]);
    case(
        "event-size-0",
        "an event of size 0 before the last five",
        raw(&[0]),
        15,
        &["impossible event size"],
    );
    case(
        "event-size-1",
        "an event of size 1 before the last five",
        raw(&[1]),
        15,
        &["impossible event size"],
    );
    case(
        "event-size-huge",
        "an event of 2^63-1 bytes before the last five",
        raw(&nine(i64::MAX as u64)),
        15,
        &["impossible event size"],
    );
    case(
        "event-size-2-28",
        "an event larger than the chunk before the last five",
        raw(&four((1 << 28) - 1)),
        15,
        &["impossible event size"],
    );
    case(
        "damage-everywhere",
        "50,000 checkpoints, each behind a byte that is no event",
        with((0..50_000).flat_map(|_| [Piece::Raw(vec![0]), checkpoint(vec![0])])),
        15,
        &["impossible event size"],
    );
    case(
        "event-ends-in-type",
        "an event that ends inside its type id",
        raw(&[2, 0xff]),
        15,
        &["impossible event size"],
    );
    case(
        "event-too-short",
        "a sample that ends before its fields",
        raw(&[4, SAMPLE as u8, 1, 0x66]),
        16,
        &["the data ends inside a value (at offset 4375, chunk 1, reading field stackTrace"],
    );
    case(
        "event-too-long",
        "a sample with 40 bytes behind its fields",
        with([Piece::Event {
            type_id: SAMPLE,
            body: [&varint(20_000_000), &[0x66, 0x1e, 2][..], &[0xee; 40]].concat(),
        }]),
        16,
        &[],
    );
    case(
        "event-undeclared",
        "an event of an undeclared type",
        raw(&[4, 0xe7, 0x4e, 1]),
        15,
        &["skipped 1 events of undeclared type 10087"],
    );
    case(
        "event-holds-header",
        "a whole chunk header inside an event",
        with([Piece::Event {
            type_id: SAMPLE,
            body: [&varint(20_000_000), &[0x66, 0x1e, 2][..], &sound.bytes[..HEADER]].concat(),
        }]),
        16,
        &[],
    );
    case(
        "types-many-ids",
        "100,000 events each of an undeclared type of its own",
        with((0..100_000u64).map(|i| Piece::Event { type_id: 1_000_000 + i, body: vec![0] })),
        15,
        &["skipped 99984 events of 99984 more undeclared types"],
    );
    case(
        "varints-of-nine",
        "every number of events and constants in nine bytes",
        typed(|c| {
            for piece in &mut c.pieces {
                if let Piece::Event { type_id, body } = piece {
                    let mut at = 0;
                    let mut numbers = nine(*type_id);
                    while at < body.len() {
                        numbers.extend(nine(get(body, &mut at)));
                    }
                    *piece = Piece::Raw([&nine(9 + numbers.len() as u64)[..], &numbers].concat());
                }
            }
        }),
        15,
        &[],
    );

    // Metadata.
    case(
        "metadata-missing",
        "no metadata",
        typed(|c| drop(c.pieces.remove(0))),
        0,
        &["the chunk has no metadata"],
    );
    case(
        "metadata-empty",
        "metadata without content",
        typed(|c| c.pieces[0] = Piece::Raw(event(0, &[]))),
        0,
        &["the chunk has no metadata"],
    );
    case(
        "metadata-strings-huge",
        "metadata with 2^62 strings",
        raw_metadata(&nine(1 << 62)),
        0,
        &["a count is larger than the bytes left"],
    );
    case(
        "metadata-string-index",
        "a name that is no string of the table",
        raw_metadata(&[1, 3, 4, b'r', b'o', b'o', b't', 9, 0, 0]),
        0,
        &["a string index is out of range"],
    );
    case(
        "metadata-attributes-huge",
        "2^40 attributes",
        raw_metadata(&[&[1, 3, 4, b'r', b'o', b'o', b't', 0][..], &varint(1 << 40)].concat()),
        0,
        &["a count is larger than the bytes left"],
    );
    case(
        "metadata-children-huge",
        "2^40 children",
        raw_metadata(&[&[1, 3, 4, b'r', b'o', b'o', b't', 0, 0][..], &varint(1 << 40)].concat()),
        0,
        &["a count is larger than the bytes left"],
    );
    case(
        "metadata-deep",
        "elements nested 100,000 deep",
        raw_metadata(
            &[&[1, 3, 4, b'r', b'o', b'o', b't'][..], &[0, 0, 1].repeat(100_000), &[0, 0, 0]].concat(),
        ),
        0,
        &["structures nested too deeply"],
    );
    case(
        "metadata-no-root",
        "the root element has another name",
        typed(|c| c.tree().name = "tree".to_owned()),
        15,
        &[],
    );
    case(
        "metadata-id-no-number",
        "a class id that is no number",
        typed(|c| c.tree().class("jdk.types.Package").set("id", "x")),
        0,
        &["the metadata tree is malformed"],
    );
    case(
        "metadata-twice",
        "the same metadata twice",
        typed(|c| {
            let again = c.pieces[0].clone();
            c.insert([again]);
        }),
        15,
        &[],
    );
    case(
        "metadata-contradicts",
        "a second metadata event with other fields for the sample",
        typed(|c| {
            let mut again = c.pieces[0].clone();
            if let Piece::Metadata(root) = &mut again {
                root.class("jdk.ExecutionSample").children.clear();
            }
            c.insert([again]);
        }),
        15,
        &["is declared again otherwise; the first is taken (at offset 4371"],
    );
    case(
        "class-id-twice",
        "two classes with one id",
        typed(|c| c.declare([class("another.Sample", SAMPLE, vec![field("x", 20)])])),
        15,
        &["is declared again otherwise; the first is taken (at offset 68"],
    );
    case(
        "field-type-undeclared",
        "an event with a field of an undeclared type",
        typed(|c| {
            c.declare([event_class("t.Odd", 300, vec![field("x", 7777), field("y", 11)])]);
            c.insert([Piece::Event { type_id: 300, body: vec![1, 2, 3] }]);
        }),
        16,
        &[],
    );
    case(
        "struct-in-itself",
        "a struct with itself as a field",
        typed(|c| {
            c.declare([
                class("t.Self", 300, vec![field("x", 300)]),
                event_class("t.Odd", 301, vec![field("s", 300)]),
            ]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 2, 3] }]);
        }),
        16,
        &[],
    );
    case(
        "structs-in-a-circle",
        "three structs each with the next as a field, pooled",
        typed(|c| {
            c.declare([
                class("t.A", 300, vec![field("n", 11), field("b", 301)]),
                class("t.B", 301, vec![field("n", 11), field("c", 302)]),
                class("t.C", 302, vec![field("n", 11), field("a", 300)]),
                event_class("t.Odd", 303, vec![pooled(field("a", 300))]),
            ]);
            c.insert([checkpoint(pool(300, 1, &[1; 200])), Piece::Event { type_id: 303, body: vec![1, 1] }]);
        }),
        16,
        &["structures nested too deeply"],
    );
    case(
        "struct-array-in-itself",
        "a struct with an array of itself, 31 deep and 2 wide",
        typed(|c| {
            c.declare([
                class("t.Self", 300, vec![array("x", 300)]),
                event_class("t.Odd", 301, vec![field("s", 300)]),
            ]);
            c.insert([Piece::Event { type_id: 301, body: [&[1][..], &[2; 4000]].concat() }]);
        }),
        16,
        &[],
    );
    case(
        "structs-doubling",
        "40 structs, each with the one before twice: 2^40 fields",
        typed(|c| {
            c.declare([class("t.D0", 300, vec![field("a", 11)])]);
            for i in 1..40 {
                c.declare([class(
                    &format!("t.D{i}"),
                    300 + i,
                    vec![field("a", 299 + i), field("b", 299 + i)],
                )]);
            }
            c.declare([event_class("t.Odd", 400, vec![field("d", 339)])]);
            c.insert([Piece::Event { type_id: 400, body: vec![1; 1000] }]);
        }),
        16,
        &[],
    );
    case(
        "structs-doubling-nothing",
        "the same without any field at the end: 2^40 structs in no byte",
        typed(|c| {
            c.declare([class("t.D0", 300, vec![])]);
            for i in 1..40 {
                c.declare([class(
                    &format!("t.D{i}"),
                    300 + i,
                    vec![field("a", 299 + i), field("b", 299 + i)],
                )]);
            }
            c.declare([event_class("t.Odd", 400, vec![field("d", 339)])]);
            c.insert([Piece::Event { type_id: 400, body: vec![1; 1000] }]);
        }),
        16,
        &[],
    );
    case(
        "array-of-nothing",
        "an array of 2^62 structs without fields",
        typed(|c| {
            c.declare([class("t.Nothing", 300, vec![]), event_class("t.Odd", 301, vec![array("x", 300)])]);
            c.insert([Piece::Event { type_id: 301, body: [&[1][..], &nine(1 << 62)].concat() }]);
        }),
        16,
        &[],
    );
    case(
        "array-huge",
        "an array of 2^62 longs",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![array("x", 11)])]);
            c.insert([Piece::Event { type_id: 301, body: [&[1][..], &nine(1 << 62)].concat() }]);
        }),
        16,
        &[],
    );
    case(
        "array-of-doubles-huge",
        "an array of doubles whose length in bytes overflows 64 bits",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![array("x", 7)])]);
            c.insert([Piece::Event { type_id: 301, body: [&[1][..], &nine((1 << 61) + 1)].concat() }]);
        }),
        16,
        &[],
    );
    case(
        "array-pooled",
        "a field that is both array and pooled, with unknown keys",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![pooled(array("x", 31))])]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 3, 10, 11, 0x7f] }]);
        }),
        16,
        &[],
    );
    case(
        "dimension-odd",
        "dimensions 2, -1 and x",
        typed(|c| {
            let mut fields = [array("a", 11), array("b", 11), array("c", 11)];
            fields[0].set("dimension", "2");
            fields[1].set("dimension", "-1");
            fields[2].set("dimension", "x");
            c.declare([event_class("t.Odd", 301, fields.to_vec())]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 1, 5, 1, 6, 1, 7] }]);
        }),
        16,
        &[],
    );
    case(
        "number-pooled",
        "a pooled long",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![pooled(field("x", 11))])]);
            c.insert([checkpoint(pool(11, 4, &[9])), Piece::Event { type_id: 301, body: vec![1, 4] }]);
        }),
        16,
        &[],
    );
    case(
        "simple-type-of-two",
        "a simple type with two fields",
        typed(|c| {
            let mut simple = class("t.Simple", 300, vec![field("a", 11), field("b", 11)]);
            simple.set("simpleType", "true");
            c.declare([simple, event_class("t.Odd", 301, vec![field("s", 300)])]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 2, 3] }]);
        }),
        16,
        &[],
    );
    case(
        "fields-same-name",
        "an event with 1,000 fields of one name",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![field("x", 11); 1000])]);
            c.insert([Piece::Event { type_id: 301, body: vec![1; 1001] }]);
        }),
        16,
        &[],
    );
    case(
        "event-without-fields",
        "an event type without fields, 1,000 events",
        typed(|c| {
            c.declare([{
                let mut none = event_class("t.None", 301, vec![]);
                none.children.clear();
                none
            }]);
            c.insert((0..1000).map(|_| Piece::Event { type_id: 301, body: vec![] }));
        }),
        1015,
        &[],
    );
    case(
        "types-many",
        "100,000 types",
        typed(|c| c.declare((0..100_000).map(|i| class(&format!("t.T{i}"), 1000 + i, vec![])))),
        15,
        &[],
    );
    case(
        "types-million",
        "a million types of one name",
        typed(|c| c.declare((0..1_000_000).map(|i| class("t.T", 1000 + i % 50, vec![])))),
        15,
        &[],
    );
    case(
        "negative-type-id",
        "a class with id -1",
        typed(|c| c.tree().class("jdk.types.Package").set("id", "-1")),
        15,
        &[],
    );
    case(
        "samples-only",
        "samples without any checkpoint",
        typed(|c| c.pieces.retain(|p| !matches!(p, Piece::Checkpoint { .. }))),
        15,
        &[],
    );
    case(
        "sample-of-the-future",
        "times of 2^63-1 and -2^63",
        with([i64::MAX, i64::MIN].map(|t| Piece::Event {
            type_id: SAMPLE,
            body: [&nine(t as u64), &[0x66, 0x1e, 2][..]].concat(),
        })),
        17,
        &[],
    );
    case("sound-again", "nothing: one sample more", with([sample()]), 16, &[]);
    all
}
