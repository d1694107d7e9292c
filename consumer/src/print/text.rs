//! Events for people.

use std::fmt::Write as _;

use jfr_format::event::{ArrayRef, EventRef, StructRef, Value};
use jfr_format::read::{Chunk, Field};

use super::{Budget, EventWriter, is_stack, number_of, quantity, record_of, text_of};

/// Prints events one below the other.
#[derive(Debug)]
pub struct TextPrinter {
    stack_depth: usize,
    budget: Budget,
    out: String,
}

impl EventWriter for TextPrinter {
    fn another(&self) -> Option<Box<dyn EventWriter>> {
        Some(Box::new(Self::new(self.stack_depth)))
    }

    fn chunk(&mut self, _: &Chunk) {}

    fn event(&mut self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), jfr_format::error::Error> {
        self.out.clear();
        self.budget.start();
        let _ = writeln!(self.out, "{} {{", event.class().name);
        let outcome = self.fields(&event.fields());
        self.out.push_str("}\n\n");
        out.extend_from_slice(self.out.as_bytes());
        outcome
    }
}

impl TextPrinter {
    /// Prints this many frames of a stack.
    pub fn new(stack_depth: usize) -> Self {
        Self { stack_depth, budget: Budget::default(), out: String::new() }
    }

    /// Thread and stack of the event come last, as in the JDK's tool.
    fn fields(&mut self, of: &StructRef<'_>) -> Result<(), jfr_format::error::Error> {
        let last = |field: &Field| is_stack(field) || &*field.name == "eventThread";
        let mut later = Vec::new();
        let mut outcome = Ok(());
        for field in of.iter() {
            match field {
                Ok((field, value)) if last(field) => later.push((field, value)),
                Ok((field, value)) => self.field(of.chunk(), field, value, 1),
                Err(error) => outcome = Err(error),
            }
        }
        later.sort_by_key(|(field, _)| is_stack(field));
        for (field, value) in later {
            self.field(of.chunk(), field, value, 1);
        }
        outcome
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.out.push_str("  ");
        }
    }

    fn field(&mut self, chunk: &Chunk, field: &Field, value: Value<'_>, depth: usize) {
        self.indent(depth);
        let _ = write!(self.out, "{} = ", field.name);
        self.value(chunk, field, value, depth);
        self.out.push('\n');
    }

    fn value(&mut self, chunk: &Chunk, field: &Field, value: Value<'_>, depth: usize) {
        if !self.budget.spend() {
            self.out.push_str("...");
            return;
        }
        let followed = self.budget.follow(value);
        match followed.value {
            Value::Null => self.out.push_str("N/A"),
            Value::Text(text) => {
                let _ = write!(self.out, "\"{text}\"");
            }
            Value::Boolean(v) => self.out.push_str(if v { "true" } else { "false" }),
            Value::Char(unit) => {
                self.out.push(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Value::Struct(fields) => self.record(&fields, depth),
            Value::Array(list) => self.list(chunk, field, &list, depth),
            Value::Float(_) | Value::Double(_) => self.number(chunk, field, &followed.value),
            other => self.number(chunk, field, &other),
        }
        self.budget.back(followed.steps);
    }

    fn number(&mut self, chunk: &Chunk, field: &Field, value: &Value<'_>) {
        let text = quantity::text(chunk, field, value).unwrap_or_else(|| match value {
            Value::Float(v) => v.to_string(),
            Value::Double(v) => v.to_string(),
            other => other.as_i64().map(|v| v.to_string()).unwrap_or_default(),
        });
        self.out.push_str(&text);
    }

    fn record(&mut self, of: &StructRef<'_>, depth: usize) {
        match &*of.class().name {
            "java.lang.Thread" => self.thread(of),
            "java.lang.Class" => self.class(of),
            "jdk.types.StackTrace" => self.stack(of, depth),
            "jdk.types.StackFrame" => self.frame(of),
            "jdk.types.Method" => self.method(of),
            _ => {
                self.out.push_str("{\n");
                for (field, value) in of.iter().flatten() {
                    self.field(of.chunk(), field, value, depth + 1);
                }
                self.indent(depth);
                self.out.push('}');
            }
        }
    }

    fn list(&mut self, chunk: &Chunk, field: &Field, list: &ArrayRef<'_>, depth: usize) {
        self.out.push_str("[\n");
        for value in list.iter().flatten() {
            self.indent(depth + 1);
            self.value(chunk, field, value, depth + 1);
            self.out.push('\n');
            if self.budget.values == 0 {
                break;
            }
        }
        self.indent(depth);
        self.out.push(']');
    }

    fn thread(&mut self, of: &StructRef<'_>) {
        let java = number_of(of, "javaThreadId").unwrap_or(0);
        let named = |field| text_of(of, field).filter(|name| !name.is_empty());
        let name = named("javaName").or_else(|| named("osName")).unwrap_or_default();
        let _ = match (java, number_of(of, "osThreadId")) {
            (1.., _) => write!(self.out, "\"{name}\" (javaThreadId = {java})"),
            (_, Some(os)) => write!(self.out, "\"{name}\" (osThreadId = {os})"),
            _ => write!(self.out, "\"{name}\""),
        };
    }

    fn class(&mut self, of: &StructRef<'_>) {
        let name = text_of(of, "name").unwrap_or_default().replace('/', ".");
        self.out.push_str(&java_type(&name).unwrap_or(name));
        if let Some(loader) = record_of(of, "classLoader") {
            let name = text_of(&loader, "name").unwrap_or_default();
            let _ = write!(self.out, " (classLoader = {name})");
        }
    }

    fn stack(&mut self, of: &StructRef<'_>, depth: usize) {
        let limit = self.stack_depth;
        let truncated = of.field("truncated").ok().flatten().and_then(|v| v.as_i64()) == Some(1);
        self.out.push_str("[\n");
        let mut more = truncated;
        if let Ok(Some(Value::Array(frames))) = of.field("frames") {
            more |= frames.len() > limit;
            for frame in frames.iter().take(limit).flatten() {
                if let Ok(Some(frame)) = frame.record() {
                    self.indent(depth + 1);
                    self.frame(&frame);
                    self.out.push('\n');
                }
            }
        }
        if more {
            self.indent(depth + 1);
            self.out.push_str("...\n");
        }
        self.indent(depth);
        self.out.push(']');
    }

    fn frame(&mut self, of: &StructRef<'_>) {
        match record_of(of, "method") {
            Some(method) => self.method(&method),
            None => self.out.push_str("N/A"),
        }
        if let Some(line @ 1..) = number_of(of, "lineNumber") {
            let _ = write!(self.out, " line: {line}");
        }
    }

    fn method(&mut self, of: &StructRef<'_>) {
        let class = record_of(of, "type").and_then(|class| text_of(&class, "name"));
        let class = class.unwrap_or_default().replace('/', ".");
        let name = text_of(of, "name").unwrap_or_default();
        let descriptor = text_of(of, "descriptor").unwrap_or_default();
        let dot = if class.is_empty() { "" } else { "." };
        let _ = write!(self.out, "{class}{dot}{name}({})", parameters(&descriptor));
    }
}

/// `(ILjava/lang/String;)V` → `int, String`
fn parameters(descriptor: &str) -> String {
    let Some((list, _)) = descriptor.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
        return String::new();
    };
    let mut names = Vec::new();
    let mut rest = list;
    while let Some(len) = type_length(rest) {
        let (one, behind) = rest.split_at(len);
        let full = java_type(&one.replace('/', ".")).unwrap_or_default();
        names.push(full.rsplit('.').next().unwrap_or_default().to_owned());
        rest = behind;
    }
    names.join(", ")
}

