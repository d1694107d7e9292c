//! The tracepoints `sched:sched_switch` and `sched:sched_waking`, parsed with the format that this kernel
//! describes.

use std::borrow::Cow;

use super::thread_polls;
use crate::perf_events::tracepoint::{Tracepoint, describe};

/// The position of a field in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) offset: usize,
    pub(super) size: usize,
}

impl Field {
    pub(super) fn find(point: &Tracepoint, name: &str) -> Result<Field, String> {
        let (offset, size) = point.field(name)?;
        Ok(Field { offset, size })
    }

    pub(super) fn bytes<'a>(&self, raw: &'a [u8]) -> Option<&'a [u8]> {
        raw.get(self.offset..self.offset.checked_add(self.size)?)
    }

    pub(super) fn number(&self, raw: &[u8]) -> Option<u64> {
        let bytes = self.bytes(raw)?;
        (bytes.len() <= 8).then(|| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}

/// Names of the states in which a thread was switched out, as the kernel prints them: `S`, `D`, `R`, `R+`, …
#[derive(Clone, Debug)]
pub struct States {
    flags: Vec<(u64, String)>,
    /// The bit for a preempted thread.
    preempted: u64,
}

impl Default for States {
    /// The states of Linux 4.14 and later.
    fn default() -> States {
        let names = ["S", "D", "T", "t", "X", "Z", "P", "I"];
        let flags = names.iter().enumerate().map(|(i, name)| (1 << i, (*name).to_owned())).collect();
        States { flags, preempted: 0x100 }
    }
}

impl States {
    fn from_tracepoint(point: &Tracepoint) -> States {
        let mut flags = point.flags();
        flags.retain(|(bit, _)| bit.is_power_of_two());
        if flags.is_empty() {
            return States::default();
        }
        let preempted = flags.iter().map(|(bit, _)| bit).max().map_or(0, |bit| bit << 1);
        States { flags, preempted }
    }

    /// Returns the text for `prev_state`.
    pub fn text(&self, state: u64) -> Cow<'_, str> {
        let only = self.flags.iter().find(|(bit, _)| *bit == state);
        match (state, only) {
            (thread_polls::UNKNOWN, _) => "?".into(),
            (0, _) => "R".into(),
            (_, Some((_, name))) => name.into(),
            _ if state == self.preempted => "R+".into(),
            _ => self.several(state).into(),
        }
    }

    fn several(&self, state: u64) -> String {
        let set = self.flags.iter().filter(|(bit, _)| state & bit != 0);
        let mut text = set.map(|(_, name)| name.as_str()).collect::<Vec<_>>().join("|");
        if text.is_empty() {
            text.push('R');
        }
        if state & self.preempted != 0 {
            text.push('+');
        }
        text
    }

    /// Returns true if the thread was still runnable.
    pub fn runnable(&self, state: u64) -> bool {
        self.flags.iter().all(|(bit, _)| state & bit == 0)
    }

    /// Returns true if the thread has ended.
    pub fn over(&self, state: u64) -> bool {
        self.flags.iter().any(|(bit, name)| state & bit != 0 && matches!(name.as_str(), "X" | "Z"))
    }
}

/// `sched:sched_switch`: a processor switches from one thread to another.
#[derive(Debug)]
pub struct SwitchPoint {
    /// The tracepoint's ID.
    pub id: u64,
    /// Names of states.
    pub states: States,
    prev_comm: Field,
    prev_pid: Field,
    prev_state: Field,
    next_pid: Field,
}

/// A record of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch<'a> {
    /// The thread that is switched out; 0: the processor was idle.
    pub prev: u32,
    /// Its name.
    pub prev_comm: &'a [u8],
    /// Its state, see [`States`].
    pub state: u64,
    /// The thread that is switched in.
    pub next: u32,
}

impl SwitchPoint {
    /// Reads the format from this kernel.
    pub fn find() -> Result<SwitchPoint, String> {
        SwitchPoint::from_tracepoint(&describe("sched", "sched_switch")?)
    }

    fn from_tracepoint(point: &Tracepoint) -> Result<SwitchPoint, String> {
        let field = |name| Field::find(point, name);
        Ok(SwitchPoint {
            id: point.id,
            states: States::from_tracepoint(point),
            prev_comm: field("prev_comm")?,
            prev_pid: field("prev_pid")?,
            prev_state: field("prev_state")?,
            next_pid: field("next_pid")?,
        })
    }

