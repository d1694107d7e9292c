//! Chunk headers.

use super::Add;
use super::chunk::*;

pub(super) fn add(case: Add<'_>) {
    let end = Chunk::sound().build().bytes.len();
    case("version-3", "format version 3.0", spoilt(|b| b.bytes[5] = 3), 0, &["not a JFR chunk"]);
    case(
        "size-zero",
        "chunk size 0",
        header(8, 0),
        15,
        &["the header says the chunk has 0 bytes, it has 4431 (at offset 8"],
    );
    case(
        "size-67",
        "chunk size smaller than the header",
        header(8, 67),
        15,
        &["the header says the chunk has 67 bytes, it has 4431 (at offset 8"],
    );
    case("size-negative", "chunk size -1", header(8, -1), 15, &["bytes before the chunk does"]);
    case("size-max", "chunk size 2^63-1", header(8, i64::MAX), 15, &["bytes before the chunk does"]);
    case(
        "size-too-large",
        "chunk size a gigabyte more than the file",
        header(8, end as i64 + (1 << 30)),
        15,
        &["the input ends 1073741824 bytes before the chunk does"],
    );
    case(
        "size-mid-event",
        "the chunk's size ends inside its last event",
        header(8, end as i64 - 2),
        14,
        &["impossible event size", "skipped 2 bytes"],
    );
    case(
        "metadata-nowhere",
        "metadata offset behind the file",
        header(24, 1 << 40),
        15,
        &["no metadata at byte 1099511627776 of the chunk, where the header says (at offset 24"],
    );
    case(
        "metadata-negative",
        "metadata offset -1",
        header(24, -1),
        15,
        &["no metadata at byte -1 of the chunk, where the header says (at offset 24"],
    );
    case(
        "metadata-mid-event",
        "metadata offset inside an event",
        header(24, 100),
        15,
        &["no metadata at byte 100 of the chunk, where the header says (at offset 24"],
    );
    case(
        "metadata-in-header",
        "metadata offset inside the header",
        header(24, 8),
        15,
        &["no metadata at byte 8 of the chunk, where the header says (at offset 24"],
    );
    case(
        "checkpoint-nowhere",
        "checkpoint offset behind the file",
        header(16, 1 << 40),
        15,
        &["no checkpoint at byte 1099511627776 of the chunk, where the header says (at offset 16"],
    );
    case(
        "checkpoint-negative",
        "checkpoint offset -1",
        header(16, -1),
        15,
        &["no checkpoint at byte -1 of the chunk, where the header says (at offset 16"],
    );
    case(
        "checkpoint-is-metadata",
        "checkpoint offset of the metadata",
        header(16, HEADER as i64),
        15,
        &["no checkpoint at byte 68 of the chunk, where the header says (at offset 16"],
    );
    case(
        "checkpoint-mid-event",
        "checkpoint offset inside an event",
        header(16, end as i64 - 3),
        15,
        &["no checkpoint at byte 4428 of the chunk, where the header says (at offset 16"],
    );
    case(
        "frequency-zero",
        "0 ticks per second",
        header(56, 0),
        15,
        &["a clock of 0 ticks per second; ticks are treated as nanoseconds (at offset 56"],
    );
    case(
        "frequency-negative",
        "-1 ticks per second",
        header(56, -1),
        15,
        &["a clock of -1 ticks per second; ticks are treated as nanoseconds (at offset 56"],
    );
    case(
        "clock-extreme",
        "start at -2^63 ns, ticks at 2^63-1",
        spoilt(|b| {
            b.put(32, i64::MIN).put(48, i64::MAX);
        }),
        15,
        &[],
    );
    case(
        "state-updating",
        "state 255: being updated for ever",
        spoilt(|b| b.bytes[64] = 255),
        15,
        &["left in the middle of an update (at offset 64"],
    );
}
