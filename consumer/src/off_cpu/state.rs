//! Thread states, as printed by the scheduler's tracepoint.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::model::{Id, Interner};

/// A set of states, with a bit for each of [`LETTERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(u16);

/// The letters printed by `sched:sched_switch`, and their bits in `task_struct::__state` (0: no bit).
const LETTERS: [(char, u16); 9] =
    [('R', 0), ('S', 1), ('D', 2), ('T', 4), ('t', 8), ('X', 16), ('Z', 32), ('P', 64), ('I', 128)];
const RUNNABLE: u16 = 1;

impl States {
    /// All states.
    pub const ALL: Self = Self((1 << LETTERS.len()) - 1);
    /// States of blocked threads: all except R.
    pub const BLOCKED: Self = Self(Self::ALL.0 & !RUNNABLE);
    /// The state of threads that were preempted while runnable.
    pub const INVOLUNTARY: Self = Self(RUNNABLE);

    /// Parses the states of an event, e.g. `S`, `R+` or `D|K`: each letter is a state.
    fn parse(text: &str) -> Self {
        let bits = text.chars().filter_map(bit).fold(0, |bits, bit| bits | bit);
        // The kernel prints a state without a letter as a number.
        Self(if bits == 0 { Self::BLOCKED.0 } else { bits })
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

fn bit(letter: char) -> Option<u16> {
    LETTERS.iter().position(|&(known, _)| known == letter).map(|at| 1 << at)
}

/// The text is not a set of states.
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

    /// Parses letters (`S,D` or `SD`), a mask in the notation of bcc's tools (`2`; `0` is running), `all`
    /// or `blocked`.
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
                // TASK_IDLE is TASK_UNINTERRUPTIBLE with another bit, and is printed as `I`.
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

/// Names of states, and the parsed states.
#[derive(Debug, Default)]
pub(super) struct KnownStates {
    names: Interner<Arc<str>>,
    states: Vec<States>,
}

impl KnownStates {
    pub(super) fn intern(&mut self, name: &Arc<str>) -> Id<Arc<str>> {
        let id = self.names.intern(name.clone());
        if id.index() == self.states.len() {
            self.states.push(States::parse(name));
        }
        id
    }

    pub(super) fn are(&self, wanted: &States, state: Id<Arc<str>>) -> bool {
        self.states[state.index()].meets(*wanted)
    }

    /// Returns true if a thread in this state is blocked.
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
    fn states_are_parsed_from_letters_masks_and_words() {
        let of = |text: &str| text.parse::<States>();
        assert_eq!(of("1"), of("S"));
        assert_eq!(of("2"), of("D,I"));
        assert_eq!(of("3"), of("S,D,I"));
        assert_eq!(of("SD"), of("S|D"));
        assert_eq!(of("0"), Ok(States::INVOLUNTARY));
        assert_eq!(of("R"), Ok(States::INVOLUNTARY));
        assert!(of("D").unwrap().meets(States::parse("D")) && !of("D").unwrap().meets(States::parse("I")));
        assert_eq!(of("blocked"), Ok(States::BLOCKED));
        for wrong in ["", "Q", "S;D", "1024", "-1", ","] {
            assert!(of(wrong).unwrap_err().to_string().contains("S,D"), "{wrong}");
        }
    }

    #[test]
    fn event_states_are_parsed_from_letters() {
        let known = |text: &str| States::parse(text);
        assert_eq!(known("R+"), States::INVOLUNTARY);
        assert_eq!(known("D|K"), "D".parse().unwrap());
        assert_eq!(known("0x1000"), States::BLOCKED);
    }
}
