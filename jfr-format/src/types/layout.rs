//! Stepping over values whose content nobody asked for.
//!
//! Each class is flattened into steps once per chunk, so that skipping `{int, long, int}` is one run of three
//! varints. Cyclic declarations end at the depth limit.

use super::{Class, ClassIndex, Field, Kind};
use crate::cursor::Cursor;
use crate::error::Malformed;

/// Deepest nesting of inline values.
pub(crate) const MAX_DEPTH: usize = 32;
/// A nested struct with more steps than this is called, not copied in.
const INLINE_STEPS: usize = 16;

/// One step over encoded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Varints(u32),
    Bytes(u32),
    Text,
    /// An inline struct, by its own steps.
    Struct(ClassIndex),
    /// A count, then values each of one step.
    Array(Element),
    /// A value of an undeclared type: nothing behind it can be found.
    Unknown,
}

/// An element of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Varints(u32),
    Bytes(u32),
    Text,
    Struct(ClassIndex),
    /// Elements without bytes.
    Nothing,
    Unknown,
}

/// Steps over one value by the steps of its class.
#[inline]
pub(crate) fn skip(
    classes: &[Class],
    steps: &[Step],
    cursor: &mut Cursor<'_>,
    depth: usize,
) -> Result<(), Malformed> {
    for &step in steps {
        match step {
            Step::Varints(n) => cursor.skip_varints(u64::from(n))?,
            Step::Bytes(n) => drop(cursor.bytes(n as usize)?),
            Step::Text => cursor.skip_string()?,
            Step::Array(element) => skip_array(classes, element, cursor, depth)?,
            Step::Struct(class) => skip_struct(classes, class, cursor, depth)?,
            Step::Unknown => return Err(Malformed::UnknownType),
        }
    }
    Ok(())
}

fn skip_struct(
    classes: &[Class],
    class: ClassIndex,
    cursor: &mut Cursor<'_>,
    depth: usize,
) -> Result<(), Malformed> {
    if depth >= MAX_DEPTH {
        return Err(Malformed::Depth);
    }
    let class = classes.get(class.0 as usize).ok_or(Malformed::UnknownType)?;
    skip(classes, &class.layout, cursor, depth + 1)
}

fn skip_array(
    classes: &[Class],
    element: Element,
    cursor: &mut Cursor<'_>,
    depth: usize,
) -> Result<(), Malformed> {
    if element == Element::Nothing {
        return cursor.varint().map(drop);
    }
    let count = cursor.count()?;
    match element {
        Element::Varints(n) => cursor.skip_varints((count as u64).saturating_mul(u64::from(n))),
        Element::Bytes(n) => {
            let len = count.checked_mul(n as usize).ok_or(Malformed::Count)?;
            cursor.bytes(len).map(drop)
        }
        Element::Text => (0..count).try_for_each(|_| cursor.skip_string()),
        Element::Struct(class) => (0..count).try_for_each(|_| skip_struct(classes, class, cursor, depth)),
        Element::Unknown if count > 0 => Err(Malformed::UnknownType),
        Element::Unknown | Element::Nothing => Ok(()),
    }
}

/// Steps over the value of one field.
pub(crate) fn skip_field(
    classes: &[Class],
    field: &Field,
    cursor: &mut Cursor<'_>,
    depth: usize,
) -> Result<(), Malformed> {
    skip(classes, &[step(classes, field)], cursor, depth)
}

/// The steps of some fields, runs joined.
pub(crate) fn layout_steps(classes: &[Class], fields: &[Field]) -> Vec<Step> {
    let mut steps = Vec::new();
    for field in fields {
        push(&mut steps, step(classes, field));
    }
    steps
}

fn step(classes: &[Class], field: &Field) -> Step {
    if field.array {
        return Step::Array(element(classes, field));
    }
    if field.pooled {
        return Step::Varints(1);
    }
    let Some((index, class)) = field.class.and_then(|i| Some((i, classes.get(i.0 as usize)?))) else {
        return Step::Unknown;
    };
    match class.kind {
        Kind::Struct if class.nothing => Step::Bytes(0),
        Kind::Struct => Step::Struct(index),
        kind => primitive(kind),
    }
}

