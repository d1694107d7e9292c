//! States of threads, as the scheduler's tracepoint prints them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::model::{Id, Interner};

/// A set of states: a bit for each of [`LETTERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(u16);

/// What `sched:sched_switch` prints, and the bit of `task_struct::__state` that stands for it (0: none does).
const LETTERS: [(char, u16); 9] =
    [('R', 0), ('S', 1), ('D', 2), ('T', 4), ('t', 8), ('X', 16), ('Z', 32), ('P', 64), ('I', 128)];
const RUNNABLE: u16 = 1;

impl States {
    /// All.
    pub const ALL: Self = Self((1 << LETTERS.len()) - 1);
    /// Of threads that waited for something: all but R.
    pub const BLOCKED: Self = Self(Self::ALL.0 & !RUNNABLE);
    /// Of threads that were put aside while they could run.
    pub const INVOLUNTARY: Self = Self(RUNNABLE);

    /// The states that an event tells, e.g. `S`, `R+` or `D|K`: each letter is one.
    fn of_event(text: &str) -> Self {
        let bits = text.chars().filter_map(bit).fold(0, |bits, bit| bits | bit);
        // The kernel prints what it has no letter for as a number.
        Self(if bits == 0 { Self::BLOCKED.0 } else { bits })
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

fn bit(letter: char) -> Option<u16> {
    LETTERS.iter().position(|&(known, _)| known == letter).map(|at| 1 << at)
}

/// What is no state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatesError(String);

impl fmt::Display for StatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no state of a thread: give letters, as S,D (R S D T t X Z P I), a number whose bits are states, as 2 (0 R, 1 S, 2 D, 4 T, \
             8 t, 16 X, 32 Z, 64 P, 128 I), blocked, or all",
            self.0
        )
    }
}

impl std::error::Error for StatesError {}

impl FromStr for States {
    type Err = StatesError;

    /// Letters (`S,D` or `SD`), the number of a mask as bcc's tools take it (`2`; `0` is running), `all` or `blocked`.
    fn from_str(text: &str) -> Result<Self, StatesError> {
        let wrong = || StatesError(text.to_owned());
        match text {
            "all" => return Ok(Self::ALL),
            "blocked" => return Ok(Self::BLOCKED),
            _ => {}
        }
        let hexadecimal = text.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16));
        if let Ok(mask) = hexadecimal.unwrap_or_else(|| text.parse()) {
            let chosen = |value: u16| match value {
                0 => mask == 0,
                // TASK_IDLE is TASK_UNINTERRUPTIBLE with another bit, and printed as `I`.
                128 => mask & (128 | 2) != 0,
                value => mask & u32::from(value) != 0,
            };
            let bits = LETTERS.iter().enumerate().filter(|(_, (_, value))| chosen(*value));
            let bits = bits.fold(0, |bits, (at, _)| bits | 1 << at);
            return if bits == 0 { Err(wrong()) } else { Ok(Self(bits)) };
        }
        let letters = text.chars().filter(|&c| c != ',' && c != '|' && c != '+');
        let bits = letters.map(bit).try_fold(0, |bits, bit| Some(bits | bit?));
        bits.filter(|&bits| bits != 0).map(Self).ok_or_else(wrong)
    }
}

/// Names of states met, and what they mean.
#[derive(Debug, Default)]
pub(super) struct Known {
    names: Interner<Arc<str>>,
    states: Vec<States>,
}

impl Known {
    pub(super) fn intern(&mut self, name: &Arc<str>) -> Id<Arc<str>> {
        let id = self.names.intern(name.clone());
        if id.index() == self.states.len() {
            self.states.push(States::of_event(name));
        }
        id
    }

    pub(super) fn are(&self, wanted: &States, state: Id<Arc<str>>) -> bool {
        self.states[state.index()].meets(*wanted)
    }

    /// Whether a thread in this state waited for something.
    pub(super) fn is_blocked(&self, state: Id<Arc<str>>) -> bool {
        self.are(&States::BLOCKED, state)
    }

    pub(super) fn name(&self, state: Id<Arc<str>>) -> &str {
        self.names.get(state)
    }

    pub(super) fn into_names(self) -> Interner<Arc<str>> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_numbers_and_words() {
        let of = |text: &str| text.parse::<States>();
        assert_eq!(of("1"), of("S"));
        assert_eq!(of("2"), of("D,I"));
        assert_eq!(of("3"), of("S,D,I"));
        assert_eq!(of("SD"), of("S|D"));
        assert_eq!(of("0"), Ok(States::INVOLUNTARY));
        assert_eq!(of("R"), Ok(States::INVOLUNTARY));
        assert!(
            of("D").unwrap().meets(States::of_event("D")) && !of("D").unwrap().meets(States::of_event("I"))
        );
        assert_eq!(of("blocked"), Ok(States::BLOCKED));
        for wrong in ["", "Q", "S;D", "1024", "-1", ","] {
            assert!(of(wrong).unwrap_err().to_string().contains("S,D"), "{wrong}");
        }
    }

    #[test]
    fn events_tell_letters() {
        let known = |text: &str| States::of_event(text);
        assert_eq!(known("R+"), States::INVOLUNTARY);
        assert_eq!(known("D|K"), "D".parse().unwrap());
        assert_eq!(known("0x1000"), States::BLOCKED);
    }
}
