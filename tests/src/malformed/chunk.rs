//! Splits the valid recording, changes it, and assembles it again.

use std::collections::HashMap;

/// The recording from which all cases are derived.
pub(super) const SOUND: &[u8] = include_bytes!("../../../fixtures/cases/01_defs_before.jfr");
/// Size of a chunk header.
pub(super) const HEADER: usize = 68;
/// Type id of `jdk.ExecutionSample` in it.
pub(super) const SAMPLE: u64 = 101;

/// A varint in the shortest form.
pub(super) fn varint(mut value: u64) -> Vec<u8> {
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
pub(super) fn nine(value: u64) -> Vec<u8> {
    let mut out: Vec<u8> = (0..8).map(|i| (value >> (7 * i)) as u8 | 0x80).collect();
    out.push((value >> 56) as u8);
    out
}

/// A size in four bytes.
pub(super) fn four(value: u64) -> Vec<u8> {
    let group = |i: u64| (value >> (7 * i)) as u8 & 0x7f;
    vec![group(0) | 0x80, group(1) | 0x80, group(2) | 0x80, group(3)]
}

pub(super) fn get(bytes: &[u8], at: &mut usize) -> u64 {
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

/// Skips numbers of the valid recording.
pub(super) fn skip(at: &mut usize, count: usize) {
    for _ in 0..count {
        get(SOUND, at);
    }
}

pub(super) fn utf8(text: &str) -> Vec<u8> {
    if text.is_empty() {
        return vec![1];
    }
    [&[3][..], &varint(text.len() as u64), text.as_bytes()].concat()
}

/// The table of strings of a metadata event.
#[derive(Default)]
pub(super) struct Strings<'e> {
    pub(super) known: HashMap<&'e str, u64>,
    pub(super) table: Vec<u8>,
}

impl<'e> Strings<'e> {
    pub(super) fn index(&mut self, text: &'e str) -> u64 {
        let next = self.known.len() as u64;
        *self.known.entry(text).or_insert_with(|| {
            self.table.extend(utf8(text));
            next
        })
    }
}

/// An element of the metadata tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) children: Vec<Element>,
}

impl Element {
    pub(super) fn new(name: &str, attributes: &[(&str, &str)], children: Vec<Element>) -> Element {
        let attributes = attributes.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        Element { name: name.to_owned(), attributes, children }
    }

    pub(super) fn parse(bytes: &[u8], at: &mut usize, strings: &[String]) -> Element {
        let name = strings[get(bytes, at) as usize].clone();
        let attributes = (0..get(bytes, at))
            .map(|_| (strings[get(bytes, at) as usize].clone(), strings[get(bytes, at) as usize].clone()))
            .collect();
        let children = (0..get(bytes, at)).map(|_| Element::parse(bytes, at, strings)).collect();
        Element { name, attributes, children }
    }

    pub(super) fn encode<'e>(&'e self, strings: &mut Strings<'e>, out: &mut Vec<u8>) {
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

    pub(super) fn class(&mut self, name: &str) -> &mut Element {
        let classes = &mut self.children[0].children;
        let named = |e: &&mut Element| e.attributes.iter().any(|(k, v)| k == "name" && v == name);
        classes.iter_mut().find(named).unwrap_or_else(|| panic!("no class {name}"))
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.attributes.retain(|(k, _)| k != key);
        self.attributes.push((key.to_owned(), value.to_owned()));
    }
}

pub(super) fn class(name: &str, id: u64, fields: Vec<Element>) -> Element {
    Element::new("class", &[("name", name), ("id", &id.to_string())], fields)
}

pub(super) fn event_class(name: &str, id: u64, fields: Vec<Element>) -> Element {
    let mut class = class(name, id, fields);
    class.set("superType", "jdk.jfr.Event");
    class.children.insert(0, field("startTime", 11));
    class
}

pub(super) fn field(name: &str, of: u64) -> Element {
    Element::new("field", &[("name", name), ("class", &of.to_string())], Vec::new())
}

pub(super) fn array(name: &str, of: u64) -> Element {
    let mut field = field(name, of);
    field.set("dimension", "1");
    field
}

pub(super) fn pooled(mut field: Element) -> Element {
    field.set("constantPool", "true");
    field
}

