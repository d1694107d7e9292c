//! Events.

use super::Add;
use super::chunk::*;

pub(super) fn add(case: Add<'_>) {
    let sound = Chunk::sound().build().bytes;
    let raw = |bytes: &[u8]| with([Piece::Raw(bytes.to_vec())]);
    case(
        "event-size-0",
        "an event of size 0 before the last five",
        raw(&[0]),
        15,
        &["impossible event size"],
    );
    case(
        "event-size-1",
        "an event of size 1 before the last five",
        raw(&[1]),
        15,
        &["impossible event size"],
    );
    case(
        "event-size-huge",
        "an event of 2^63-1 bytes before the last five",
        raw(&nine(i64::MAX as u64)),
        15,
        &["impossible event size"],
    );
    case(
        "event-size-2-28",
        "an event larger than the chunk before the last five",
        raw(&four((1 << 28) - 1)),
        15,
        &["impossible event size"],
    );
    case(
        "damage-everywhere",
        "50,000 checkpoints, each behind a byte that is no event",
        with((0..50_000).flat_map(|_| [Piece::Raw(vec![0]), checkpoint(vec![0])])),
        15,
        &["impossible event size"],
    );
    case(
        "event-ends-in-type",
        "an event that ends inside its type id",
        raw(&[2, 0xff]),
        15,
        &["impossible event size"],
    );
    case(
        "event-too-short",
        "a sample that ends before its fields",
        raw(&[4, SAMPLE as u8, 1, 0x66]),
        16,
        &["the data ends inside a value (at offset 4375, chunk 1, reading field stackTrace"],
    );
    case(
        "event-too-long",
        "a sample with 40 bytes behind its fields",
        with([Piece::Event {
            type_id: SAMPLE,
            body: [&varint(20_000_000), &[0x66, 0x1e, 2][..], &[0xee; 40]].concat(),
        }]),
        16,
        &[],
    );
    case(
        "event-undeclared",
        "an event of an undeclared type",
        raw(&[4, 0xe7, 0x4e, 1]),
        15,
        &["skipped 1 events of undeclared type 10087"],
    );
    case(
        "event-holds-header",
        "a whole chunk header inside an event",
        with([Piece::Event {
            type_id: SAMPLE,
            body: [&varint(20_000_000), &[0x66, 0x1e, 2][..], &sound[..HEADER]].concat(),
        }]),
        16,
        &[],
    );
    case(
        "types-many-ids",
        "100,000 events each of an undeclared type of its own",
        with((0..100_000u64).map(|i| Piece::Event { type_id: 1_000_000 + i, body: vec![0] })),
        15,
        &["skipped 99984 events of 99984 more undeclared types"],
    );
    case(
        "varints-of-nine",
        "every number of events and constants in nine bytes",
        typed(|c| {
            for piece in &mut c.pieces {
                if let Piece::Event { type_id, body } = piece {
                    let mut at = 0;
                    let mut numbers = nine(*type_id);
                    while at < body.len() {
                        numbers.extend(nine(get(body, &mut at)));
                    }
                    *piece = Piece::Raw([&nine(9 + numbers.len() as u64)[..], &numbers].concat());
                }
            }
        }),
        15,
        &[],
    );
}
