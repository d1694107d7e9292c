//! The types a chunk declares: decoded metadata, with everything looked up once.
//!
//! ```text
//! root ─┬─ metadata ── class* ─┬─ field*  ── annotation*
//!       │                      ├─ setting*
//!       │                      └─ annotation*
//!       └─ region
//! ```

pub(crate) mod layout;

use std::collections::HashMap;
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::error::Malformed;
use crate::strings::StringRef;
use layout::Step;

/// Deepest element tree accepted; real ones are 5 deep.
const MAX_DEPTH: usize = 16;

/// Position of a class in its chunk's [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassIndex(pub(crate) u32);

impl ClassIndex {
    /// Position in [`Types::classes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How values of a type are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One raw byte, 0 or 1.
    Boolean,
    /// One raw byte, signed.
    Byte,
    /// A varint, one UTF-16 code unit.
    Char,
    /// A varint.
    Short,
    /// A varint.
    Int,
    /// A varint.
    Long,
    /// Four bytes, big-endian.
    Float,
    /// Eight bytes, big-endian.
    Double,
    /// `java.lang.String`.
    Text,
    /// The fields in order.
    Struct,
}

impl Kind {
    fn from_name(name: &str) -> Self {
        match name {
            "boolean" => Self::Boolean,
            "byte" => Self::Byte,
            "char" => Self::Char,
            "short" => Self::Short,
            "int" => Self::Int,
            "long" => Self::Long,
            "float" => Self::Float,
            "double" => Self::Double,
            "java.lang.String" => Self::Text,
            _ => Self::Struct,
        }
    }
}

/// An annotation of a class, field or setting.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// Declared id of its type.
    pub type_id: u64,
    /// Name of its type, e.g. `jdk.jfr.Timespan`; empty if undeclared.
    pub type_name: Arc<str>,
    /// Attributes other than the type: `value`, or `value-0`, `value-1`, …
    pub values: Vec<Attribute>,
}

impl Annotation {
    /// The single value, or the first of a list.
    pub fn value(&self) -> Option<&str> {
        self.values.first().map(|(_, value)| &**value)
    }
}

/// A field of a class.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name, unique within its class.
    pub name: Arc<str>,
    /// Declared id of the type.
    pub type_id: u64,
    /// The type, if declared.
    pub class: Option<ClassIndex>,
    /// The value is a key into the type's constant pool.
    pub pooled: bool,
    /// The value is a counted list.
    pub array: bool,
    /// Units, labels, …
    pub annotations: Vec<Annotation>,
}

/// How the values of a field are decoded, known without a look at its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plan {
    Long,
    Int,
    Short,
    Char,
    /// A key of a struct that is shown as such.
    StructKey,
    /// A key of a string, or of a struct that is shown as one.
    TextKey,
    OtherKey,
    Boolean,
    Byte,
    Float,
    Double,
    Text,
    Struct,
    Array,
    #[default]
    Undeclared,
}

impl Plan {
    fn new(field: &Field, of: Option<&Class>) -> Self {
        match of.map(|class| class.kind) {
            _ if field.array => Self::Array,
            _ if field.pooled => match of {
                Some(class) if class.textual => Self::TextKey,
                Some(class) if class.kind == Kind::Struct && !class.simple => Self::StructKey,
                _ => Self::OtherKey,
            },
            Some(Kind::Boolean) => Self::Boolean,
            Some(Kind::Byte) => Self::Byte,
            Some(Kind::Char) => Self::Char,
            Some(Kind::Short) => Self::Short,
            Some(Kind::Int) => Self::Int,
            Some(Kind::Long) => Self::Long,
            Some(Kind::Float) => Self::Float,
            Some(Kind::Double) => Self::Double,
            Some(Kind::Text) => Self::Text,
            Some(Kind::Struct) => Self::Struct,
            None => Self::Undeclared,
        }
    }
}

impl Field {
    /// The annotation whose type has this name.
    pub fn annotation(&self, type_name: &str) -> Option<&Annotation> {
        self.annotations.iter().find(|a| &*a.type_name == type_name)
    }
}

/// A setting an event type declares.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Name, e.g. `threshold`.
    pub name: Arc<str>,
    /// Value unless configured otherwise.
    pub default: Arc<str>,
    /// Declared id of the type.
    pub type_id: u64,
}

