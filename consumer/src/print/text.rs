//! Events as text that equals the output of the JDK's `jfr print`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use jfr_format::event::{ArrayRef, EventRef, Reference, StructRef, Value};
use jfr_format::read::{Chunk, Class, Field};

use super::budget::Budget;
use super::moment::Clock;
use super::things::{self, field_record};
use super::units::{Units, decimal};
use super::{EventWriter, MAX_DEPTH, PrintOptions};
use crate::fields;

type Error = jfr_format::error::Error;

/// Maximum size in bytes of cached constants; beyond that, the cache is cleared.
const MAX_KEPT: usize = 8 << 20;

/// Prints events as text.
#[derive(Debug)]
pub(super) struct TextPrinter {
    stack_depth: usize,
    exact: bool,
    clock: Option<Clock>,
    /// Plans by class of the chunk.
    plans: Vec<Option<Plan>>,
    kept: TextCache,
    /// Array length of an old object, from the event's own field.
    elements: Option<i64>,
    /// Budget of the event.
    budget: Budget,
    /// The constants being written.
    path: Vec<(u64, u64)>,
}

/// How the fields of a type are written.
type Plan = Arc<[Shown]>;

/// How a field is written.
#[derive(Debug)]
struct Shown {
    /// `name = `
    label: Box<str>,
    place: FieldPosition,
    kind: Kind,
    units: Units,
}

/// The position of a field in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldPosition {
    InOrder,
    /// Omitted if it is zero.
    Duration,
    /// After the others; omitted if it is null.
    Thread,
    /// The last; omitted if it is null.
    Stack,
}

/// Types with their own format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Thread,
    Class,
    ClassLoader,
    Stack,
    Frame,
    Method,
    OldObject,
    Other,
}

impl Kind {
    fn from_class(class: Option<&Class>) -> Self {
        match class.map_or("", |class| &*class.name) {
            "java.lang.Thread" => Self::Thread,
            "java.lang.Class" => Self::Class,
            "jdk.types.ClassLoader" => Self::ClassLoader,
            "jdk.types.StackTrace" => Self::Stack,
            "jdk.types.StackFrame" => Self::Frame,
            "jdk.types.Method" => Self::Method,
            "jdk.types.OldObject" => Self::OldObject,
            _ => Self::Other,
        }
    }

    /// Returns true if the text is the same in every place and is used often.
    fn is_cached(self, depth: usize) -> bool {
        match self {
            Self::Thread | Self::Class | Self::ClassLoader | Self::Method => true,
            Self::Stack => depth == 1,
            Self::Frame | Self::OldObject | Self::Other => false,
        }
    }
}

/// Cached texts of one chunk's constants.
#[derive(Debug, Default)]
struct TextCache {
    text: Vec<u8>,
    at: HashMap<(u64, u64), Range<usize>>,
    /// Methods as they appear in frames; empty if hidden.
    frames: HashMap<(u64, u64), Range<usize>>,
}

impl TextCache {
    fn clear(&mut self) {
        self.text.clear();
        self.at.clear();
        self.frames.clear();
    }

    fn keep(&mut self, key: (u64, u64), text: &[u8]) {
        let range = self.add(text);
        self.at.insert(key, range);
    }

    fn keep_frame(&mut self, key: (u64, u64), text: &[u8]) {
        let range = self.add(text);
        self.frames.insert(key, range);
    }

    fn add(&mut self, text: &[u8]) -> Range<usize> {
        // Also limits the number of short texts.
        if self.text.len() + text.len() > MAX_KEPT || self.at.len() + self.frames.len() > MAX_KEPT / 64 {
            self.clear();
        }
        let start = self.text.len();
        self.text.extend_from_slice(text);
        start..self.text.len()
    }
}

impl EventWriter for TextPrinter {
    fn another(&self) -> Option<Box<dyn EventWriter>> {
        Some(Box::new(Self::with(self.stack_depth, self.exact)))
    }

    fn chunk(&mut self, chunk: &Chunk) {
        self.kept.clear();
        self.plans.clear();
        self.plans.resize(chunk.types.classes().len(), None);
        self.clock = Some(Clock::new(chunk));
    }

    fn event(&mut self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.budget.start(out.len());
        self.path.clear();
        out.extend_from_slice(event.class().name.as_bytes());
        out.extend_from_slice(b" {\n");
        let plan = self.plan(&event.fields());
        if plan.iter().any(|shown| shown.kind == Kind::OldObject) {
            self.elements = fields::number(&event.fields(), "arrayElements");
        }
        let (mut thread, mut stack) = (None, None);
        let mut fields = plan.iter();
        let outcome = event.visit(|field| {
            let Some(shown) = fields.next() else { return };
            let value = field.value();
            match shown.place {
                FieldPosition::Thread => thread = Some((shown, value)),
                FieldPosition::Stack => stack = Some((shown, value)),
                FieldPosition::Duration if shown.units.is_no_time(value) => {}
                FieldPosition::Duration | FieldPosition::InOrder => self.field(shown, value, 1, out),
            }
        });
        for (shown, value) in thread.into_iter().chain(stack) {
            if !is_null(value) {
                self.field(shown, value, 1, out);
            }
        }
        out.extend_from_slice(b"}\n\n");
        self.budget.outcome(event, outcome)
    }
}

