//! Finds the constants that a value refers to.

use crate::constants::STRING_POOLED;
use crate::cursor::Cursor;
use crate::error::Malformed;
use crate::types::layout::{self, MAX_DEPTH};
use crate::types::{Class, ClassIndex, Kind, Types};

/// Calls `refer` for every key in the value of `class` at the cursor, key 0 included.
pub(super) fn each(
    types: &Types,
    class: ClassIndex,
    cursor: &mut Cursor<'_>,
    refer: &mut impl FnMut(ClassIndex, u64),
) -> Result<(), Malformed> {
    let Some(found) = types.class(class) else { return Err(Malformed::UnknownType) };
    match found.kind {
        Kind::Struct => fields(types, found, cursor, refer, 0),
        Kind::Text => text(class, cursor, refer),
        _ => layout::skip_value(types.classes(), class, cursor),
    }
}

fn fields(
    types: &Types,
    class: &Class,
    cursor: &mut Cursor<'_>,
    refer: &mut impl FnMut(ClassIndex, u64),
    depth: usize,
) -> Result<(), Malformed> {
    for field in &class.fields {
        let target = field.class.and_then(|index| Some((index, types.class(index)?)));
        let Some((index, class)) = target else {
            layout::skip_field(types.classes(), field, cursor, depth)?;
            continue;
        };
        let plain = !matches!(class.kind, Kind::Struct | Kind::Text);
        if depth >= MAX_DEPTH || class.nothing || (plain && !field.pooled) {
            layout::skip_field(types.classes(), field, cursor, depth)?;
            continue;
        }
        let count = if field.array { cursor.count()? } else { 1 };
        for _ in 0..count {
            if field.pooled {
                refer(index, cursor.varint()?);
            } else if class.kind == Kind::Text {
                text(index, cursor, refer)?;
            } else {
                fields(types, class, cursor, refer, depth + 1)?;
            }
        }
    }
    Ok(())
}

fn text(
    class: ClassIndex,
    cursor: &mut Cursor<'_>,
    refer: &mut impl FnMut(ClassIndex, u64),
) -> Result<(), Malformed> {
    let mut ahead = *cursor;
    cursor.skip_string()?;
    if ahead.byte()? == STRING_POOLED {
        refer(class, ahead.varint()?);
    }
    Ok(())
}
