//! Metadata.

use super::Add;
use super::chunk::*;

pub(super) fn add(case: Add<'_>) {
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
}
