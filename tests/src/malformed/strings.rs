//! Strings.

use super::Add;
use super::chunk::*;

pub(super) fn add(case: Add<'_>) {
    case(
        "string-length-huge",
        "a symbol of 2^62 bytes",
        with([checkpoint(pool(31, 99, &[&[3][..], &nine(1 << 62)].concat()))]),
        15,
        &["a count is larger than the bytes left"],
    );
    case(
        "string-utf16-huge",
        "a symbol of 2^62 UTF-16 units",
        with([checkpoint(pool(31, 99, &[&[4][..], &nine(1 << 62)].concat()))]),
        15,
        &["a count is larger than the bytes left"],
    );
    case(
        "string-encoding",
        "a symbol in string encoding 6",
        with([checkpoint(pool(31, 99, &[6, 1, b'a']))]),
        15,
        &["unknown string encoding"],
    );
    let thread = |name: &[u8]| {
        let value = [name, &[1], name, &[1, 0]].concat();
        with([
            checkpoint(pool(22, 0x77, &value)),
            Piece::Event { type_id: SAMPLE, body: [&varint(20_000_000), &[0x77, 0x1e, 0x02][..]].concat() },
        ])
    };
    case(
        "string-surrogates",
        "a thread's name of lone surrogates",
        thread(&[&[4, 3][..], &varint(0xdc00), &varint(0xd800), &varint(0x41)].concat()),
        16,
        &[],
    );
    case(
        "string-unit-too-large",
        "a UTF-16 unit of more than 16 bits",
        thread(&[&[4, 1][..], &nine(u64::MAX)].concat()),
        16,
        &[],
    );
    case(
        "string-not-utf8",
        "a thread's name that is not UTF-8",
        thread(&[3, 4, 0xff, 0xc0, 0x80, 0xf8]),
        16,
        &[],
    );
    case(
        "string-in-itself",
        "a pooled string that refers to itself",
        typed(|c| {
            c.insert([
                checkpoint(pool(20, 5, &[2, 5])),
                checkpoint(pool(22, 0x77, &[2, 5, 1, 2, 5, 1, 0])),
                Piece::Event {
                    type_id: SAMPLE,
                    body: [&varint(20_000_000), &[0x77, 0x1e, 0x02][..]].concat(),
                },
            ]);
        }),
        16,
        &[],
    );
}

/// Well-formed: symbols of two bytes each whose text is one shared string of `len` bytes, and an event for
/// each.
pub fn of_one_text(symbols: u64, len: usize) -> Vec<u8> {
    const NAMED: u64 = 900;
    let text = [&[3][..], &varint(len as u64), &vec![b'x'; len]].concat();
    let keys = 1000..1000 + symbols;
    let constants = keys.clone().flat_map(|key| [&varint(key)[..], &[2, 5]].concat());
    let pools = [&[1][..], &varint(31), &varint(symbols), &constants.collect::<Vec<u8>>()].concat();
    typed(|c| {
        c.declare([event_class("t.Named", NAMED, vec![pooled(field("name", 31))])]);
        c.insert([checkpoint(pool(20, 5, &text)), checkpoint(pools)]);
        c.insert(keys.map(|key| Piece::Event { type_id: NAMED, body: [&[1][..], &varint(key)].concat() }));
    })
}
