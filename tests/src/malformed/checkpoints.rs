//! Checkpoints and their chain, pools and keys.

use super::Add;
use super::chunk::*;

pub(super) fn add(case: Add<'_>) {
    case(
        "checkpoint-two-cycle",
        "two checkpoints that name each other as the one before",
        delta(1, |at| at[2] as i64 - at[1] as i64),
        15,
        &["the checkpoint chain goes in a circle (at offset 3897"],
    );
    case(
        "checkpoint-three-cycle",
        "three checkpoints in a circle",
        delta(1, |at| at[8] as i64 - at[1] as i64),
        15,
        &["the checkpoint chain goes in a circle (at offset 4095"],
    );
    case(
        "checkpoint-chain-forward",
        "the chain leads behind the file",
        delta(1, |_| 1 << 40),
        15,
        &["leads to byte 1099511631538 of the chunk, where no checkpoint is (at offset 3762"],
    );
    case(
        "checkpoint-chain-min",
        "the chain leads 2^63 bytes back",
        delta(1, |_| i64::MIN),
        15,
        &["leads to byte -9223372036854772046 of the chunk, where no checkpoint is (at offset 3762"],
    );
    case(
        "checkpoint-chain-mid-event",
        "the chain leads into an event",
        delta(14, |at| at[4] as i64 + 2 - at[14] as i64),
        15,
        &[
            "leads to byte 4049 of the chunk, where no checkpoint is (at offset 4263",
            "3 checkpoints are not in the chain (at offset 3762",
        ],
    );
    case(
        "pool-count-huge",
        "a checkpoint of 2^63-1 pools",
        with([checkpoint(nine(i64::MAX as u64))]),
        15,
        &["a count is larger than the bytes left"],
    );
    case(
        "pool-entries-huge",
        "a pool of 2^62 symbols",
        with([checkpoint([&[1, 31][..], &nine(1 << 62)].concat())]),
        15,
        &["a count is larger than the bytes left"],
    );
    case("pool-empty", "a pool without entries", with([checkpoint(vec![1, 31, 0])]), 15, &[]);
    case(
        "pool-unknown-type",
        "a pool of an undeclared type",
        with([checkpoint(pool(9999, 1, &[0]))]),
        15,
        &["not declared in the metadata"],
    );
    case(
        "pool-of-events",
        "a pool of an event type, itself holding a stack",
        with([checkpoint(pool(SAMPLE, 1, &[1, 0x66, 0x1e, 2]))]),
        15,
        &[],
    );
    case(
        "pool-entry-torn",
        "a pool whose last constant is cut",
        with([checkpoint(vec![1, 31, 2, 0x7e, 3, 1, b'a', 0x7f, 3, 9, b'a'])]),
        15,
        &["constant pools"],
    );
    case(
        "key-redefined",
        "a symbol redefined in the last checkpoint",
        with([checkpoint(pool(31, 10, &utf8("other")))]),
        15,
        &[
            "constant 10 of jdk.types.Symbol is defined again with other content; the first is taken (at offset 4392",
        ],
    );
    case(
        "key-huge",
        "a constant with key 2^64-1",
        with([checkpoint(pool(31, u64::MAX, &utf8("x")))]),
        15,
        &[],
    );
    case(
        "keys-spread",
        "50,000 keys spread over all 64 bits",
        with([checkpoint({
            let mut pool = [&[1, 31][..], &varint(50_000)].concat();
            for i in 1..=50_000u64 {
                pool.extend(varint(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                pool.push(1);
            }
            pool
        })]),
        15,
        &[],
    );
    case(
        "frames-huge",
        "a stack of 2^62 frames",
        with([checkpoint(pool(26, 99, &[&[0][..], &nine(1 << 62)].concat()))]),
        15,
        &["a count is larger than the bytes left"],
    );
    case(
        "thread-group-own-parent",
        "a thread group that is its own parent",
        with([
            checkpoint(pool(33, 7, &[&[7][..], &utf8("g")].concat())),
            checkpoint(pool(22, 0x77, &[&utf8("t")[..], &[1], &utf8("t"), &[1, 7]].concat())),
            Piece::Event { type_id: SAMPLE, body: [&varint(20_000_000), &[0x77, 0x1e, 0x02][..]].concat() },
        ]),
        16,
        &[],
    );
    case(
        "class-and-loader-in-a-circle",
        "a class, its loader, and the loader's class",
        with([
            checkpoint(pool(21, 0x50, &[0x51, 0x0a, 0, 0, 0])),
            checkpoint(pool(23, 0x51, &[0x50, 0x0a])),
            checkpoint(pool(28, 0x52, &[0x50, 0x0a, 0, 0, 0])),
            checkpoint(pool(26, 0x53, &[0, 1, 0x52, 1, 0, 0])),
            Piece::Event { type_id: SAMPLE, body: [&varint(20_000_000), &[0x66, 0x53, 0x02][..]].concat() },
        ]),
        16,
        &[],
    );
}
