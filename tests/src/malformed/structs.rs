//! Declarations of structs, arrays and types.

use super::Add;
use super::chunk::*;

/// 40 structs, each of which contains the previous one twice; the first has the fields `first`.
fn doubling(first: Vec<Element>) -> Vec<u8> {
    typed(|c| {
        c.declare([class("t.D0", 300, first)]);
        for i in 1..40 {
            c.declare([class(&format!("t.D{i}"), 300 + i, vec![field("a", 299 + i), field("b", 299 + i)])]);
        }
        c.declare([event_class("t.Odd", 400, vec![field("d", 339)])]);
        c.insert([Piece::Event { type_id: 400, body: vec![1; 1000] }]);
    })
}

pub(super) fn add(case: Add<'_>) {
    case(
        "struct-in-itself",
        "a struct with itself as a field",
        typed(|c| {
            c.declare([
                class("t.Self", 300, vec![field("x", 300)]),
                event_class("t.Odd", 301, vec![field("s", 300)]),
            ]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 2, 3] }]);
        }),
        16,
        &[],
    );
    case(
        "structs-in-a-circle",
        "three structs each with the next as a field, pooled",
        typed(|c| {
            c.declare([
                class("t.A", 300, vec![field("n", 11), field("b", 301)]),
                class("t.B", 301, vec![field("n", 11), field("c", 302)]),
                class("t.C", 302, vec![field("n", 11), field("a", 300)]),
                event_class("t.Odd", 303, vec![pooled(field("a", 300))]),
            ]);
            c.insert([checkpoint(pool(300, 1, &[1; 200])), Piece::Event { type_id: 303, body: vec![1, 1] }]);
        }),
        16,
        &["structures nested too deeply"],
    );
    case(
        "struct-array-in-itself",
        "a struct with an array of itself, 31 deep and 2 wide",
        typed(|c| {
            c.declare([
                class("t.Self", 300, vec![array("x", 300)]),
                event_class("t.Odd", 301, vec![field("s", 300)]),
            ]);
            c.insert([Piece::Event { type_id: 301, body: [&[1][..], &[2; 4000]].concat() }]);
        }),
        16,
        &[],
    );
    case(
        "struct-twice-in-itself",
        "a struct with itself as a field twice: 2^32 fields",
        typed(|c| {
            c.declare([
                class("t.Self", 300, vec![field("n", 11), field("x", 300), field("y", 300)]),
                event_class("t.Odd", 301, vec![field("s", 300)]),
            ]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 2, 3] }]);
            // More samples follow, so that a stream checks whether this event's constants are present.
            c.insert((0..40).map(|_| sample()));
        }),
        56,
        &[],
    );
    case(
        "constants-one-by-one",
        "an event that refers to 60,000 constants, each defined behind it by a checkpoint of its own",
        typed(|c| {
            c.declare([
                class("t.Late", 300, vec![field("n", 11)]),
                event_class("t.Odd", 301, vec![pooled(array("a", 300))]),
            ]);
            let keys = 1..=60_000u64;
            let body = [vec![1], varint(60_000), keys.clone().flat_map(varint).collect()].concat();
            c.insert(keys.map(|key| checkpoint(pool(300, key, &[7]))));
            c.insert([Piece::Event { type_id: 301, body }]);
        }),
        16,
        &[],
    );
    case(
        "structs-doubling",
        "40 structs, each with the one before twice: 2^40 fields",
        doubling(vec![field("a", 11)]),
        16,
        &[],
    );
    case(
        "structs-doubling-nothing",
        "the same without any field at the end: 2^40 structs in no byte",
        doubling(vec![]),
        16,
        &[],
    );
    case(
        "array-of-nothing",
        "an array of 2^62 structs without fields",
        typed(|c| {
            c.declare([class("t.Nothing", 300, vec![]), event_class("t.Odd", 301, vec![array("x", 300)])]);
            c.insert([Piece::Event { type_id: 301, body: [&[1][..], &nine(1 << 62)].concat() }]);
        }),
        16,
        &[],
    );
    case(
        "array-huge",
        "an array of 2^62 longs",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![array("x", 11)])]);
            c.insert([Piece::Event { type_id: 301, body: [&[1][..], &nine(1 << 62)].concat() }]);
        }),
        16,
        &[],
    );
    case(
        "array-of-doubles-huge",
        "an array of doubles whose length in bytes overflows 64 bits",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![array("x", 7)])]);
            c.insert([Piece::Event { type_id: 301, body: [&[1][..], &nine((1 << 61) + 1)].concat() }]);
        }),
        16,
        &[],
    );
    case(
        "array-pooled",
        "a field that is both array and pooled, with unknown keys",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![pooled(array("x", 31))])]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 3, 10, 11, 0x7f] }]);
        }),
        16,
        &[],
    );
    case(
        "dimension-odd",
        "dimensions 2, -1 and x",
        typed(|c| {
            let mut fields = [array("a", 11), array("b", 11), array("c", 11)];
            fields[0].set("dimension", "2");
            fields[1].set("dimension", "-1");
            fields[2].set("dimension", "x");
            c.declare([event_class("t.Odd", 301, fields.to_vec())]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 1, 5, 1, 6, 1, 7] }]);
        }),
        16,
        &[],
    );
    case(
        "number-pooled",
        "a pooled long",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![pooled(field("x", 11))])]);
            c.insert([checkpoint(pool(11, 4, &[9])), Piece::Event { type_id: 301, body: vec![1, 4] }]);
        }),
        16,
        &[],
    );
    case(
        "simple-type-of-two",
        "a simple type with two fields",
        typed(|c| {
            let mut simple = class("t.Simple", 300, vec![field("a", 11), field("b", 11)]);
            simple.set("simpleType", "true");
            c.declare([simple, event_class("t.Odd", 301, vec![field("s", 300)])]);
            c.insert([Piece::Event { type_id: 301, body: vec![1, 2, 3] }]);
        }),
        16,
        &[],
    );
    case(
        "fields-same-name",
        "an event with 1,000 fields of one name",
        typed(|c| {
            c.declare([event_class("t.Odd", 301, vec![field("x", 11); 1000])]);
            c.insert([Piece::Event { type_id: 301, body: vec![1; 1001] }]);
        }),
        16,
        &[],
    );
    case(
        "event-without-fields",
        "an event type without fields, 1,000 events",
        typed(|c| {
            c.declare([{
                let mut none = event_class("t.None", 301, vec![]);
                none.children.clear();
                none
            }]);
            c.insert((0..1000).map(|_| Piece::Event { type_id: 301, body: vec![] }));
        }),
        1015,
        &[],
    );
    case(
        "types-many",
        "100,000 types",
        typed(|c| c.declare((0..100_000).map(|i| class(&format!("t.T{i}"), 1000 + i, vec![])))),
        15,
        &[],
    );
    case(
        "types-million",
        "a million types of one name",
        typed(|c| c.declare((0..1_000_000).map(|i| class("t.T", 1000 + i % 50, vec![])))),
        15,
        &[],
    );
    case(
        "negative-type-id",
        "a class with id -1",
        typed(|c| c.tree().class("jdk.types.Package").set("id", "-1")),
        15,
        &[],
    );
    case(
        "samples-only",
        "samples without any checkpoint",
        typed(|c| c.pieces.retain(|p| !matches!(p, Piece::Checkpoint { .. }))),
        15,
        &[],
    );
    case(
        "sample-of-the-future",
        "times of 2^63-1 and -2^63",
        with([i64::MAX, i64::MIN].map(|t| Piece::Event {
            type_id: SAMPLE,
            body: [&nine(t as u64), &[0x66, 0x1e, 2][..]].concat(),
        })),
        17,
        &[],
    );
}