fn element(classes: &[Class], field: &Field) -> Element {
    if field.pooled {
        return Element::Varints(1);
    }
    let Some((index, class)) = field.class.and_then(|i| Some((i, classes.get(i.0 as usize)?))) else {
        return Element::Unknown;
    };
    if class.nothing {
        return Element::Nothing;
    }
    if class.kind == Kind::Struct {
        return match class.layout[..] {
            [Step::Varints(n)] => Element::Varints(n),
            [Step::Bytes(n)] => Element::Bytes(n),
            [Step::Text] => Element::Text,
            _ => Element::Struct(index),
        };
    }
    match primitive(class.kind) {
        Step::Varints(n) => Element::Varints(n),
        Step::Bytes(n) => Element::Bytes(n),
        _ => Element::Text,
    }
}

fn primitive(kind: Kind) -> Step {
    match kind {
        Kind::Boolean | Kind::Byte => Step::Bytes(1),
        Kind::Float => Step::Bytes(4),
        Kind::Double => Step::Bytes(8),
        Kind::Text => Step::Text,
        Kind::Char | Kind::Short | Kind::Int | Kind::Long | Kind::Struct => Step::Varints(1),
    }
}

/// Marks the structs whose values take no bytes. Without this, nested empty structs would cost time that no
/// input byte pays for.
fn mark_nothing(classes: &mut [Class]) {
    for _ in 0..MAX_DEPTH {
        let nothing: Vec<bool> = classes
            .iter()
            .map(|class| {
                class.kind == Kind::Struct
                    && class.fields.iter().all(|f| {
                        let of = f.class.and_then(|c| classes.get(c.0 as usize));
                        !f.array && !f.pooled && of.is_some_and(|c| c.nothing)
                    })
            })
            .collect();
        let mut changed = false;
        for (class, nothing) in classes.iter_mut().zip(nothing) {
            changed |= class.nothing != nothing;
            class.nothing = nothing;
        }
        if !changed {
            break;
        }
    }
}

fn push(steps: &mut Vec<Step>, step: Step) {
    match (steps.last_mut(), step) {
        (_, Step::Bytes(0)) => {}
        (Some(Step::Varints(n)), Step::Varints(m)) | (Some(Step::Bytes(n)), Step::Bytes(m)) => {
            *n = n.saturating_add(m);
        }
        _ => steps.push(step),
    }
}

/// Fills in the layout of every class. Two rounds of inlining reach all the nesting that real types have; what is
/// left is called at run time.
pub(crate) fn flatten_all(classes: &mut [Class]) {
    for class in classes.iter_mut() {
        class.layout.clear();
        class.nothing = false;
    }
    mark_nothing(classes);
    let plain: Vec<Vec<Step>> = classes.iter().map(|c| layout_steps(classes, &c.fields)).collect();
    assign(classes, plain);
    for _ in 0..2 {
        // Arrays look at the layout of their element, which the round before made.
        let next: Vec<Vec<Step>> = classes
            .iter()
            .map(|class| {
                let mut steps = Vec::new();
                for step in layout_steps(classes, &class.fields) {
                    inline(classes, step, &mut steps);
                }
                steps
            })
            .collect();
        assign(classes, next);
    }
}

fn inline(classes: &[Class], step: Step, steps: &mut Vec<Step>) {
    match step {
        Step::Struct(index) => match classes.get(index.0 as usize) {
            Some(nested) if nested.layout.len() <= INLINE_STEPS => {
                nested.layout.iter().for_each(|&step| push(steps, step));
            }
            _ => push(steps, step),
        },
        other => push(steps, other),
    }
}

fn assign(classes: &mut [Class], layouts: Vec<Vec<Step>>) {
    for (class, layout) in classes.iter_mut().zip(layouts) {
        class.layout = layout;
    }
}

/// Hands `use_them` the steps over one value of `class`, primitive or struct.
#[inline]
pub(crate) fn with_steps<T>(
    classes: &[Class],
    class: ClassIndex,
    use_them: impl FnOnce(&[Step]) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let class = classes.get(class.0 as usize).ok_or(Malformed::UnknownType)?;
    match class.kind {
        Kind::Struct => use_them(&class.layout),
        kind => use_them(&[primitive(kind)]),
    }
}

/// Steps over one value of `class`, primitive or struct.
pub(crate) fn skip_value(
    classes: &[Class],
    class: ClassIndex,
    cursor: &mut Cursor<'_>,
) -> Result<(), Malformed> {
    with_steps(classes, class, |steps| skip(classes, steps, cursor, 0))
}
