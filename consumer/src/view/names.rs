//! Names of values in tables: threads, classes, methods, stacks and other references.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{StructRef, Value};
use jfr_format::read::Chunk;

use super::datum::{Datum, Measure};
use super::lock_frames::{is_java_lock, is_native_lock};

type Result<T> = std::result::Result<T, Error>;

/// Maximum number of frames per stack.
const MAX_FRAMES: usize = 2048;
/// Maximum number of characters per value.
const MAX_TEXT: usize = 1 << 16;
/// Maximum nesting of structs that are written out.
const MAX_DEPTH: usize = 3;

/// Prefix for the number of a virtual thread without a name.
pub(super) const UNNAMED_VIRTUAL: &str = "virtual #";
/// The id of all virtual threads, so that those with the same name share a row.
const VIRTUAL: u64 = u64::MAX;

/// A part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The topmost frame.
    Top,
    /// The topmost frame in a class outside the JDK.
    Application,
    /// The topmost frame that is not a constructor.
    Thrower,
    /// The topmost frame that is not a function of the allocator or of the profiler's interposer.
    Caller,
    /// The stack without the topmost frames that implement a lock.
    Site,
}

impl Part {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "top" => Self::Top,
            "app" => Self::Application,
            "thrower" => Self::Thrower,
            "caller" => Self::Caller,
            "site" => Self::Site,
            _ => return None,
        })
    }

    /// Returns true if a frame of `method` is the requested one, unless one above it is.
    fn accepts(self, method: &Method) -> bool {
        match self {
            Self::Top => true,
            Self::Application => method.application,
            Self::Thrower => !method.constructor,
            Self::Caller => !method.allocator,
            Self::Site => !method.lock,
        }
    }
}

/// Names of the current chunk's methods, and all interned names.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: HashSet<Arc<str>>,
    methods: HashMap<u64, Method>,
}

#[derive(Clone, Debug)]
struct Method {
    text: Arc<str>,
    constructor: bool,
    application: bool,
    allocator: bool,
    lock: bool,
}