fn type_length(text: &str) -> Option<usize> {
    let dimensions = text.len() - text.trim_start_matches('[').len();
    match text.as_bytes().get(dimensions)? {
        b'L' => text.find(';').map(|at| at + 1),
        b'B' | b'C' | b'D' | b'F' | b'I' | b'J' | b'S' | b'Z' => Some(dimensions + 1),
        _ => None,
    }
}

/// `[[I` → `int[][]`; `None` if it is not the internal name of an array or a descriptor.
fn java_type(internal: &str) -> Option<String> {
    let element = internal.trim_start_matches('[');
    let dimensions = internal.len() - element.len();
    let name = match element {
        "B" => "byte",
        "C" => "char",
        "D" => "double",
        "F" => "float",
        "I" => "int",
        "J" => "long",
        "S" => "short",
        "Z" => "boolean",
        _ => element.strip_prefix('L').and_then(|rest| rest.strip_suffix(';'))?,
    };
    Some(format!("{name}{}", "[]".repeat(dimensions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors() {
        let check = |descriptor: &str, want: &str| assert_eq!(parameters(descriptor), want);
        check("()V", "");
        check("(I)J", "int");
        check("([[IZLjava/lang/Object;[Ljava/lang/String;)V", "int[][], boolean, Object, String[]");
        check("()L;", "");
        for broken in ["", "(", "(L", "(Lx)V", "([)V", "(é)V", "(Q)V"] {
            check(broken, "");
        }
    }
}