/// A piece of a chunk.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Metadata(Element),
    /// `delta`: `None` chains it to the previous one; otherwise the given value.
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

/// A chunk in parts. Assembling it computes sizes, offsets and deltas; cases may change them afterwards.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) header: Vec<u8>,
    pub(super) pieces: Vec<Piece>,
}

/// An assembled chunk, and the offsets of its parts.
pub(super) struct Built {
    pub(super) bytes: Vec<u8>,
    pub(super) at: Vec<usize>,
}

impl Chunk {
    pub(super) fn sound() -> Chunk {
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

    pub(super) fn build(&self) -> Built {
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

    /// The tree of the metadata, for modification.
    pub(super) fn tree(&mut self) -> &mut Element {
        match &mut self.pieces[0] {
            Piece::Metadata(root) => root,
            _ => unreachable!("the sound recording begins with its metadata"),
        }
    }

    pub(super) fn declare(&mut self, classes: impl IntoIterator<Item = Element>) {
        self.tree().children[0].children.extend(classes);
    }

    /// Inserts events between the last checkpoint and its samples.
    pub(super) fn insert(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        self.pieces.splice(15..15, pieces);
    }
}

impl Built {
    pub(super) fn put(&mut self, at: usize, value: i64) -> &mut Built {
        self.bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

pub(super) fn event(type_id: u64, body: &[u8]) -> Vec<u8> {
    let head = varint(type_id);
    [&four((4 + head.len() + body.len()) as u64), &head, body].concat()
}

pub(super) fn metadata_body(root: &Element) -> Vec<u8> {
    let mut strings = Strings::default();
    let mut tree = Vec::new();
    root.encode(&mut strings, &mut tree);
    [&[0, 0, 1][..], &varint(strings.known.len() as u64), &strings.table, &tree].concat()
}

/// One pool with one constant.
pub(super) fn pool(type_id: u64, key: u64, value: &[u8]) -> Vec<u8> {
    [&[1][..], &varint(type_id), &[1], &varint(key), value].concat()
}

pub(super) fn checkpoint(pools: Vec<u8>) -> Piece {
    Piece::Checkpoint { delta: None, pools }
}

/// A sample of the third thread with its stack, slightly later than the last one.
pub(super) fn sample() -> Piece {
    Piece::Event { type_id: SAMPLE, body: [&varint(20_000_000), &[0x66, 0x1e, 0x02][..]].concat() }
}

/// The valid recording with additional pieces before its last five samples.
pub(super) fn with(pieces: impl IntoIterator<Item = Piece>) -> Vec<u8> {
    let mut chunk = Chunk::sound();
    chunk.insert(pieces);
    chunk.build().take()
}

/// The valid recording after a change of its finished bytes.
pub(super) fn spoilt(change: impl FnOnce(&mut Built)) -> Vec<u8> {
    let mut built = Chunk::sound().build();
    change(&mut built);
    built.take()
}

/// The valid recording with a changed header field.
pub(super) fn header(at: usize, value: i64) -> Vec<u8> {
    spoilt(|b| {
        b.put(at, value);
    })
}

/// Returns the valid recording with changed or added types and events of those types.
pub(super) fn typed(change: impl FnOnce(&mut Chunk)) -> Vec<u8> {
    let mut chunk = Chunk::sound();
    change(&mut chunk);
    chunk.build().take()
}

/// Metadata as bytes after its three leading numbers.
pub(super) fn raw_metadata(body: &[u8]) -> Vec<u8> {
    typed(|c| c.pieces[0] = Piece::Raw(event(0, &[&[0, 0, 1], body].concat())))
}

/// Changes the delta of the checkpoint that is piece `of`.
pub(super) fn delta(of: usize, value: impl FnOnce(&[usize]) -> i64) -> Vec<u8> {
    spoilt(|b| {
        let value = value(&b.at);
        // Size, type, start, duration.
        let at = b.at[of] + 4 + 1 + 2;
        b.bytes[at..at + 9].copy_from_slice(&nine(value as u64));
    })
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    })
}

/// A gzip file of one stored block.
pub(super) fn gzip(content: &[u8]) -> Vec<u8> {
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