impl Names {
    /// Starts a chunk, whose keys have new meanings.
    pub(super) fn next_chunk(&mut self) {
        self.methods.clear();
    }

    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.all.get(text) {
            return known.clone();
        }
        let new: Arc<str> = Arc::from(text);
        self.all.insert(new.clone());
        new
    }

    /// Converts any value.
    pub(super) fn datum(&mut self, chunk: &Chunk, value: Value<'_>, measure: Measure) -> Result<Datum> {
        let value = value.resolved()?;
        Ok(match value {
            Value::Text(text) => Datum::Text(Arc::from(cut(&text.to_str()))),
            Value::Struct(record) => self.record(&record)?,
            Value::Array(list) => {
                let mut texts = Vec::new();
                for element in list.iter().take(MAX_FRAMES) {
                    texts.push(plain(element?, 0)?);
                }
                Datum::Text(Arc::from(cut(&texts.join(", "))))
            }
            number => measure.datum(chunk, number),
        })
    }

    fn record(&mut self, record: &StructRef<'_>) -> Result<Datum> {
        Ok(match &*record.class().name {
            "java.lang.Thread" => self.thread(record)?,
            "java.lang.Class" => Datum::Text(self.class(record)?),
            "java.lang.ClassLoader" | "jdk.types.ClassLoader" => Datum::Text(self.loader(record)?),
            "jdk.types.Method" => Datum::Text(self.method(record)?.text),
            "jdk.types.StackTrace" => self.stack(record)?,
            "jdk.types.StackFrame" => match field(record, "method")? {
                Some(method) => Datum::Text(self.frame(method)?.text),
                None => Datum::Null,
            },
            _ => {
                let text = plain(Value::Struct(*record), 0)?;
                if text.is_empty() { Datum::Null } else { Datum::Text(self.intern(cut(&text))) }
            }
        })
    }

    fn thread(&mut self, of: &StructRef<'_>) -> Result<Datum> {
        let mut name = None;
        for key in ["javaName", "osName"] {
            name = name.or(text(of, key)?.filter(|text| !text.is_empty()));
        }
        let os = number(of, "osThreadId")?.unwrap_or(0);
        let java = number(of, "javaThreadId")?.unwrap_or(0);
        if field(of, "virtual")?.is_some_and(|value| matches!(value, Value::Boolean(true))) {
            // Virtual threads with the same name share a row.
            let name = name.unwrap_or_else(|| format!("{UNNAMED_VIRTUAL}{java}"));
            return Ok(Datum::Named(self.intern(cut(&name)), VIRTUAL));
        }
        let name = name.unwrap_or_else(|| format!("tid {}", if os != 0 { os } else { java }));
        // Combines both ids: compiler threads reuse Java ids, and virtual threads have no other id.
        let id = (java as u64).rotate_left(32) ^ (os as u64);
        Ok(Datum::Named(self.intern(cut(&name)), id))
    }

    fn class(&mut self, of: &StructRef<'_>) -> Result<Arc<str>> {
        let name = text(of, "name")?.unwrap_or_default().replace('/', ".");
        let readable = java_type(&name).unwrap_or(name);
        Ok(self.intern(cut(&readable)))
    }

    fn loader(&mut self, of: &StructRef<'_>) -> Result<Arc<str>> {
        let class = record(of, "type")?.map(|class| self.class(&class)).transpose()?;
        let name = text(of, "name")?.filter(|name| !name.is_empty());
        match (class, name) {
            (Some(class), _) if !class.is_empty() => Ok(class),
            (_, Some(name)) => Ok(self.intern(cut(&name))),
            _ => Ok(self.intern("bootstrap")),
        }
    }

    /// Returns one frame of a stack, or for [`Part::Site`] the stack from that frame on.
    pub(super) fn part(&mut self, stack: &StructRef<'_>, part: Part) -> Result<Datum> {
        if part == Part::Site {
            return self.site(stack);
        }
        let Some(Value::Array(frames)) = field(stack, "frames")? else { return Ok(Datum::Null) };
        let mut first = None;
        for frame in frames.iter().take(MAX_FRAMES) {
            let Some(frame) = frame?.record()? else { continue };
            let Some(method) = field(&frame, "method")? else { continue };
            let method = self.frame(method)?;
            if part.accepts(&method) {
                return Ok(Datum::Text(method.text));
            }
            first.get_or_insert(method.text);
        }
        // An allocation is attributed to some frame in any case; the other parts may not exist.
        Ok(match (part, first) {
            (Part::Caller, Some(first)) => Datum::Text(first),
            _ => Datum::Null,
        })
    }

    fn stack(&mut self, stack: &StructRef<'_>) -> Result<Datum> {
        let frames = self.frames(stack)?.into_iter().map(|method| method.text);
        Ok(stack_datum(frames.collect()))
    }

    /// Returns the stack without the topmost frames that implement a lock; the whole stack if it has no
    /// other frames.
    fn site(&mut self, stack: &StructRef<'_>) -> Result<Datum> {
        let frames = self.frames(stack)?;
        let start = frames.iter().position(|method| Part::Site.accepts(method)).unwrap_or(0);
        Ok(stack_datum(frames.into_iter().skip(start).map(|method| method.text).collect()))
    }

    /// Returns the methods of a stack, leaf first.
    fn frames(&mut self, stack: &StructRef<'_>) -> Result<Vec<Method>> {
        let Some(Value::Array(list)) = field(stack, "frames")? else { return Ok(Vec::new()) };
        let mut frames = Vec::new();
        for frame in list.iter().take(MAX_FRAMES) {
            let Some(frame) = frame?.record()? else { continue };
            if let Some(method) = field(&frame, "method")? {
                frames.push(self.frame(method)?);
            }
        }
        Ok(frames)
    }

    /// Returns the method of a frame. References are resolved once per chunk.
    fn frame(&mut self, method: Value<'_>) -> Result<Method> {
        let key = match &method {
            Value::Reference(reference) => Some(reference.key()),
            _ => None,
        };
        if let Some(known) = key.and_then(|key| self.methods.get(&key)) {
            return Ok(known.clone());
        }
        let method = match method.record()? {
            Some(record) => self.method(&record)?,
            None => Method {
                text: self.intern("[unknown]"),
                constructor: false,
                application: true,
                allocator: false,
                lock: false,
            },
        };
        if let Some(key) = key {
            self.methods.insert(key, method.clone());
        }
        Ok(method)
    }

    fn method(&mut self, of: &StructRef<'_>) -> Result<Method> {
        let name = text(of, "name")?.unwrap_or_default();
        let class = record(of, "type")?;
        let class_name = match &class {
            Some(class) => self.class(class)?,
            None => Arc::from(""),
        };
        let loader = match &class {
            Some(class) => record(class, "classLoader")?,
            None => None,
        };
        let loader = match loader {
            Some(loader) => text(&loader, "name")?,
            None => None,
        };
        // Classes in recordings of async-profiler have no loaders, so their names decide.
        let own = match loader.as_deref() {
            Some("bootstrap" | "platform") => true,
            Some(_) => false,
            None => JDK_PACKAGES.iter().any(|package| class_name.starts_with(package)),
        };
        let parameters = parameters(&text(of, "descriptor")?.unwrap_or_default());
        let lock = match parameters {
            Some(_) => is_java_lock(&class_name, &name),
            None => is_native_lock(&name),
        };
        let text = match parameters {
            Some(parameters) if !class_name.is_empty() => format!("{class_name}.{name}({parameters})"),
            Some(parameters) => format!("{name}({parameters})"),
            // A native function, with its library as class.
            None => name.clone(),
        };
        Ok(Method {
            text: self.intern(cut(&text)),
            constructor: name == "<init>",
            application: !own,
            allocator: is_allocator(&name),
            lock,
        })
    }
}

