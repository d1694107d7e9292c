//! Adds names to frames that were recorded without them. Stack traces are rewritten; all other data is
//! unchanged.
//!
//! A frame can be named if it contains its file and address: its bytecode index is the address within the
//! file, and the package of its method's class belongs to a module whose version is the build id and whose
//! location is the path. The functions found for an address replace the frame: functions that are inlined
//! there, then the function itself.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use super::rebuild::{Change, Plan, RetainedEvents, rebuild};
use super::repair::{header, times};
use super::scan::{self, Effort, ScannedChunk};
use super::source::Source;
use crate::chunk::Chunk;
use crate::constants::CHECKPOINT_EVENT;
use crate::cursor::Cursor;
use crate::event::{StructRef, Value, constant};
use crate::ids::{ChunkIndex, FileOffset};
use crate::schema::frame_type;
use crate::types::{ClassIndex, Types};
use crate::{strings, varint};

/// Keys of added constants; those of the recorder are lower. Pyroscope cuts keys of methods to 32 bits.
const FIRST_KEY: u64 = 1 << 31;
const SHAPES: [(&str, &[&str]); 3] = [
    ("jdk.types.StackTrace", &["truncated", "frames"]),
    ("jdk.types.StackFrame", &["method", "lineNumber", "bytecodeIndex", "type"]),
    ("jdk.types.Method", &["type", "name", "descriptor", "modifiers", "hidden"]),
];

/// The file and address of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrameLocation<'a> {
    /// Path of the file in the recorded program; may be empty.
    pub path: &'a str,
    /// Its build id in hexadecimal; may be empty.
    pub build_id: &'a str,
    /// Address within it.
    pub address: u64,
}

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name. The last function of an address may have an empty name; then the recorded one is retained.
    pub name: String,
    /// Source line, 0 if unknown.
    pub line: u32,
}

/// Statistics of a symbolization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Symbolized {
    /// Number of chunks read.
    pub chunks: u64,
    /// Number of chunks that were changed.
    pub changed: u64,
    /// Number of distinct addresses without debug information.
    pub places: u64,
    /// Number of addresses that now have debug information.
    pub named: u64,
    /// Number of addresses whose function now has another name.
    pub renamed: u64,
    /// Number of addresses that now have a source line.
    pub lines: u64,
    /// Number of addresses at which functions are inlined.
    pub inlined: u64,
    /// Number of bytes that could not be read.
    pub unread: u64,
}

