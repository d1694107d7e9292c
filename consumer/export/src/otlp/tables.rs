//! The tables of a `ProfilesDictionary`: each distinct value once. Index 0 means "none".

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use flightline_consumer::live;
use flightline_consumer::model::FrameKind;
use flightline_consumer::tree::Label;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, ProfilesDictionary, Stack,
};

/// Distinct values by index.
#[derive(Debug)]
struct Table<K, V> {
    known: HashMap<K, i32>,
    values: Vec<V>,
}

impl<K: Hash + Eq, V> Table<K, V> {
    fn new(zero: V) -> Self {
        Self { known: HashMap::new(), values: vec![zero] }
    }

    /// Returns the index of the value with this key, or 0 if there are more values than indexes. A
    /// message that large is never sent.
    fn number(&mut self, key: K, make: impl FnOnce() -> V) -> i32 {
        let Ok(next) = i32::try_from(self.values.len()) else { return 0 };
        *self.known.entry(key).or_insert_with(|| {
            self.values.push(make());
            next
        })
    }
}

/// The key of a frame consists of indexes, so comparing keys is cheap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FrameKey {
    mapping: i32,
    function: i32,
    line: i64,
    address: u64,
    attribute: i32,
}

/// The tables while they are built.
#[derive(Debug)]
pub(super) struct Tables {
    strings: Table<Arc<str>, String>,
    mappings: Table<i32, Mapping>,
    functions: Table<Function, Function>,
    locations: Table<FrameKey, Location>,
    stacks: Table<Vec<i32>, Stack>,
    links: Table<(u128, u64), Link>,
    attributes: Table<(i32, Attribute), KeyValueAndUnit>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Attribute {
    Text(Arc<str>),
    Number(i64),
}

impl Tables {
    pub(super) fn new() -> Self {
        let mut strings = Table::new(String::new());
        strings.known.insert("".into(), 0);
        let mut stacks = Table::new(Stack::default());
        stacks.known.insert(Vec::new(), 0);
        // Zeros, but of the regular length: some receivers copy ids without checking.
        let mut links = Table::new(Link { trace_id: vec![0; 16], span_id: vec![0; 8] });
        links.known.insert((0, 0), 0);
        Self {
            strings,
            mappings: Table::new(Mapping::default()),
            functions: Table::new(Function::default()),
            locations: Table::new(Location::default()),
            stacks,
            links,
            attributes: Table::new(KeyValueAndUnit::default()),
        }
    }

    pub(super) fn string(&mut self, text: &Arc<str>) -> i32 {
        self.strings.number(text.clone(), || text.to_string())
    }

    pub(super) fn name(&mut self, text: &str) -> i32 {
        self.string(&Arc::from(text))
    }

    pub(super) fn attribute(&mut self, name: &str, value: Attribute) -> i32 {
        let key_strindex = self.name(name);
        let number = |value: &Attribute| match value {
            Attribute::Text(text) => any_value::Value::StringValue(text.to_string()),
            Attribute::Number(number) => any_value::Value::IntValue(*number),
        };
        self.attributes.number((key_strindex, value.clone()), || KeyValueAndUnit {
            key_strindex,
            value: Some(AnyValue { value: Some(number(&value)) }),
            unit_strindex: 0,
        })
    }

    pub(super) fn text(&mut self, name: &str, value: &Arc<str>) -> i32 {
        self.attribute(name, Attribute::Text(value.clone()))
    }

    /// Returns the index of a link to a span; 0 unless both ids are known, because a receiver cannot
    /// resolve half a link.
    pub(super) fn link(&mut self, trace_id: u128, span_id: u64) -> i32 {
        if trace_id == 0 || span_id == 0 {
            return 0;
        }
        self.links.number((trace_id, span_id), || Link {
            trace_id: trace_id.to_be_bytes().into(),
            span_id: span_id.to_be_bytes().into(),
        })
    }

    pub(super) fn stack(&mut self, stack: &live::Stack) -> i32 {
        let locations: Vec<i32> = stack.frames.iter().map(|frame| self.location(frame)).collect();
        self.stacks.number(locations.clone(), || Stack { location_indices: locations })
    }

    /// Returns the index of a stack of a tree's labels, leaf first.
    pub(super) fn labels<'l>(&mut self, labels: impl Iterator<Item = &'l Label>) -> i32 {
        let frame = |label: &Label| {
            let name = self.string(&label.text);
            let module = label.module.as_ref().map_or(0, |module| self.string(module));
            self.frame(name, module, 0, 0, label.kind)
        };
        let locations: Vec<i32> = labels.map(frame).collect();
        self.stacks.number(locations.clone(), || Stack { location_indices: locations })
    }

    fn location(&mut self, frame: &live::Frame) -> i32 {
        let name_strindex = match frame.class.is_empty() {
            true => self.string(&frame.function),
            false => self.name(&format!("{}.{}", frame.class, frame.function)),
        };
        let module = self.string(&frame.module);
        // Recordings of Flightline store the address in the file where no line is known.
        let address = match (frame.line, frame.kind.in_library()) {
            (0, true) => u64::from(frame.bytecode_index.cast_unsigned()),
            _ => 0,
        };
        self.frame(name_strindex, module, i64::from(frame.line), address, frame.kind)
    }

    /// Adds a frame. `name_strindex` and `module` are indexes of strings; a `module` of 0 means none.
    fn frame(&mut self, name_strindex: i32, module: i32, line: i64, address: u64, kind: FrameKind) -> i32 {
        let function = Function { name_strindex, ..Function::default() };
        let function_index = self.functions.number(function, || function);
        let mapping = match module {
            0 => 0,
            filename_strindex => {
                let mapping = || Mapping { filename_strindex, ..Mapping::default() };
                self.mappings.number(filename_strindex, mapping)
            }
        };
        let attribute = match frame_type(kind) {
            "" => 0,
            name => self.text("profile.frame.type", &name.into()),
        };
        let key = FrameKey { mapping, function: function_index, line, address, attribute };
        self.locations.number(key, || Location {
            mapping_index: mapping,
            address,
            lines: vec![Line { function_index, line, column: 0 }],
            attribute_indices: if attribute == 0 { Vec::new() } else { vec![attribute] },
        })
    }

    pub(super) fn finish(self) -> ProfilesDictionary {
        ProfilesDictionary {
            mapping_table: self.mappings.values,
            location_table: self.locations.values,
            function_table: self.functions.values,
            link_table: self.links.values,
            string_table: self.strings.values,
            attribute_table: self.attributes.values,
            stack_table: self.stacks.values,
        }
    }
}

/// The name of a frame's kind in the semantic conventions.
fn frame_type(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Native | FrameKind::NativeInlined | FrameKind::Jit => "native",
        FrameKind::Kernel => "kernel",
        FrameKind::Interpreted | FrameKind::Compiled | FrameKind::Inlined | FrameKind::NativeMethod => "jvm",
        FrameKind::Marker | FrameKind::Class | FrameKind::Unknown => "",
    }
}