fn stack_datum(frames: Vec<Arc<str>>) -> Datum {
    if frames.is_empty() { Datum::Null } else { Datum::Stack(frames.into()) }
}

const JDK_PACKAGES: &[&str] = &["java.", "javax.", "jdk.", "sun.", "com.sun."];

/// Returns true for allocator functions and async-profiler's interposers.
fn is_allocator(name: &str) -> bool {
    let bare = name.trim_start_matches('_').strip_prefix("libc_").unwrap_or(name.trim_start_matches('_'));
    let bare = bare.strip_suffix("_hook").unwrap_or(bare);
    matches!(
        bare,
        "malloc"
            | "calloc"
            | "realloc"
            | "reallocarray"
            | "posix_memalign"
            | "aligned_alloc"
            | "memalign"
            | "valloc"
            | "pvalloc"
            | "free"
    ) || name.starts_with("operator new")
        || name.starts_with("_Znw")
        || name.starts_with("_Zna")
}

/// Formats a value without a format of its own.
fn plain(value: Value<'_>, depth: usize) -> Result<String> {
    Ok(match value.resolved()? {
        Value::Null => String::new(),
        Value::Text(text) => text.to_str().into_owned(),
        Value::Boolean(v) => v.to_string(),
        Value::Float(v) => v.to_string(),
        Value::Double(v) => v.to_string(),
        Value::Array(list) => format!("[{}]", list.len()),
        Value::Struct(of) => {
            if let Some(name) = text(&of, "name")? {
                return Ok(name.replace('/', "."));
            }
            if depth >= MAX_DEPTH {
                return Ok("…".into());
            }
            let mut parts = Vec::new();
            for part in of.iter().take(32) {
                let (field, value) = part?;
                let value = plain(value, depth + 1)?;
                if of.class().fields.len() == 1 {
                    return Ok(value);
                }
                parts.push(format!("{}: {value}", field.name));
            }
            parts.join(", ")
        }
        other => other.as_i64().map(|v| v.to_string()).unwrap_or_default(),
    })
}