/// Writes the recording with the functions that `name` returns for an address: innermost first, and the last
/// one is the function into which the others are inlined; none if it finds none. Chunks without changes are
/// copied.
///
/// # Errors
/// Those of `out`.
pub fn symbolize(
    source: &Source,
    name: &mut dyn FnMut(FrameLocation<'_>) -> Vec<Named>,
    out: &mut dyn Write,
) -> io::Result<Symbolized> {
    let mut report = Symbolized::default();
    let mut effort = Effort::default();
    let mut keys = Keys { methods: HashMap::new(), next: FIRST_KEY };
    let (bytes, mut at) = (source.bytes(), 0);
    while at < bytes.len() {
        let Some(header) = scan::header_at(bytes, at) else {
            let next = scan::next_header(bytes, at + 1).unwrap_or(bytes.len());
            report.unread += (next - at) as u64;
            at = next;
            continue;
        };
        report.chunks += 1;
        let mut scanned = scan::scan(source, &mut effort, at, header, None);
        let end = scanned.end;
        match changed(source, &mut scanned, name, &mut keys, &mut report) {
            Some(change) => {
                report.changed += 1;
                write(source, &scanned, &change, out)?;
            }
            None => out.write_all(&bytes[at..end])?,
        }
        source.release(at..end);
        source.report_progress(end);
        at = end;
    }
    Ok(report)
}

fn write(source: &Source, scanned: &ScannedChunk, change: &Change, out: &mut dyn Write) -> io::Result<()> {
    let bytes = source.bytes();
    let Some((_, range)) = scanned.preferred_metadata(bytes) else { return Ok(()) };
    let mut retained = RetainedEvents::default();
    let mut last = None;
    for event in scanned.events(source) {
        let stays = event.type_id > u64::from(CHECKPOINT_EVENT.0)
            && scanned.types.class_index(event.type_id).is_some()
            && scan::decodes(bytes, &scanned.types, &event) == Some(true);
        if stays {
            let (start, duration) = times(bytes, &scanned.types, &event);
            last = last.max(Some(start.saturating_add(duration.max(0))));
        }
        retained.push(stays.then_some(event.end - event.start));
    }
    let content = bytes.slice(range);
    let header = header(&scanned.header, scanned, last);
    let plan = Plan { header, metadata: &content, retained, used: None, change };
    rebuild(source, scanned, plan).write(out)
}

/// Returns the new stack traces of a chunk; `None` if they do not change.
fn changed(
    source: &Source,
    scanned: &mut ScannedChunk,
    name: &mut dyn FnMut(FrameLocation<'_>) -> Vec<Named>,
    keys: &mut Keys,
    report: &mut Symbolized,
) -> Option<Change> {
    let (_, range) = scanned.preferred_metadata(source.bytes())?;
    if scanned.metadata.len() > 1 {
        scanned.types = scan::parse_types(&source.bytes()[range])?.into();
    }
    let types = &scanned.types;
    for (class, fields) in SHAPES {
        let (_, class) = types.by_name(class)?;
        if !class.fields.iter().map(|f| &*f.name).eq(fields.iter().copied()) {
            return None;
        }
    }
    let chunk = Chunk {
        index: ChunkIndex(u32::try_from(report.chunks - 1).unwrap_or(u32::MAX)),
        offset: FileOffset(scanned.start as u64),
        header: scanned.header,
        types: types.clone(),
        pools: scanned.pools(source),
    };
    let mut namer = Namer {
        chunk: &chunk,
        name,
        report,
        files: HashMap::new(),
        places: HashMap::new(),
        keys,
        added: AddedConstants::default(),
    };
    let (stacks, _) = types.by_name("jdk.types.StackTrace")?;
    let mut replaced = HashMap::new();
    for key in chunk.pools.keys(stacks) {
        if let Some(new) = namer.stack(stacks, key) {
            replaced.insert((stacks, key), new);
        }
    }
    let added = namer.added;
    if replaced.is_empty() {
        return None;
    }
    let added = vec![
        (id(types, "jdk.types.Symbol")?, added.symbols),
        (id(types, "jdk.types.Method")?, added.methods),
    ];
    Some(Change { replaced, added, ..Change::default() })
}

fn id(types: &Types, name: &str) -> Option<u64> {
    types.by_name(name).map(|(_, class)| class.id)
}

/// Added constants: their number, and their bytes, keys included.
#[derive(Default)]
struct AddedConstants {
    symbols: (u64, Vec<u8>),
    methods: (u64, Vec<u8>),
    seen: HashSet<u64>,
}

struct Namer<'a> {
    chunk: &'a Chunk,
    name: &'a mut dyn FnMut(FrameLocation<'_>) -> Vec<Named>,
    report: &'a mut Symbolized,
    /// Class, path and build id, by method.
    files: HashMap<u64, Option<(u64, String, String)>>,
    places: HashMap<(u64, u32), Vec<Named>>,
    keys: &'a mut Keys,
    added: AddedConstants,
}

/// Methods added so far. A key means the same in all chunks, as some readers expect.
struct Keys {
    /// By class and name. The symbol has the key before the method's.
    methods: HashMap<(u64, String), u64>,
    next: u64,
}