fn is_null(value: Value<'_>) -> bool {
    matches!(value.resolved_or_null(), Value::Null)
}

impl TextPrinter {
    /// Prints this maximum number of frames per stack.
    pub fn new(options: &PrintOptions) -> Self {
        Self::with(options.stack_depth, options.exact)
    }

    fn with(stack_depth: usize, exact: bool) -> Self {
        Self {
            stack_depth,
            exact,
            clock: None,
            plans: Vec::new(),
            kept: TextCache::default(),
            elements: None,
            budget: Budget::default(),
            path: Vec::new(),
        }
    }

    fn plan(&mut self, of: &StructRef<'_>) -> Plan {
        let at = of.class_index().index();
        if let Some(Some(plan)) = self.plans.get(at) {
            return Arc::clone(plan);
        }
        let types = &of.chunk().types;
        let event = of.class().is_event();
        let shown = |field: &Field| {
            let kind = Kind::from_class(field.class.and_then(|index| types.class(index)));
            Shown {
                label: format!("{} = ", field.name).into(),
                place: match &*field.name {
                    "duration" if event => FieldPosition::Duration,
                    "eventThread" if event => FieldPosition::Thread,
                    "stackTrace" if event => FieldPosition::Stack,
                    _ => FieldPosition::InOrder,
                },
                kind,
                units: Units::from_field(field),
            }
        };
        let plan: Plan = of.class().fields.iter().map(shown).collect();
        if let Some(slot) = self.plans.get_mut(at) {
            *slot = Some(Arc::clone(&plan));
        }
        plan
    }

    fn field(&mut self, shown: &Shown, value: Value<'_>, depth: usize, out: &mut Vec<u8>) {
        indent(depth, out);
        out.extend_from_slice(shown.label.as_bytes());
        self.value(shown, value, depth, out);
        out.push(b'\n');
    }

    fn value(&mut self, shown: &Shown, value: Value<'_>, depth: usize, out: &mut Vec<u8>) {
        if !self.budget.spend(out.len()) {
            return out.extend_from_slice(b"...");
        }
        match value {
            Value::Reference(reference) => self.reference(shown, reference, depth, out),
            value => self.resolved(shown, value, depth, out),
        }
    }

    fn reference(&mut self, shown: &Shown, reference: Reference<'_>, depth: usize, out: &mut Vec<u8>) {
        let Some(class) = reference.class() else { return none(out) };
        let here = (class.id, reference.key());
        let kept = shown.kind.is_cached(depth);
        if kept && let Some(text) = self.kept.at.get(&here) {
            return out.extend_from_slice(&self.kept.text[text.clone()]);
        }
        if self.path.len() >= MAX_DEPTH {
            self.budget.lose();
            return none(out);
        }
        if self.path.contains(&here) {
            return none(out);
        }
        self.path.push(here);
        let start = out.len();
        self.resolved(shown, Value::Reference(reference.unbounded()), depth, out);
        self.path.pop();
        if kept {
            self.kept.keep(here, &out[start..]);
        }
    }

    fn resolved(&mut self, shown: &Shown, value: Value<'_>, depth: usize, out: &mut Vec<u8>) {
        // Treats a damaged constant as null; the decoder has reported the damage.
        match value.resolved_or_null() {
            Value::Null | Value::Reference(_) => none(out),
            Value::Text(text) => quoted(&text.to_str(), out),
            Value::Struct(fields) => self.record(shown.kind, &fields, depth, out),
            Value::Array(list) => self.list(shown, &list, depth, out),
            number => self.number(shown, number, out),
        }
    }

    fn number(&self, shown: &Shown, value: Value<'_>, out: &mut Vec<u8>) {
        if let Some(clock) = &self.clock {
            shown.units.write(clock, self.exact, value, out);
        }
    }