fn field<'a>(of: &StructRef<'a>, name: &str) -> Result<Option<Value<'a>>> {
    of.field(name)
}

fn text(of: &StructRef<'_>, name: &str) -> Result<Option<String>> {
    match of.field(name)? {
        Some(value) => Ok(value.text()?.map(|text| cut(&text).to_owned())),
        None => Ok(None),
    }
}

fn number(of: &StructRef<'_>, name: &str) -> Result<Option<i64>> {
    Ok(of.field(name)?.and_then(|value| value.as_i64()))
}

fn record<'a>(of: &StructRef<'a>, name: &str) -> Result<Option<StructRef<'a>>> {
    of.field(name)?.map_or(Ok(None), |value| value.record())
}

fn cut(text: &str) -> &str {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let mut end = MAX_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// `(ILjava/lang/String;)V` → `int, String`; `None` if it is not the descriptor of a Java method.
fn parameters(descriptor: &str) -> Option<String> {
    let (list, result) = descriptor.strip_prefix('(')?.split_once(')')?;
    // The descriptor that async-profiler writes for native functions.
    if result == "L;" {
        return None;
    }
    let mut names = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let dimensions = rest.len() - rest.trim_start_matches('[').len();
        let length = match rest.as_bytes().get(dimensions)? {
            b'L' => rest.find(';')? + 1,
            _ => dimensions + 1,
        };
        let (one, behind) = (rest.get(..length)?, rest.get(length..)?);
        let full = descriptor_type(one)?;
        names.push(full.rsplit('.').next().unwrap_or_default().to_owned());
        rest = behind;
    }
    Some(names.join(", "))
}

/// `[[I` → `int[][]`
fn descriptor_type(internal: &str) -> Option<String> {
    let element = internal.trim_start_matches('[');
    let dimensions = internal.len() - element.len();
    let name = match element {
        "B" => "byte".into(),
        "C" => "char".into(),
        "D" => "double".into(),
        "F" => "float".into(),
        "I" => "int".into(),
        "J" => "long".into(),
        "S" => "short".into(),
        "Z" => "boolean".into(),
        _ => element.strip_prefix('L')?.strip_suffix(';')?.replace('/', "."),
    };
    Some(name + &"[]".repeat(dimensions))
}

/// Formats the name of an array class, `[Ljava.lang.String;` → `java.lang.String[]`; `None` for others.
fn java_type(name: &str) -> Option<String> {
    name.starts_with('[').then(|| descriptor_type(name)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_descriptors_and_classes_are_formatted() {
        let check = |descriptor: &str, want: Option<&str>| {
            assert_eq!(parameters(descriptor).as_deref(), want, "{descriptor}");
        };
        check("()V", Some(""));
        check("([[IZLjava/lang/Object;[Ljava/lang/String;)V", Some("int[][], boolean, Object, String[]"));
        for not_java in ["", "()L;", "(", "(L", "(Lx)V", "([)V", "(é)V", "(Q)V"] {
            check(not_java, None);
        }
        assert_eq!(java_type("[[B").as_deref(), Some("byte[][]"));
        assert_eq!(java_type("[Ljava.lang.String;").as_deref(), Some("java.lang.String[]"));
        // A class may have the name of a primitive's letter.
        assert_eq!(java_type("I"), None);
    }

    #[test]
    fn allocator_functions_are_recognized() {
        for name in ["malloc", "__libc_calloc", "malloc_hook", "operator new(unsigned long)", "_Znwm"] {
            assert!(is_allocator(name), "{name}");
        }
        assert!(!is_allocator("my_malloc_user") && !is_allocator("mallocate"));
    }
}