impl Namer<'_> {
    /// Returns the bytes of a stack trace after its key, if any of its frames gets a name.
    fn stack(&mut self, class: ClassIndex, key: u64) -> Option<Vec<u8>> {
        let raw = self.chunk.pools.get(class, key)?;
        let mut cursor = Cursor::new(raw.bytes);
        let truncated = cursor.byte().ok()?;
        let mut frames = Vec::new();
        let (mut count, mut any) = (0u64, false);
        for _ in 0..cursor.count().ok()? {
            let mut word = || cursor.varint().ok();
            let (method, line, address, kind) = (word()?, word()?, word()? as u32, word()?);
            let named = if address == 0 { Vec::new() } else { self.place(method, address) };
            let Some((last, inlined)) = named.split_last() else {
                count += 1;
                put_all(&mut frames, [method, line, u64::from(address), kind]);
                continue;
            };
            any = true;
            let of = self.file(method).map(|(class, ..)| class)?;
            for function in inlined {
                count += 1;
                let key = self.method(of, &function.name);
                put_all(&mut frames, [key, function.line.into(), 0, frame_type::INLINED]);
            }
            count += 1;
            let key = if last.name.is_empty() { method } else { self.method(of, &last.name) };
            put_all(&mut frames, [key, last.line.into(), 0, kind]);
        }
        if !any {
            return None;
        }
        let mut new = vec![truncated];
        varint::put(&mut new, count);
        new.extend(frames);
        Some(new)
    }

    fn place(&mut self, method: u64, address: u32) -> Vec<Named> {
        let Some((class, path, build_id)) = self.file(method) else { return Vec::new() };
        if let Some(known) = self.places.get(&(class, address)) {
            return known.clone();
        }
        let place = FrameLocation { path: &path, build_id: &build_id, address: address.into() };
        let named = (self.name)(place);
        self.report.places += 1;
        if let Some((last, inlined)) = named.split_last() {
            let is_renamed =
                !last.name.is_empty() && self.recorded_name(method).as_deref() != Some(&last.name);
            self.report.named += 1;
            self.report.renamed += u64::from(is_renamed);
            self.report.lines += u64::from(last.line != 0);
            self.report.inlined += u64::from(!inlined.is_empty());
        }
        self.places.insert((class, address), named.clone());
        named
    }

    fn recorded_name(&self, method: u64) -> Option<String> {
        let (index, _) = self.chunk.types.by_name("jdk.types.Method")?;
        let method = constant(self.chunk, index, method, 0).ok()??.record().ok()??;
        let symbol = method.field("name").ok()??.record().ok()??;
        symbol.field("string").ok()??.text().ok()?.map(|text| text.into_owned())
    }

    /// Returns the class of a method, and path and build id of its file.
    fn file(&mut self, method: u64) -> Option<(u64, String, String)> {
        if let Some(known) = self.files.get(&method) {
            return known.clone();
        }
        let file = self.look_up(method);
        self.files.insert(method, file.clone());
        file
    }

    fn look_up(&self, method: u64) -> Option<(u64, String, String)> {
        let (index, _) = self.chunk.types.by_name("jdk.types.Method")?;
        let method = constant(self.chunk, index, method, 0).ok()??.record().ok()??;
        let Value::Reference(class) = method.field("type").ok()?? else { return None };
        let record = |of: &StructRef<'_>, name: &str| -> Option<(String, String)> {
            let module = of.field("package").ok()??.record().ok()??.field(name).ok()??.record().ok()??;
            let text = |name: &str| {
                let text = module.field(name).ok()??.record().ok()??.field("string").ok()??;
                text.text().ok()?.map(|text| text.into_owned())
            };
            Some((text("location").unwrap_or_default(), text("version").unwrap_or_default()))
        };
        let of = Value::Reference(class).record().ok()??;
        let (path, build_id) = record(&of, "module")?;
        (!path.is_empty() || !build_id.is_empty()).then(|| (class.key(), path, build_id))
    }

    /// Returns the key of the method with this name in a class, which is added at its first use.
    fn method(&mut self, class: u64, name: &str) -> u64 {
        let Keys { methods, next } = &mut *self.keys;
        let method = *methods.entry((class, name.to_owned())).or_insert_with(|| {
            *next += 2;
            *next - 1
        });
        if !self.added.seen.insert(method) {
            return method;
        }
        let symbol = method - 1;
        let (count, bytes) = &mut self.added.symbols;
        *count += 1;
        varint::put(bytes, symbol);
        strings::put(bytes, name);
        let (count, bytes) = &mut self.added.methods;
        *count += 1;
        // Native code, with the descriptor that the recorder's own methods use.
        put_all(bytes, [method, class, symbol, 1, 0x100]);
        bytes.push(0);
        method
    }
}

fn put_all<const N: usize>(out: &mut Vec<u8>, values: [u64; N]) {
    values.iter().for_each(|&value| varint::put(out, value));
}