/// A declared type: primitive, struct, annotation or event.
#[derive(Clone, Debug)]
pub struct Class {
    /// Declared id; meaningful within its chunk only.
    pub id: u64,
    /// Full name, e.g. `jdk.ExecutionSample`.
    pub name: Arc<str>,
    /// Name of the super type, e.g. `jdk.jfr.Event`.
    pub super_type: Option<Arc<str>>,
    /// A struct of one field that is shown as that field.
    pub simple: bool,
    /// How values are encoded.
    pub kind: Kind,
    /// Fields in file order.
    pub fields: Vec<Field>,
    /// Annotations of the type.
    pub annotations: Vec<Annotation>,
    /// Settings, of event types.
    pub settings: Vec<Setting>,
    pub(crate) layout: Vec<Step>,
    /// Of the fields, in order.
    pub(crate) plans: Vec<Plan>,
    /// Constants are strings, or structs that are shown as one.
    pub(crate) textual: bool,
    /// Values take no bytes.
    pub(crate) nothing: bool,
}

impl Class {
    /// Whether this is an event type.
    pub fn is_event(&self) -> bool {
        self.super_type.as_deref() == Some("jdk.jfr.Event")
    }

    /// Position of the field with this name.
    #[inline]
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| &*f.name == name)
    }

    /// The annotation whose type has this name.
    pub fn annotation(&self, type_name: &str) -> Option<&Annotation> {
        self.annotations.iter().find(|a| &*a.type_name == type_name)
    }
}

impl Class {
    /// Whether values of both are read alike.
    fn is_like(&self, other: &Self) -> bool {
        let field = |(a, b): (&Field, &Field)| {
            (&a.name, a.type_id, a.pooled, a.array) == (&b.name, b.type_id, b.pooled, b.array)
        };
        self.name == other.name
            && self.fields.len() == other.fields.len()
            && self.fields.iter().zip(&other.fields).all(field)
    }
}

/// Locale and time zone of the recorded machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// E.g. `en_US`.
    pub locale: Option<Arc<str>>,
    /// Offset from UTC in milliseconds, daylight saving excluded.
    pub gmt_offset_ms: i64,
    /// Daylight saving in milliseconds.
    pub dst_ms: i64,
}

/// All types of a chunk.
#[derive(Clone, Debug, Default)]
pub struct Types {
    classes: Vec<Class>,
    /// Ids below the length; `u32::MAX` = none.
    dense: Vec<u32>,
    sparse: HashMap<u64, u32>,
    /// Time zone, if told.
    pub region: Option<Region>,
    /// The first type that was declared again otherwise.
    pub(crate) contradicted: Option<ClassIndex>,
}

/// Largest id looked up by array; real ids are below some thousands.
const DENSE_LIMIT: u64 = 1 << 14;
const NONE: u32 = u32::MAX;

impl Types {
    /// The types in file order.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// The class at `index`.
    pub fn class(&self, index: ClassIndex) -> Option<&Class> {
        self.classes.get(index.0 as usize)
    }

    /// The class declared under `id`.
    #[inline]
    pub fn class_index(&self, id: u64) -> Option<ClassIndex> {
        let index = match self.dense.get(usize::try_from(id).ok()?) {
            Some(&index) => index,
            None => *self.sparse.get(&id)?,
        };
        (index != NONE).then_some(ClassIndex(index))
    }

    /// The class declared under `id`.
    #[inline]
    pub fn by_id(&self, id: u64) -> Option<&Class> {
        self.class(self.class_index(id)?)
    }

    /// The class with this name.
    #[inline]
    pub fn by_name(&self, name: &str) -> Option<(ClassIndex, &Class)> {
        let at = self.classes.iter().position(|c| &*c.name == name)?;
        Some((ClassIndex(at as u32), &self.classes[at]))
    }

    /// Adds the types of one metadata event (its bytes after the type id). A type id that is already known keeps
    /// its first meaning: constants have been read by it.
    ///
    /// # Errors
    /// The fault and its position in `payload`; `self` is unchanged then.
    pub(crate) fn add(&mut self, payload: &[u8]) -> Result<(), (Malformed, usize)> {
        let mut cursor = Cursor::new(payload);
        let new = Tree::parse(&mut cursor).map_err(|fault| (fault, cursor.pos()))?;
        self.region = self.region.take().or(new.region);
        for class in new.classes {
            if let Some(index) = self.class_index(class.id) {
                if self.class(index).is_some_and(|known| !known.is_like(&class)) {
                    self.contradicted.get_or_insert(index);
                }
                continue;
            }
            let index = self.classes.len() as u32;
            if class.id < DENSE_LIMIT {
                let at = class.id as usize;
                if self.dense.len() <= at {
                    self.dense.resize(at + 1, NONE);
                }
                self.dense[at] = index;
            } else {
                self.sparse.insert(class.id, index);
            }
            self.classes.push(class);
        }
        self.link();
        Ok(())
    }

