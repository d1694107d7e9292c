//! Decodes a thread's context in `context_victim`. All of its parts are derived from one number.

use flightline_context::record::{ATTRS_MAX, MAGIC, OwnedRecord, SIDE_CAR_BEFORE, VALID, labels};

/// The active context: the number of the span, the length of its label, and the number of the enclosing span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The span's number; 0: no active span.
    pub id: u8,
    /// The length of its label; 0: no label.
    pub label: u8,
    /// The enclosing span's number; 0: none.
    pub previous: u8,
}

/// No active span.
pub const NOTHING: State = State { id: 0, label: 0, previous: 0 };

/// The states of a round of the program, from one time without a span to the next.
pub const ROUND: [State; 7] = [
    State { id: 1, label: 0, previous: 0 },
    State { id: 1, label: 1, previous: 0 },
    State { id: 1, label: 2, previous: 0 },
    State { id: 3, label: 0, previous: 1 },
    State { id: 5, label: 0, previous: 3 },
    // The state in between has been left.
    State { id: 5, label: 0, previous: 1 },
    State { id: 1, label: 2, previous: 0 },
];

/// Decodes the state from the bytes of a side-car and a record; `None` if they do not belong together.
/// `span_at` reads the span id of the record at an address.
pub fn state(
    held: Option<&[u8; size_of::<OwnedRecord>()]>,
    span_at: impl Fn(u64) -> [u8; 8],
) -> Option<State> {
    let Some(held) = held else { return Some(NOTHING) };
    let word = |from: usize| u64::from_ne_bytes(held[from..from + 8].try_into().unwrap_or_default());
    let record = &held[SIDE_CAR_BEFORE..];
    let id = record[0];
    let attrs = usize::from(u16::from_ne_bytes([record[26], record[27]]));
    let numbers = [word(24), word(32)] == [u64::from(id) + 2, u64::from(id) + 1];
    let written = word(8) != 0 && word(16) != 0 && word(0) as u32 == MAGIC;
    if id == 0 || record[..24].iter().any(|byte| *byte != id) || record[24] != VALID || record[25] != id {
        return None;
    }
    if !numbers || !written || attrs > ATTRS_MAX {
        return None;
    }
    let mut label = 0;
    for (key, value) in labels(&record[28..28 + attrs]) {
        // One key; each byte of a value contains the value's length.
        if key != 0 || label != 0 || value.iter().any(|byte| usize::from(byte - b'0') != value.len()) {
            return None;
        }
        label = value.len() as u8;
    }
    let [previous, rest @ ..] = if word(40) == 0 { [0; 8] } else { span_at(word(40)) };
    (rest == [previous; 7]).then_some(State { id, label, previous })
}