    fn record(&mut self, kind: Kind, of: &StructRef<'_>, depth: usize, out: &mut Vec<u8>) {
        match kind {
            Kind::Thread => things::thread(of, out),
            Kind::Class => things::class(of, out),
            Kind::ClassLoader => things::class_loader(of, self.path.last().map(|&(_, key)| key), out),
            Kind::Stack => self.stack(of, depth, out),
            Kind::Frame => self.frame(of, out),
            Kind::Method => things::method(of, out),
            Kind::OldObject => self.old_object(of, depth, out),
            Kind::Other if depth >= MAX_DEPTH => {
                self.budget.lose();
                out.extend_from_slice(b"...");
            }
            Kind::Other => {
                out.extend_from_slice(b"{\n");
                let plan = self.plan(of);
                let mut fields = plan.iter();
                // Errors were reported when the constant was decoded.
                let _ = of.visit(|field| {
                    let Some(shown) = fields.next() else { return };
                    self.field(shown, field.value(), depth + 1, out);
                });
                indent(depth, out);
                out.push(b'}');
            }
        }
    }

    fn list(&mut self, shown: &Shown, list: &ArrayRef<'_>, depth: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"[\n");
        for value in list.iter().flatten() {
            if !self.budget.spend(out.len()) {
                break;
            }
            indent(depth + 1, out);
            match value {
                Value::Text(text) => quoted(&text.to_str(), out),
                Value::Struct(_) | Value::Reference(_) => self.value(shown, value, depth + 1, out),
                Value::Array(_) | Value::Null => none(out),
                number => self.number(shown, number, out),
            }
            out.push(b'\n');
        }
        indent(depth, out);
        out.push(b']');
    }

    fn stack(&mut self, of: &StructRef<'_>, depth: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"[\n");
        let (mut seen, mut shown) = (0, 0);
        if let Ok(Some(Value::Array(frames))) = of.field("frames") {
            let mut frames = frames.iter();
            while shown < self.stack_depth
                && let Some(Ok(frame)) = frames.next()
            {
                seen += 1;
                let start = out.len();
                indent(depth + 1, out);
                let text = out.len();
                if let Ok(Some(frame)) = frame.record() {
                    self.frame(&frame, out);
                }
                if out.len() == text {
                    out.truncate(start);
                } else {
                    out.push(b'\n');
                    shown += 1;
                }
            }
        }
        // As in the JDK: also if nothing was omitted, but not if only hidden frames were skipped.
        if fields::is_set(of, "truncated") || seen == self.stack_depth {
            indent(depth + 1, out);
            out.extend_from_slice(b"...\n");
        }
        indent(depth, out);
        out.push(b']');
    }

    /// Writes nothing if the method is hidden.
    fn frame(&mut self, of: &StructRef<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        self.frame_method(of, out);
        if out.len() > start
            && let Some(line @ 0..) = fields::number(of, "lineNumber")
        {
            out.extend_from_slice(b" line: ");
            decimal(line.into(), out);
        }
    }

    fn frame_method(&mut self, frame: &StructRef<'_>, out: &mut Vec<u8>) {
        let value = frame.field("method").ok().flatten();
        let key = match &value {
            Some(Value::Reference(to)) => to.class().map(|class| (class.id, to.key())),
            _ => None,
        };
        if let Some(text) = key.and_then(|key| self.kept.frames.get(&key)) {
            return out.extend_from_slice(&self.kept.text[text.clone()]);
        }
        let start = out.len();
        match value.and_then(|value| value.record().ok().flatten()) {
            Some(method) if fields::is_set(&method, "hidden") => {}
            Some(method) => things::method(&method, out),
            None => none(out),
        }
        if let Some(key) = key {
            self.kept.keep_frame(key, &out[start..]);
        }
    }

    /// Writes the object and the chain of references to it.
    fn old_object(&mut self, of: &StructRef<'_>, depth: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b" [\n");
        indent(depth + 1, out);
        things::object(of, self.elements, out);
        let mut referrer = field_record(of, "referrer");
        while let Some(by) = referrer {
            if !self.budget.spend(out.len()) {
                break;
            }
            if fields::number(&by, "skip").is_some_and(|skipped| skipped > 0) {
                indent(depth + 1, out);
                out.extend_from_slice(b"...\n");
            }
            indent(depth + 1, out);
            let array = field_record(&by, "array");
            if let Some(field) = field_record(&by, "field") {
                out.extend_from_slice(fields::text(&field, "name").unwrap_or_default().as_bytes());
            } else if let Some(index) = array.and_then(|array| fields::number(&array, "index")) {
                out.push(b'[');
                decimal(index.into(), out);
                out.push(b']');
            }
            out.extend_from_slice(b" : ");
            let object = field_record(&by, "object");
            match &object {
                Some(object) => things::object(object, array.and_then(|a| fields::number(&a, "size")), out),
                None => out.push(b'\n'),
            }
            referrer = object.and_then(|object| field_record(&object, "referrer"));
        }
        indent(depth, out);
        out.push(b']');
    }
}

fn indent(depth: usize, out: &mut Vec<u8>) {
    out.extend(std::iter::repeat_n(b' ', 2 * depth));
}

fn none(out: &mut Vec<u8>) {
    out.extend_from_slice(b"N/A");
}

fn quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}