    /// Resolves type ids to classes and names, and flattens the layouts.
    fn link(&mut self) {
        let indexes: Vec<Vec<Option<ClassIndex>>> = self
            .classes
            .iter()
            .map(|class| class.fields.iter().map(|f| self.class_index(f.type_id)).collect())
            .collect();
        let ids: HashMap<u64, Arc<str>> = self.classes.iter().map(|c| (c.id, c.name.clone())).collect();
        for (class, indexes) in self.classes.iter_mut().zip(indexes) {
            let name = |annotation: &mut Annotation| {
                if let Some(name) = ids.get(&annotation.type_id) {
                    annotation.type_name = name.clone();
                }
            };
            class.annotations.iter_mut().for_each(name);
            for (field, index) in class.fields.iter_mut().zip(indexes) {
                field.class = index;
                field.annotations.iter_mut().for_each(name);
            }
        }
        self.mark_textual();
        self.plan();
        layout::flatten_all(&mut self.classes);
    }

    fn plan(&mut self) {
        let plan = |field: &Field| Plan::new(field, field.class.and_then(|index| self.class(index)));
        let plans: Vec<Vec<Plan>> =
            self.classes.iter().map(|class| class.fields.iter().map(plan).collect()).collect();
        for (class, plans) in self.classes.iter_mut().zip(plans) {
            class.plans = plans;
        }
    }

    fn mark_textual(&mut self) {
        for _ in 0..layout::MAX_DEPTH {
            let text: Vec<bool> = self.classes.iter().map(|class| class.textual).collect();
            let mut changed = false;
            for class in self.classes.iter_mut().filter(|class| class.simple && !class.textual) {
                let [field] = &class.fields[..] else { continue };
                let of_text = field.class.and_then(|index| text.get(index.index()));
                class.textual = !field.array && of_text == Some(&true);
                changed |= class.textual;
            }
            if !changed {
                break;
            }
        }
    }
}

/// One metadata event while it is read.
struct Tree {
    strings: Vec<Arc<str>>,
    classes: Vec<Class>,
    region: Option<Region>,
}

/// What an element's children belong to.
enum Parent<'p> {
    Root,
    Metadata,
    Class(&'p mut Class),
    Annotated(&'p mut Vec<Annotation>),
    Ignored,
}

/// The length of a metadata event's content, of which `payload` holds at least all: its bytes behind the type id.
///
/// # Errors
/// The content cannot be read.
pub(crate) fn metadata_len(payload: &[u8]) -> Result<usize, Malformed> {
    let mut cursor = Cursor::new(payload);
    Tree::parse(&mut cursor)?;
    Ok(cursor.pos())
}

impl Tree {
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        cursor.skip_varints(3)?; // start, duration, metadata id
        let count = cursor.count()?;
        let empty: Arc<str> = Arc::from("");
        let mut strings = Vec::with_capacity(count);
        for _ in 0..count {
            strings.push(match cursor.string()? {
                StringRef::Text(text) if !text.is_empty() => Arc::from(text),
                _ => empty.clone(),
            });
        }
        let mut tree = Self { strings, classes: Vec::new(), region: None };
        tree.name(cursor)?; // root, whatever it is called
        tree.attributes(cursor)?;
        tree.children(cursor, Parent::Root, 0)?;
        Ok(tree)
    }

    fn name(&self, cursor: &mut Cursor<'_>) -> Result<Arc<str>, Malformed> {
        let index = usize::try_from(cursor.varint()?).map_err(|_| Malformed::StringIndex)?;
        self.strings.get(index).cloned().ok_or(Malformed::StringIndex)
    }

    fn attributes(&self, cursor: &mut Cursor<'_>) -> Result<Vec<Attribute>, Malformed> {
        let count = cursor.count()?;
        let mut attributes = Vec::new();
        for _ in 0..count {
            attributes.push((self.name(cursor)?, self.name(cursor)?));
        }
        Ok(attributes)
    }

    fn children(
        &mut self,
        cursor: &mut Cursor<'_>,
        mut parent: Parent<'_>,
        depth: usize,
    ) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed::Depth);
        }
        for _ in 0..cursor.count()? {
            let name = self.name(cursor)?;
            let attributes = self.attributes(cursor)?;
            match (&mut parent, &*name) {
                (Parent::Root, "metadata") => self.children(cursor, Parent::Metadata, depth + 1)?,
                (Parent::Root, "region") => {
                    self.region = Some(region(&attributes));
                    self.children(cursor, Parent::Ignored, depth + 1)?;
                }
                (Parent::Metadata, "class") => {
                    let mut class = class(&attributes)?;
                    self.children(cursor, Parent::Class(&mut class), depth + 1)?;
                    self.classes.push(class);
                }
                (Parent::Class(class), "field") => {
                    let mut field = field(&attributes)?;
                    self.children(cursor, Parent::Annotated(&mut field.annotations), depth + 1)?;
                    class.fields.push(field);
                }
                (Parent::Class(class), "setting") => {
                    class.settings.push(setting(&attributes)?);
                    self.children(cursor, Parent::Ignored, depth + 1)?;
                }
                (Parent::Class(class), "annotation") => {
                    class.annotations.push(annotation(attributes)?);
                    self.children(cursor, Parent::Ignored, depth + 1)?;
                }
                (Parent::Annotated(list), "annotation") => {
                    list.push(annotation(attributes)?);
                    self.children(cursor, Parent::Ignored, depth + 1)?;
                }
                // Elements of later versions of the format.
                _ => self.children(cursor, Parent::Ignored, depth + 1)?,
            }
        }
        Ok(())
    }
}