    /// Reads a record.
    pub fn read<'a>(&self, raw: &'a [u8]) -> Option<Switch<'a>> {
        let comm = self.prev_comm.bytes(raw)?;
        Some(Switch {
            prev: self.prev_pid.number(raw)? as u32,
            prev_comm: comm.split(|b| *b == 0).next().unwrap_or(&[]),
            state: self.prev_state.number(raw)?,
            next: self.next_pid.number(raw)? as u32,
        })
    }
}

/// `sched:sched_waking`: a thread is about to be woken; reported in the context of the waker.
#[derive(Debug)]
pub struct WakingPoint {
    /// The tracepoint's ID.
    pub id: u64,
    flags: Field,
    pid: Field,
}

/// A record of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waking {
    /// The thread that is woken.
    pub tid: u32,
    /// The wake-up came from an interrupt, so the interrupted thread is unrelated.
    pub interrupt: bool,
}

/// `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ` (linux/trace_events.h).
const IN_INTERRUPT: u64 = 0x08 | 0x10;

impl WakingPoint {
    /// Reads the format from this kernel.
    pub fn find() -> Result<WakingPoint, String> {
        WakingPoint::from_tracepoint(&describe("sched", "sched_waking")?)
    }

    fn from_tracepoint(point: &Tracepoint) -> Result<WakingPoint, String> {
        let field = |name| Field::find(point, name);
        Ok(WakingPoint { id: point.id, flags: field("common_flags")?, pid: field("pid")? })
    }

    /// Reads a record.
    pub fn read(&self, raw: &[u8]) -> Option<Waking> {
        let interrupt = self.flags.number(raw)? & IN_INTERRUPT != 0;
        Some(Waking { tid: self.pid.number(raw)? as u32, interrupt })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const SWITCH: &str = "
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;

print fmt: \"%s\", __print_flags(REC->prev_state & (((1 | 2) + 1) << 1), \"|\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }, \
{ 0x00000004, \"T\" }, { 0x00000008, \"t\" }, { 0x00000010, \"X\" }, { 0x00000020, \"Z\" }, { 0x00000040, \"P\" }, { 0x00000080, \"I\" }) : \"R\"
";
    const WAKING: &str = "
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;
";

    pub(in crate::from_outside::off_cpu) fn switch_point() -> SwitchPoint {
        SwitchPoint::from_tracepoint(&Tracepoint::from_format(1, SWITCH)).unwrap()
    }

    #[test]
    fn task_states_are_printed_like_the_kernel() {
        let states = switch_point().states;
        let texts =
            [(0, "R"), (1, "S"), (2, "D"), (0x100, "R+"), (0x80, "I"), (0x10, "X"), (3, "S|D"), (0x20, "Z")];
        for (state, text) in texts {
            assert_eq!(states.text(state), text);
            assert_eq!(states.runnable(state), text.starts_with('R'), "{text}");
            assert_eq!(states.over(state), matches!(text, "X" | "Z"), "{text}");
        }
        let unknown = States::from_tracepoint(&Tracepoint::from_format(1, "no text at all"));
        assert_eq!([unknown.text(1), unknown.text(0x100)], ["S", "R+"]);
    }

    #[test]
    fn switch_and_waking_records_are_read_by_layout() {
        let mut raw = vec![0; 60];
        raw[8..13].copy_from_slice(b"name\0");
        raw[24..28].copy_from_slice(&7u32.to_le_bytes());
        raw[32..40].copy_from_slice(&2u64.to_le_bytes());
        raw[56..60].copy_from_slice(&9u32.to_le_bytes());
        let read = switch_point().read(&raw).unwrap();
        assert_eq!(read, Switch { prev: 7, prev_comm: b"name", state: 2, next: 9 });
        assert_eq!(switch_point().read(&raw[..59]), None, "cut");

        let point = WakingPoint::from_tracepoint(&Tracepoint::from_format(1, WAKING)).unwrap();
        for (flags, interrupt) in [(0, false), (0x01, false), (0x08, true), (0x11, true), (0x84, false)] {
            raw[2] = flags;
            assert_eq!(point.read(&raw), Some(Waking { tid: 7, interrupt }));
        }
        assert!(
            SwitchPoint::from_tracepoint(&Tracepoint::from_format(1, WAKING)).is_err(),
            "fields are missing"
        );
    }
}