/// Name and value.
pub type Attribute = (Arc<str>, Arc<str>);
type Attributes = [Attribute];

fn get(attributes: &Attributes, key: &str) -> Option<Arc<str>> {
    attributes.iter().find(|(k, _)| &**k == key).map(|(_, v)| v.clone())
}

fn id(attributes: &Attributes, key: &str) -> Result<u64, Malformed> {
    let text = get(attributes, key).ok_or(Malformed::Metadata)?;
    // Java prints the ids as signed numbers.
    text.parse().or_else(|_| text.parse().map(i64::cast_unsigned)).map_err(|_| Malformed::Metadata)
}

fn number(attributes: &Attributes, key: &str) -> i64 {
    get(attributes, key).and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn flag(attributes: &Attributes, key: &str) -> bool {
    get(attributes, key).is_some_and(|v| &*v == "true")
}

fn region(attributes: &Attributes) -> Region {
    Region {
        locale: get(attributes, "locale"),
        gmt_offset_ms: number(attributes, "gmtOffset"),
        dst_ms: number(attributes, "dst"),
    }
}

/// The name that a type has since JDK 11. JDK 9 and 10 (version 1.0 of the format) have the same types in packages of Oracle.
fn since_jdk_11(name: Arc<str>) -> Arc<str> {
    const PACKAGES: [(&str, &str); 3] = [
        ("com.oracle.jdk.", "jdk."),
        ("com.oracle.jfr.types.", "jdk.types."),
        ("com.oracle.jfr.settings.", "jdk.settings."),
    ];
    let new = PACKAGES.iter().find_map(|(old, new)| Some([new, name.strip_prefix(old)?].concat()));
    new.map_or(name, Arc::from)
}

fn class(attributes: &Attributes) -> Result<Class, Malformed> {
    let name = since_jdk_11(get(attributes, "name").ok_or(Malformed::Metadata)?);
    let kind = Kind::from_name(&name);
    Ok(Class {
        id: id(attributes, "id")?,
        kind,
        name,
        super_type: get(attributes, "superType"),
        simple: flag(attributes, "simpleType"),
        fields: Vec::new(),
        annotations: Vec::new(),
        settings: Vec::new(),
        layout: Vec::new(),
        plans: Vec::new(),
        textual: kind == Kind::Text,
        nothing: false,
    })
}

fn field(attributes: &Attributes) -> Result<Field, Malformed> {
    Ok(Field {
        name: get(attributes, "name").ok_or(Malformed::Metadata)?,
        type_id: id(attributes, "class")?,
        class: None,
        pooled: flag(attributes, "constantPool"),
        array: get(attributes, "dimension").is_some_and(|v| &*v != "0"),
        annotations: Vec::new(),
    })
}

fn setting(attributes: &Attributes) -> Result<Setting, Malformed> {
    Ok(Setting {
        name: get(attributes, "name").ok_or(Malformed::Metadata)?,
        default: get(attributes, "defaultValue").unwrap_or_else(|| Arc::from("")),
        type_id: id(attributes, "class")?,
    })
}

fn annotation(mut attributes: Vec<Attribute>) -> Result<Annotation, Malformed> {
    let type_id = id(&attributes, "class")?;
    attributes.retain(|(key, _)| &**key != "class");
    Ok(Annotation { type_id, type_name: Arc::from(""), values: attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jdk_9_types_are_renamed() {
        for (old, new) in [
            ("com.oracle.jdk.ExecutionSample", "jdk.ExecutionSample"),
            ("com.oracle.jfr.types.StackTrace", "jdk.types.StackTrace"),
            ("com.oracle.Event", "com.oracle.Event"),
            ("jdk.CPULoad", "jdk.CPULoad"),
        ] {
            assert_eq!(&*since_jdk_11(old.into()), new);
        }
    }
}
